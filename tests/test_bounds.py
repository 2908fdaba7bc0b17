"""Lemma 3 and Theorem 1 with constants: against quadrature, rational arithmetic, the accountant.

The accountant uses nothing of `bounds`.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import log_ndtr
from strategies import QUICK

from dpteach import bounds
from dpteach.laws import PoissonLaw
from dpteach.moments import MomentsGuarantee


def excess(q, sigma, lam):
    """E2 - 1 = Σ C(a,k)(1-q)^(a-k) q^k (e^{k(k-1)/(2σ²)} - 1), summed in plain Python."""
    a, terms = lam + 1, []
    for k in range(2, a + 1):
        exponent = k * (k - 1) / (2 * sigma**2)
        log_weight = math.log(math.comb(a, k)) + (a - k) * math.log1p(-q) + k * math.log(q)
        terms.append(math.exp(log_weight + exponent + math.log(-math.expm1(-exponent))))
    return math.fsum(terms)


def exact_moment(q, sigma, lam):
    return math.log1p(excess(q, sigma, lam))


@st.composite
def admissible(draw):
    sigma = math.exp(draw(st.floats(0, 1.8)))
    q = math.exp(-draw(st.floats(0.001, 12))) / (16 * sigma)
    largest = math.floor(-(sigma**2) * math.log(q * sigma))
    return q, sigma, draw(st.integers(1, min(largest, 150)))


# --- Lemma 3


def test_the_sum_is_the_definition():
    for q, sigma, lam in ((0.0498, 1.0, 3), (0.01, 4.0, 19), (0.02, 1.5, 5)):

        def integrand(y, q=q, s=1 / sigma, a=lam + 1):
            ratio = 1 + q * math.expm1(s * y - s * s / 2)
            return (ratio**a - 1) * math.exp(-y * y / 2) / math.sqrt(2 * math.pi)

        wanted = quad(integrand, -12, 25, epsabs=1e-15, limit=400)[0]
        assert excess(q, sigma, lam) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(("q", "sigma", "lam", "inside"), [
    (0.01, 4.0, 51, True), (0.01, 4.0, 52, False),  # 16 log 25 = 51.502
    (0.01, 4.0, 1.5, False), (0.01, 0.99, 1, False), (0.01, 1.0, 1, True),
    (0.0624, 1.0, 2, True), (0.0626, 1.0, 2, False), (0.0311, 2.0, 2, True),
    (0.0313, 2.0, 2, False),
])  # fmt: skip
def test_region(q, sigma, lam, inside):
    assert bool(bounds.lemma3_region(q, sigma, lam)) is inside
    if not inside:
        with pytest.raises(ValueError, match=r"isn't allowed: it must be .*; Lemma 3 needs"):
            bounds.lemma3_bound(q, sigma, lam)


def test_leading_term_and_bound_in_rational_arithmetic():
    """q²λ(λ+1)/((1-q)σ²), plus 4/5 q³λ³/σ³."""
    for n, sigma, lam in ((100, 4, 19), (64, 2, 5), (1000, 3, 40)):
        q = Fraction(1, n)
        leading = q**2 * lam * (lam + 1) / ((1 - q) * sigma**2)
        found = float(bounds.lemma3_leading(float(q), sigma, lam))
        assert found == pytest.approx(float(leading), rel=1e-13)
        wanted = leading + Fraction(4, 5) * (q * lam / sigma) ** 3
        found = bounds.lemma3_bound(float(q), float(sigma), lam)
        assert found == pytest.approx(float(wanted), rel=1e-13)


@pytest.mark.theorem("thm-abadi-lemma-3")
@QUICK
@given(admissible())
def test_both_bounds_lie_above_the_exact_moment(point):
    moment = exact_moment(*point)
    assert moment <= bounds.lemma3_bound(*point)
    assert moment <= bounds.lemma3_remainder(*point) * (1 + 1e-12)
    ratio = moment / float(bounds.lemma3_leading(*point))
    assert 0.499 <= ratio <= 1.0835
    if point[2] != 3 or point[1] >= 1.06 or point[0] <= 0.032:
        assert ratio <= 1


def test_the_worst_point_and_the_least_constant():
    q, sigma, lam = math.exp(-3), 1.0, 3
    moment, leading = exact_moment(q, sigma, lam), float(bounds.lemma3_leading(q, sigma, lam))
    assert moment / leading == pytest.approx(1.0835, abs=5e-5)
    assert (moment - leading) / (q * lam) ** 3 == pytest.approx(0.7844, abs=5e-5)


@pytest.mark.theorem("lem-04-expansion")
def test_leading_ratio_at_both_ends():
    for sigma, wanted in ((1.0, 0.85914), (1000.0, 0.5)):
        ratio = exact_moment(1e-9, sigma, 1) / float(bounds.lemma3_leading(1e-9, sigma, 1))
        assert ratio == pytest.approx(wanted, abs=1e-5)


@pytest.mark.theorem("lem-04-remainder")
@pytest.mark.parametrize("s", [0.05, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("xl", [0.0, 0.05, 0.1733])
def test_k_is_the_integral_of_the_derivation(s, xl):
    """E[v_+³ (4e^v + 3e^2v + e^3v)/8 · exp(σ·xl·v + σ²v²/4)]/s³ with v ~ N(-s²/2, s²)."""

    def integrand(v):
        weight = (4 * math.exp(v) + 3 * math.exp(2 * v) + math.exp(3 * v)) / 8
        density = math.exp(-((v + s * s / 2) ** 2) / (2 * s * s) + v * v / (4 * s * s))
        return v**3 * weight * density * math.exp(xl * v / s) / (s * math.sqrt(2 * math.pi))

    wanted = quad(integrand, 0, 45 * s, epsabs=0, epsrel=1e-11, limit=400)[0] / s**3
    assert float(bounds.lemma3_k(s, xl)) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.theorem("lem-04-remainder")
def test_remainder_term_by_term():
    """C(λ+1,2) q²(e^{1/σ²}-1) + C(λ+1,3) (q/σ)³K, and E[X_+³ (1+qX)^(λ-2)] ≤ s³K by quadrature."""
    for q, sigma, lam in ((0.04, 1.0, 3), (0.01, 2.0, 12), (0.015, 4.0, 40), (0.0003, 1.0, 8)):
        k = float(bounds.lemma3_k(1 / sigma, q * sigma * math.log(1 / (q * sigma))))
        wanted = (lam + 1) * lam / 2 * q**2 * math.expm1(1 / sigma**2)
        wanted += (lam + 1) * lam * (lam - 1) / 6 * (q / sigma) ** 3 * k
        assert bounds.lemma3_remainder(q, sigma, lam) == pytest.approx(wanted, rel=1e-12)

        def integrand(y, q=q, s=1 / sigma, lam=lam):
            x = math.expm1(s * y - s * s / 2)
            return x**3 * (1 + q * x) ** (lam - 2) * math.exp(-y * y / 2)

        integral = quad(integrand, 0.5 / sigma, 40, limit=400)[0] / math.sqrt(2 * math.pi)
        assert integral <= k / sigma**3


# --- the finite part of the proof


@pytest.mark.theorem("cor-04-monotone")
def test_normalised_moment_and_its_monotony():
    q, s = np.array([1e-9, 0.001, 0.05]), np.array([0.3, 0.7, 1.0])
    grid = np.linspace(0.01, 1, 60)
    for lam in (1, 2, 3, 17):
        found = bounds._normalised_e2(q, s, lam)
        wanted = [excess(q[i], 1 / s[i], lam) / (q[i] * s[i]) ** 2 for i in range(3)]
        assert found == pytest.approx(wanted, rel=1e-12)
        assert np.all(np.diff(bounds._normalised_e2(np.full(60, 0.02), grid, lam)) > 0)
        in_q = np.diff(bounds._normalised_e2(grid / 16, np.full(60, 0.9), lam))
        assert np.all(in_q > (0 if lam > 1 else -1e-9))


@pytest.mark.parametrize(("lam", "constant"), [(2, 0.0), (3, 0.8), (7, 0.3)])
def test_corners_bound_both_sides_in_the_whole_box(lam, constant):
    s0, s1, q0, q1 = 0.6, 0.8, 0.001, 0.09
    boxes, left, right = bounds._corners(np.array([[s0], [s1], [q0], [q1]]), lam, constant)
    edge = s1 * min(1 / 16, math.exp(-lam * s0**2))  # no admissible point of the box lies above
    assert boxes[:, 0] == pytest.approx([s0, s1, q0, edge], rel=1e-14)
    for s in np.linspace(s0, s1, 7):
        for q in np.linspace(q0, s * min(1 / 16, math.exp(-lam * s * s)), 7):
            scaled = (q * s) ** 2
            printed = lam * (lam + 1) / (1 - q) + constant * (q * lam * s) ** 3 / scaled
            assert exact_moment(q, 1 / s, lam) / scaled <= left[0]
            assert printed >= right[0] * (1 - 1e-14)
    # at the corners they are the two sides, give or take log(1 + x)/x ≤ 1 at the lower one
    assert left[0] == pytest.approx(excess(edge, 1 / s1, lam) / (edge * s1) ** 2, rel=1e-4)
    assert right[0] == pytest.approx(lam * (lam + 1) / (1 - q0) + constant * q0 * lam**3 * s0)


@pytest.mark.theorem("prop-04-room")
def test_every_order_below_64_is_settled_and_the_others_need_no_boxes():
    assert all(bounds.verify_lemma3(lam, 0.8 if lam == 3 else 0.0) > 0 for lam in range(1, 64))
    # the inequalities that settle σ ≥ 4, and λ ≥ 64 for σ < 4: K at the upper end of each cell
    xl, edges = math.log(16) / 16, np.linspace(0.25, 1, 301)
    slack = 1 - np.expm1(edges[1:] ** 2) / edges[1:] ** 2 / 2
    ell = 64 * edges[:-1] ** 2
    assert np.all(bounds.lemma3_k(edges[1:], xl) * ell * np.exp(-ell) / 6 < slack)
    assert float(bounds.lemma3_k(0.25, xl)) * xl / 6 < 1 - 8 * math.expm1(1 / 16)


@pytest.mark.parametrize(("constant", "s", "rate", "holds"), [
    (0.785, (0.25, 1.0), (0, 1), True), (0.784, (0.25, 1.0), (0, 1), False),
    (0.0, (0.25, 1 / 1.06), (0, 1), True), (0.0, (0.25, 1 / 1.05), (0, 1), False),
    (0.0, (0.25, 1.0), (0, 0.032), True), (0.0, (0.25, 1.0), (0, 0.033), False),
])  # fmt: skip
def test_order_three(constant, s, rate, holds):
    if holds:
        assert bounds.verify_lemma3(3, constant, s, rate) > 0
    else:
        with pytest.raises(ValueError, match="isn't enough at lam = 3, near sigma = 1"):
            bounds.verify_lemma3(3, constant, s, rate)


# --- Theorem 1


@pytest.mark.theorem("lem-05-square")
@QUICK
@given(admissible())
def test_moments_are_below_e_minus_1(point):
    q, sigma, lam = point
    assert exact_moment(*point) <= (math.e - 1) * (q * lam / sigma) ** 2


def test_constants_follow_from_e_minus_1():
    """With y = λε/Λ in [3/2, 3]: c2² ≥ (e-1)y²/(y-1), greatest at both ends; c1 ≤ c2² log 16/3."""
    assert bounds.C2 - 0.001 < math.sqrt((math.e - 1) * 4.5) <= bounds.C2
    assert bounds.C1 <= (math.e - 1) * 4.5 * math.log(16) / 3 < bounds.C1 + 0.01


@pytest.mark.theorem("thm-abadi-theorem-1")
def test_sigma_suffices_over_a_grid():
    grid = itertools.product((1e-4, 1e-3, 0.01, 0.05), (100, 10**4, 10**6, 10**8),
                             (0.1, 1e-5, 1e-12), (0.01, 0.3, 0.999))  # fmt: skip
    checked = 0
    for q, steps, delta, share in grid:
        epsilon = share * min(7.14 * q * q * steps, 3 * math.log(1 / delta))
        try:
            sigma = bounds.theorem1_sigma(q, steps, epsilon, delta)
        except ValueError as error:
            assert "Lemma 3 needs q < 1/(16 sigma)" in str(error)
            continue
        lam = bounds.theorem1_order(epsilon, delta)
        assert bounds.lemma3_region(q, sigma, lam)
        if lam <= 500:
            assert steps * exact_moment(q, sigma, lam) - lam * epsilon <= math.log(delta)
        run = MomentsGuarantee(law=PoissonLaw(q, sigma), steps=steps)
        assert run.epsilon(delta) <= epsilon
        checked += 1
    assert checked >= 25


@pytest.mark.theorem("prop-05-least")
def test_no_smaller_constant_is_true():
    """At ε = 3 log(1/δ), σ = 1 and many steps the loss is normal: its tail says what c₂ must be."""
    for log_delta in (1e4, 1e6):
        for c2, true in ((bounds.C2 - 0.02, False), (bounds.C2, True)):
            mu = math.sqrt((math.e - 1) * 9 * log_delta / c2**2)  # q√T = 3√log(1/δ)/c₂
            log_tail = float(log_ndtr(-(3 * log_delta + 1 - mu**2 / 2) / mu))
            assert (log_tail + math.log(1 - math.exp(-1)) < -log_delta) == true


def test_sigma_and_order_by_hand():
    wanted = 2.781 * 0.01 * 100 * math.sqrt(math.log(1e5)) / 3.2
    assert bounds.theorem1_sigma(0.01, 10_000, 3.2, 1e-5) == pytest.approx(wanted, rel=1e-14)
    assert bounds.theorem1_sigma(1e-3, 10_000, 0.07, 0.97) == 1.0  # never below 1
    # 3 log(1e5) = 34.54: 69.08 at ε = 1/2, 10.8 at 3.2, 0.99 at 35
    assert [bounds.theorem1_order(e, 1e-5) for e in (0.5, 3.2, 35.0)] == [69, 10, 1]


@pytest.mark.parametrize(("call", "message"), [
    (lambda: bounds.theorem1_sigma(0.01, 100, 0.2, 1e-5), r"epsilon = 0.2 .*\(0, 0.0714\].*needs"),
    (lambda: bounds.theorem1_sigma(0.01, 10**6, 35.0, 1e-5), r"epsilon = 35.0 .*\(0, 34.5.*3 log"),
    (lambda: bounds.theorem1_sigma(0.01, 10**6, 1.0, 1e-5), r"rate = 0.01 .*sigma = 94.36"),
    (lambda: bounds.theorem1_sigma(0.01, 0, 1.0, 0.1), "steps = 0"),
    (lambda: bounds.theorem1_order(0.0, 0.1), "epsilon = 0"),
    (lambda: bounds.lemma3_leading(1.0, 1.0, 1), "rate = "),
    (lambda: bounds.lemma3_region(0.1, 1.0, math.nan), "lam = nan"),
    (lambda: bounds.lemma3_k(1.1), "s = 1.1"), (lambda: bounds.verify_lemma3(0, 0.8), "lam = 0"),
])  # fmt: skip
def test_arguments_out_of_range_are_named(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()
