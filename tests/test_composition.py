"""Composition against enumeration in fractions, printed theorems, dp-accounting and golden.json."""

import itertools
import math
from fractions import Fraction

import golden
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

from dpteach.composition import (
    OptimalComposition,
    StrongComposition,
    amplify_by_sampling,
    classical_gaussian_sigma,
    optimal_composition_delta,
    optimal_composition_epsilon,
    pure_dp_moment,
    pure_dp_moment_bound,
    strong_composition_epsilon,
)
from dpteach.laws import GaussianLaw, PoissonLaw, SubsampledLaw
from dpteach.run import NoisySGD

RUNS = {"A": (1.3, 3516), "B": (1.1, 14063), "C": (0.7, 10547)}
quick = settings(deadline=None, derandomize=True, max_examples=40)


def both(q, sigma):
    return PoissonLaw(q, sigma, "remove"), PoissonLaw(q, sigma, "add")


def gaussian_profile(mu, epsilon):
    """δ(ε) of one Gaussian, as Balle and Wang print it: independent of dpteach.laws."""
    return norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)


# --- optimal composition -----------------------------------------------------------------------


def enumerated_delta(odds, delta_0, steps, e_epsilon):
    """Σ (P - e^ε Q)_+ over all 4^T outputs of the worst (ε0, δ0) mechanism, in fractions."""
    kept = 1 - delta_0
    p = [delta_0, kept * odds / (1 + odds), kept / (1 + odds), Fraction(0)]
    total = Fraction(0)
    for word in itertools.product(range(4), repeat=steps):
        mass_p = math.prod(p[i] for i in word)
        mass_q = math.prod(p[3 - i] for i in word)
        total += max(Fraction(0), mass_p - e_epsilon * mass_q)
    return total


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("delta_0", [Fraction(0), Fraction(1, 1000), Fraction(1, 5)])
@pytest.mark.parametrize("odds", [Fraction(11, 10), Fraction(2), Fraction(9)])
def test_optimal_delta_is_the_enumeration_of_all_outputs(odds, delta_0, steps):
    for e_epsilon in (Fraction(1), Fraction(5, 4), odds, Fraction(7, 2), odds**steps):
        want = float(enumerated_delta(odds, delta_0, steps, e_epsilon))
        got = optimal_composition_delta(math.log(e_epsilon), math.log(odds), steps, float(delta_0))
        assert float(got) == pytest.approx(want, rel=1e-12, abs=1e-14)


def convolved_delta(epsilon_0, steps, epsilon):
    """T-fold convolution of the two-point loss, term by term, in 40 digits."""
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon_0)))
        masses = [mpmath.mpf(1)]
        for _ in range(steps):
            padded = [mpmath.mpf(0), *masses, mpmath.mpf(0)]
            masses = [(1 - p) * b + p * a for a, b in itertools.pairwise(padded)]
        losses = [(2 * k - steps) * mpmath.mpf(epsilon_0) for k in range(steps + 1)]
        return float(sum(m * (1 - mpmath.exp(epsilon - x))
                         for m, x in zip(masses, losses, strict=True) if x > epsilon))


@pytest.mark.parametrize("epsilon_0, steps", [(0.01, 200), (0.1, 100), (0.5, 77), (3.0, 20)])
def test_optimal_delta_is_the_convolution_of_many_steps(epsilon_0, steps):
    for share in (0.0, 0.03, 0.1, 0.31, 0.7, 0.99):
        epsilon = share * steps * epsilon_0
        got = float(optimal_composition_delta(epsilon, epsilon_0, steps))
        want = convolved_delta(epsilon_0, steps, epsilon)
        # near ε = T ε0 both tails are alike, and their difference keeps fewer digits
        assert got == pytest.approx(want, rel=1e-9, abs=1e-290)
        assert got >= want * (1 - 1e-14)  # rounded up


@pytest.mark.parametrize("epsilon_0, delta_0, steps", [
    (0.1, 1e-6, 50), (0.7, 0.0, 12), (1.5, 0.01, 9)])
def test_optimal_delta_is_theorem_33_as_printed(epsilon_0, delta_0, steps):
    for i in range(steps // 2 + 1):
        terms = (math.comb(steps, m)
                 * (math.exp((steps - m) * epsilon_0) - math.exp((steps - 2 * i + m) * epsilon_0))
                 for m in range(i))
        delta_i = math.fsum(terms) / (1 + math.exp(epsilon_0)) ** steps
        want = 1 - (1 - delta_0) ** steps * (1 - delta_i)
        got = optimal_composition_delta((steps - 2 * i) * epsilon_0, epsilon_0, steps, delta_0)
        assert float(got) == pytest.approx(want, rel=1e-9, abs=1e-15)


def test_optimal_delta_agrees_with_a_production_library():
    from dp_accounting import pld
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    for epsilon_0, delta_0, steps in [(0.5, 1e-6, 40), (0.2, 0.0, 200), (1.0, 1e-3, 10)]:
        one = pld.privacy_loss_distribution.from_privacy_parameters(
            DifferentialPrivacyParameters(epsilon_0, delta_0), value_discretization_interval=1e-1)
        many = one.self_compose(steps)  # ε0 is a multiple of the grid, so nothing is lost
        for epsilon in (0.0, 0.7, 2.0, 5.0):
            got = float(optimal_composition_delta(epsilon, epsilon_0, steps, delta_0))
            assert got == pytest.approx(many.get_delta_for_epsilon(epsilon), rel=1e-7, abs=1e-13)


def test_optimal_epsilon_inverts_delta():
    for epsilon_0, steps, delta, delta_0 in [(0.1, 100, 1e-5, 0.0), (0.02, 10**6, 1e-9, 1e-17)]:
        epsilon = optimal_composition_epsilon(epsilon_0, steps, delta, delta_0)
        at = float(optimal_composition_delta(epsilon, epsilon_0, steps, delta_0))
        assert at <= delta and at == pytest.approx(delta, rel=1e-8)
    assert optimal_composition_epsilon(0.3, 1, 1e-5) <= 0.3


def test_optimal_delta_at_its_ends():
    assert float(optimal_composition_delta(0.0, 0.0, 10, 0.0)) == 0.0
    assert float(optimal_composition_delta(3.0, 0.3, 10, 0.0)) == pytest.approx(0, abs=1e-15)
    assert float(optimal_composition_delta(1.0, 0.3, 10, 1.0)) == 1.0
    assert float(optimal_composition_delta(1e5, 900.0, 1000, 0.0)) == pytest.approx(1.0)
    tiny = float(optimal_composition_delta(30.0, 1e-3, 10**6, 0.0))
    assert 0 < tiny < 1e-150


# --- strong composition ------------------------------------------------------------------------


@quick
@given(st.floats(1e-3, 2), st.integers(1, 3000), st.floats(1e-12, 0.5))
def test_strong_composition_is_a_bound_on_the_worst_case(epsilon_0, steps, slack):
    epsilon = float(strong_composition_epsilon(epsilon_0, steps, slack))
    assert float(optimal_composition_delta(epsilon, epsilon_0, steps)) <= slack


def paper_comparison(steps, amplified):
    """DRV on the classical Gaussian pair, split of 1e-5 chosen best; invalid here (ε0 > 1)."""
    def epsilon(share):
        delta_0 = share * 1e-5 / (0.01 * steps)
        epsilon_0 = amplified(math.sqrt(2 * math.log(1.25 / delta_0)) / 4)
        return float(strong_composition_epsilon(epsilon_0, steps, (1 - share) * 1e-5))

    return minimize_scalar(epsilon, bounds=(1e-6, 1 - 1e-6), method="bounded",
                           options={"xatol": 1e-10}).fun


@pytest.mark.parametrize("steps, linear, right", [(10_000, 9.3532, 26.4), (40_000, 24.2445, 82.3)])
def test_the_papers_comparison(steps, linear, right):
    assert golden.value("linear amplification", T=steps) == linear
    assert paper_comparison(steps, lambda e: 0.01 * e) == pytest.approx(linear, abs=1e-4)
    assert paper_comparison(steps, lambda e: math.log1p(0.01 * math.expm1(e))) == pytest.approx(
        right, abs=0.05)


# --- sampling, classical Gaussian --------------------------------------------------------------


@pytest.mark.parametrize("q", [1e-3, 0.2, 1.0])
@pytest.mark.parametrize("epsilon_0", [0.1, 1.0, 3.0])
def test_amplification_against_integration_of_the_sampled_gaussian(q, epsilon_0):
    sigma = 1.2
    pair = amplify_by_sampling(epsilon_0, gaussian_profile(1 / sigma, epsilon_0), q)
    epsilon, delta = map(float, pair)

    def excess(z):
        base = norm.pdf(z, 0, sigma)
        return max(0.0, (1 - q) * base + q * norm.pdf(z, 1, sigma) - math.exp(epsilon) * base)

    border = 0.5 + sigma**2 * epsilon_0  # where the losses equal ε0: the integrand starts
    assert quad(excess, border, border + 15, epsabs=1e-15, limit=200)[0] == pytest.approx(
        delta, rel=1e-8)


def test_amplification_is_attained_by_one_sampled_randomised_response():
    for records in (1, 2, 10, 1000):
        for epsilon_0 in (0.2, 1.0, 4.0):
            q, low = 1 / records, 1 / (1 + math.exp(epsilon_0))
            ones = q * (1 - low) + (1 - q) * low  # one record is 1, the others 0
            assert math.log(ones / low) == pytest.approx(
                float(amplify_by_sampling(epsilon_0, 0.0, q)[0]), rel=1e-12)


def test_amplification_of_huge_epsilons_is_finite():
    epsilon, delta = amplify_by_sampling([0.0, 800.0, 1e6], 1e-3, 0.01)
    assert epsilon == pytest.approx([0.0, 800 + math.log(0.01), 1e6 + math.log(0.01)])
    assert float(delta) == pytest.approx(1e-5)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 1e-2])
def test_classical_gaussian_is_enough_where_it_is_proved(epsilon, delta):
    sigma = classical_gaussian_sigma(epsilon, delta)
    assert gaussian_profile(1 / sigma, epsilon) <= delta


def test_classical_gaussian_is_refused_beyond_one_where_it_fails():
    sigma = math.sqrt(2 * math.log(1.25 / 1e-5)) / 20
    assert gaussian_profile(1 / sigma, 20.0) > 1e-5  # the formula's σ isn't enough at ε = 20
    with pytest.raises(ValueError, match="epsilon = 20.0 isn't allowed.*ε ≤ 1"):
        classical_gaussian_sigma(20.0, 1e-5)


# --- Lemma C.1 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [1e-6, 0.5, 1, 7, 40])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-2, 0.3, 1, 5])
def test_extremal_moment_is_that_of_randomised_response(lam, epsilon):
    with mpmath.workdps(60):
        lam_, e = mpmath.mpf(lam), mpmath.exp(mpmath.mpf(epsilon))
        p, q = (e / (1 + e), 1 / (1 + e)), (1 / (1 + e), e / (1 + e))
        want = float(mpmath.log(sum(a * (a / b) ** lam_ for a, b in zip(p, q, strict=True))))
    assert float(pure_dp_moment(lam, epsilon)) == pytest.approx(want, rel=1e-12)


@quick
@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=2, max_size=6),
       st.floats(0.05, 3), st.floats(0.1, 30))
def test_no_mechanism_exceeds_the_extremal_moment_nor_the_lemma(outputs, epsilon, lam):
    q = np.array([mass for mass, _ in outputs])
    p = q * np.exp(epsilon * np.array([share for _, share in outputs]) / 2)
    p, q = p / p.sum(), q / q.sum()  # so |log p/q| ≤ ε/2 ≤ ε
    worst = np.abs(np.log(p / q)).max()
    alpha = math.log(np.sum(p * (p / q) ** lam))
    assert alpha <= float(pure_dp_moment(lam, worst)) + 1e-12
    hoeffding = lam * worst * math.expm1(worst) + lam**2 * worst**2 / 2
    assert float(pure_dp_moment(lam, worst)) <= hoeffding + 1e-12
    assert hoeffding <= float(pure_dp_moment_bound(lam, worst)) + 1e-12


def test_lemma_c1_as_printed():
    lam, epsilon = 3.0, 0.5
    want = lam * epsilon * (math.exp(epsilon) - 1) + lam**2 * epsilon**2 * math.exp(2 * epsilon) / 2
    assert float(pure_dp_moment_bound(lam, epsilon)) == pytest.approx(want, rel=1e-14)


# --- guarantees of a run -----------------------------------------------------------------------


def scanned_strong_epsilon(q, sigma, steps, delta):
    """DRV on the analytic Gaussian pair with log(1 + q(e^{ε0} - 1)), split scanned: own code."""
    def epsilon(share):
        delta_0 = share * delta / (q * steps)
        inner = brentq(lambda e: gaussian_profile(1 / sigma, e) - delta_0, 0, 30, xtol=1e-13)
        epsilon_0 = math.log1p(q * math.expm1(inner))
        strong = (epsilon_0 * math.sqrt(2 * steps * math.log(1 / ((1 - share) * delta)))
                  + steps * epsilon_0 * math.expm1(epsilon_0))
        return strong

    return minimize_scalar(epsilon, bounds=(1e-4, 1 - 1e-4), method="bounded",
                           options={"xatol": 1e-9}).fun


@pytest.mark.parametrize("q, sigma, steps", [
    (0.01, 4.0, 10_000), (0.01, 4.0, 40_000), (0.1, 5.0, 300)])
def test_strong_guarantee_is_the_scan_of_the_split(q, sigma, steps):
    got = StrongComposition(laws=both(q, sigma), steps=steps).epsilon(1e-5)
    assert got == pytest.approx(scanned_strong_epsilon(q, sigma, steps, 1e-5), rel=1e-6)


def test_optimal_guarantee_is_a_scan_of_the_pair():
    laws, steps = both(0.01, 4.0), 10_000
    got = OptimalComposition(laws=laws, steps=steps)
    epsilon = got.epsilon(1e-5)
    scan = np.geomspace(1e-3, 1, 4001)
    delta_0 = laws[0].delta(scan)
    least = np.min(optimal_composition_delta(epsilon, scan, steps, delta_0))
    assert 1e-5 * (1 - 1e-7) <= least <= 1e-5 * (1 + 1e-3)  # the scan misses corners by a little
    assert float(got.delta(epsilon)) <= 1e-5
    assert set(got.details(1e-5)) == {"epsilon_0", "delta_0", "share"}


@pytest.mark.parametrize("name", RUNS)
def test_order_of_the_guarantees_and_the_truth(name):
    """exact bracket ≤ optimal ≤ strong, both conventions."""
    sigma, steps = RUNS[name]
    run = NoisySGD.abadi16(n=60000, batch_size=256, steps=steps, sigma=sigma)
    fixed = NoisySGD.drs22(n=60000, batch_size=256, steps=steps, sigma=sigma)
    for which, relation, sampling in [(run, "add-remove", "poisson"),
                                      (fixed, "replace-one", "fixed-size")]:
        found = [r for r in golden.records("bracket", run=name) if r["sampling"] == sampling]
        lower = max(r["value"][0] for r in found)
        laws = which.laws(relation)
        optimal = OptimalComposition(laws=laws, steps=steps).epsilon(1e-5)
        strong = StrongComposition(laws=laws, steps=steps).epsilon(1e-5)
        assert lower < optimal <= strong * (1 + 1e-9)


@pytest.mark.parametrize("law", [GaussianLaw(1.0), SubsampledLaw(0.1, 2.0)])
def test_one_step_is_its_own_curve(law):
    for cls in (StrongComposition, OptimalComposition):
        one = cls(laws=(law,), steps=1)
        for epsilon in (0.1, 1.0, 3.0):
            assert float(one.delta(epsilon)) == pytest.approx(float(law.delta(epsilon)), rel=1e-12)


@settings(quick, max_examples=10)
@given(st.floats(0.001, 0.5), st.floats(0.6, 8), st.integers(1, 5000), st.floats(1e-9, 1e-2))
def test_epsilon_is_monotone_and_above_the_gaussian_it_contains(q, sigma, steps, delta):
    def ask(q=q, sigma=sigma, steps=steps, delta=delta, cls=OptimalComposition):
        return cls(laws=both(q, sigma), steps=steps).epsilon(delta)

    epsilon, slack = ask(), 1 + 1e-5
    assert ask(delta=delta / 2) * slack >= epsilon
    assert ask(sigma=sigma * 1.1) <= epsilon * slack
    assert ask(steps=steps + 1) * slack >= epsilon
    assert ask(q=min(1.0, q * 1.2)) * slack >= epsilon
    assert ask(cls=StrongComposition) * slack >= epsilon
    full = OptimalComposition(laws=(GaussianLaw(sigma),), steps=steps)
    assert float(full.delta(1.0)) >= gaussian_profile(math.sqrt(steps) / sigma, 1.0) * (1 - 1e-9)


def test_both_directions_count():
    one, two = PoissonLaw(0.3, 0.8, "add"), PoissonLaw(0.3, 0.8, "remove")
    alone = OptimalComposition(laws=(one,), steps=50).epsilon(1e-5)
    assert alone < OptimalComposition(laws=(one, two), steps=50).epsilon(1e-5)


@pytest.mark.parametrize("cls", [StrongComposition, OptimalComposition])
@pytest.mark.parametrize("q, sigma, steps, delta", [
    (0.01, 0.03, 1000, 1e-5), (1e-9, 4.0, 10**12, 1e-5), (1.0, 1.0, 1, 0.5),
    (0.01, 1.0, 10**9, 1e-280), (0.01, 2.0, 1000, 0.5), (0.01, 0.3, 1000, 1e-5)])
def test_extreme_inputs_give_finite_numbers(cls, q, sigma, steps, delta):
    guarantee = cls(laws=both(q, sigma), steps=steps)
    epsilon = guarantee.epsilon(delta)
    assert math.isfinite(epsilon) and epsilon >= 0
    assert float(guarantee.delta(epsilon)) <= delta * (1 + 1e-9)


def test_extreme_delta_is_declined_with_a_reason():
    guarantee = OptimalComposition(laws=both(0.01, 0.03), steps=10**9)
    assert guarantee.epsilon(1e-300) is None
    assert "1e-300" in guarantee.details(1e-300)["reason"]


def test_tradeoff_lies_between_the_optimum_and_the_diagonal():
    guarantee = OptimalComposition(laws=(GaussianLaw(10.0),), steps=16)
    alpha = np.array([0.0, 0.01, 0.1, 0.5, 1.0])
    f = guarantee.f(alpha)
    true = norm.cdf(norm.isf(alpha) - 0.4)
    assert np.all(f <= true + 1e-12) and np.all(f >= 0) and f[0] == pytest.approx(1, abs=1e-6)


BAD_CALLS = [
    lambda: amplify_by_sampling(1.0, 1e-5, 1.5),
    lambda: amplify_by_sampling(-1.0, 1e-5, 0.5),
    lambda: amplify_by_sampling(1.0, math.nan, 0.5),
    lambda: strong_composition_epsilon(1.0, 2.5, 0.1),
    lambda: strong_composition_epsilon(1.0, 2, 0.0),
    lambda: optimal_composition_delta(-1.0, 1.0, 2),
    lambda: optimal_composition_delta(1.0, 1.0, 0),
    lambda: optimal_composition_delta(1.0, 1.0, 2, 1.5),
    lambda: optimal_composition_epsilon(0.1, 10, 1.5),
    lambda: classical_gaussian_sigma(0.5, 0.0),
    lambda: pure_dp_moment(-1.0, 1.0),
    lambda: pure_dp_moment_bound(1.0, 1e4),
    lambda: OptimalComposition(laws=both(0.1, 1.0), steps=0),
    lambda: StrongComposition(laws=both(0.1, 1.0), steps=5).epsilon(math.nan),
    lambda: StrongComposition(laws=both(0.1, 1.0), steps=5).delta(-0.1),
]


@pytest.mark.parametrize("call", BAD_CALLS)
def test_wrong_arguments_are_named(call):
    with pytest.raises(ValueError, match="isn't allowed: it must be"):
        call()


# --- found by changing the code in small ways --------------------------------------------------


@pytest.mark.parametrize("epsilon_0, steps", [(0.01, 150), (0.3, 60)])
def test_optimal_delta_is_rounded_up(epsilon_0, steps):
    """The binomial sum in 40 digits at 40 values of ε: no result lies below it."""
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon_0)))
        masses = [math.comb(steps, k) * p**k * (1 - p) ** (steps - k) for k in range(steps + 1)]
        for epsilon in np.linspace(0.0, 4 * epsilon_0 * math.sqrt(steps), 40):
            gain = lambda k, e=epsilon: 1 - mpmath.exp(e - (2 * k - steps) * mpmath.mpf(epsilon_0))  # noqa: E731
            want = sum(m * gain(k) for k, m in enumerate(masses) if (2 * k - steps) * epsilon_0 > epsilon)
            got = float(optimal_composition_delta(epsilon, epsilon_0, steps))
            assert got >= want and got == pytest.approx(float(want), rel=1e-9)


def test_share_of_delta_that_the_steps_take():
    found = StrongComposition(laws=(GaussianLaw(2.0),), steps=4).details(1e-4)
    assert found["delta_0"] == pytest.approx(gaussian_profile(0.5, found["epsilon_0"]), rel=1e-9)
    assert found["share"] == pytest.approx(4 * found["delta_0"] / 1e-4, rel=1e-12)
    assert 0 < found["share"] <= 1


def test_optimal_delta_is_rounded_up_deep_in_the_tail():
    """Both tails in 40 digits, down to 1e-280, where a rounded argument costs most."""
    steps, epsilon_0 = 2400, 0.005
    epsilon, want = [], []
    with mpmath.workdps(40):
        exact = mpmath.mpf(epsilon_0)
        p = 1 / (1 + mpmath.exp(-exact))
        mass, above, below = p**steps, mpmath.mpf(0), mpmath.mpf(0)
        for k in range(steps, 1500, -1):
            above, below = above + mass, below + mass * mpmath.exp((steps - 2 * k) * exact)
            mass *= mpmath.mpf(k) / (steps - k + 1) * (1 - p) / p
            if k % 10 == 0 and above > 1e-280:
                epsilon.append((2 * k - steps - 1) * epsilon_0)
                want.append(above - mpmath.exp(mpmath.mpf(epsilon[-1])) * below)
    got = optimal_composition_delta(epsilon, epsilon_0, steps).tolist()
    assert len(got) > 40 and all(a >= b for a, b in zip(got, want, strict=True))
    assert got == pytest.approx([float(x) for x in want], rel=1e-8, abs=0)


@pytest.mark.parametrize("epsilon, delta", [(1.0, 0.9), (0.5, 0.3), (0.1, 1e-6)])
def test_classical_gaussian_as_printed(epsilon, delta):
    sigma = classical_gaussian_sigma(epsilon, delta)
    assert 1.25 * math.exp(-((sigma * epsilon) ** 2) / 2) == pytest.approx(delta, rel=1e-12)


def test_least_delta_of_a_step_is_answered():
    law = GaussianLaw(1.0)
    one = OptimalComposition(laws=(law,), steps=1)
    assert float(law.delta(one.epsilon(1e-300))) == pytest.approx(1e-300, rel=1e-9, abs=0)
    assert one.epsilon(9e-301) is None


def test_the_pair_of_one_step_is_reached_at_its_own_delta():
    """One (ε0, δ0) step is (ε0, δ0)-DP, and its profile is level at δ0 from ε0 on."""
    assert optimal_composition_epsilon(0.3, 1, 0.1, 0.1) == pytest.approx(0.3, rel=1e-13)


@pytest.mark.parametrize("epsilon, epsilon_0, steps", [
    (303.85311215487724, 0.3792152790679114, 825), (640.1645304100084, 1.5428868025102511, 431),
    (480.520734, 0.218690885, 5322), (100.0, 0.3, 700),
])
def test_far_tails_are_rounded_up(epsilon, epsilon_0, steps):
    """Against 60 digits, also where the subtracted tail is below 1e-290."""
    with mpmath.workdps(60):
        odds = mpmath.exp(epsilon_0)
        first = int((steps + epsilon / epsilon_0) // 2) + 1
        exact = sum(mpmath.binomial(steps, k) * (odds**k - mpmath.exp(epsilon) * odds ** (steps - k))
                    for k in range(first, steps + 1)) / (1 + odds) ** steps
        found = float(optimal_composition_delta(epsilon, epsilon_0, steps))
        assert float(exact) <= found <= 6 * float(exact)
