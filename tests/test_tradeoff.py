"""Trade-off functions against closed forms, all tests tried, and properties that theorems give."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from strategies import QUICK as quick

from dpteach.guarantees import (
    f_epsilon_delta,
    gaussian_delta,
    gaussian_tradeoff,
)
from dpteach.laws import SubsampledLaw
from dpteach.limits import functionals
from dpteach.tradeoff import (
    SIDES,
    TradeOff,
    distance,
    subsampled_epsilon_delta,
    subsampled_gaussian,
)

ALPHA = np.concatenate([[0.0], np.geomspace(1e-10, 0.5, 60), np.linspace(0, 1, 101)])
weights = st.lists(st.integers(0, 20), min_size=2, max_size=7)


@st.composite
def curves(draw):
    """Any pair of up to 7 outcomes, zeros and equal ratios included."""
    p = np.array(draw(weights), dtype=float)
    q = np.array(draw(st.lists(st.integers(0, 20), min_size=p.size, max_size=p.size)), dtype=float)
    p[0] += p.sum() == 0
    q[-1] += q.sum() == 0
    return TradeOff(p / p.sum(), q / q.sum())


rates = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))


def best_test(p, q, alpha):
    """T(P, Q)(α) by trying every deterministic test and mixing pairs of them: no Neyman-Pearson."""
    sets = list(itertools.product([0, 1], repeat=len(p)))
    points = [(float(np.dot(s, p)), 1 - float(np.dot(s, q))) for s in sets]
    best = 1.0
    for (a, x), (b, y) in itertools.product(points, repeat=2):
        if a <= alpha + 1e-12:
            best = min(best, x)
        if a < alpha < b:
            best = min(best, x + (y - x) * (alpha - a) / (b - a))
    return best


@pytest.mark.theorem("lem-pre-np")
@pytest.mark.theorem("lem-08-np")
def test_neyman_pearson_against_every_test():
    for p, q in (([0.5, 0.3, 0.2], [0.1, 0.2, 0.7]), ([0.6, 0.0, 0.4], [0.2, 0.3, 0.5]),
                 ([0.25, 0.25, 0.3, 0.2], [0.25, 0.05, 0.6, 0.1])):
        f = TradeOff(p, q)
        for alpha in np.linspace(0, 1, 21):
            assert math.isclose(float(f(alpha)), best_test(p, q, alpha), abs_tol=1e-12)


PAIRS = [(0.0, 0.0), (1.0, 0.0), (0.5, 0.1), (3.0, 1e-5), (0.0, 0.3)]


@pytest.mark.theorem("prop-08-pair")
@pytest.mark.parametrize("epsilon, delta", PAIRS)
def test_epsilon_delta_is_equation_4(epsilon, delta):
    f = TradeOff.epsilon_delta(epsilon, delta)
    np.testing.assert_allclose(f(ALPHA), f_epsilon_delta(epsilon, delta, ALPHA), atol=1e-15)
    assert math.isclose(float(f.delta(epsilon)), delta, abs_tol=1e-15)


@pytest.mark.theorem("thm-drs-2-7")
@pytest.mark.parametrize("mu", [0.0, 0.01, 0.3, 1.0, 3.0, 8.0, 25.0])
def test_gaussian_from_both_sides(mu):
    below, above = (TradeOff.gaussian(mu, side) for side in SIDES)
    truth = gaussian_tradeoff(mu, ALPHA)
    assert np.all(below(ALPHA) <= truth + 1e-14) and np.all(truth <= above(ALPHA) + 1e-14)
    assert distance(below, above) <= 4e-5 * max(mu, mu**1.5)  # second order in the cells' width
    for epsilon in (0.0, 0.7, 3.0):
        delta = float(gaussian_delta(mu, epsilon)) if mu else 0.0
        assert float(above.delta(epsilon)) - 1e-14 <= delta <= float(below.delta(epsilon)) + 1e-14


@pytest.mark.theorem("prop-08-shape")
@quick
@given(curves())
def test_shape_of_a_trade_off_function(f):
    grid = np.linspace(0, 1, 41)
    values = f(grid)
    assert np.all(values <= 1 - grid + 1e-14) and np.all(values >= 0)
    assert np.all(np.diff(values) <= 1e-14)
    assert np.all(np.diff(f.loss) < 0)
    middle = f((grid[1:] + grid[:-1]) / 2)
    assert np.all(middle <= (values[1:] + values[:-1]) / 2 + 1e-14)


@pytest.mark.theorem("lem-08-processing")
@quick
@given(curves())
def test_inverse_is_the_infimum(f):
    grid = np.concatenate([f.alpha, np.linspace(0, 1, 21)])
    found = f.inverse()(grid)
    assert np.all(f(found) <= grid + 1e-12)  # found is in the set {t: f(t) ≤ α}
    before = np.clip(found - 1e-9, 0, 1)
    assert np.all((f(before) > grid - 1e-12) | (found <= 1e-9))  # and nothing smaller is
    assert distance(f.inverse().inverse(), f) <= 1e-14


@pytest.mark.theorem("thm-drs-2-12")
@quick
@given(curves())
def test_duality_round_trip(f):
    """f → δ(ε) → f, and both against the conjugate's definition on the vertices."""
    slopes = f.loss[np.isfinite(f.loss)]
    epsilons = np.concatenate([[-600.0], slopes, [600.0]])
    for epsilon in epsilons[1:-1]:
        by_definition = 1 + float(f.conjugate(-math.exp(epsilon)))
        assert math.isclose(float(f.delta(epsilon)), by_definition, abs_tol=1e-12)
    # the slopes' lines, and 0, meet f at every vertex
    lines = 1 - f.delta(epsilons)[:, None] - np.exp(epsilons)[:, None] * ALPHA
    np.testing.assert_allclose(np.maximum(lines.max(axis=0), 0), f(ALPHA), atol=1e-12)


@pytest.mark.theorem("lem-09-replace", "thm-drs-3-2")
@pytest.mark.theorem("prop-09-algebra")
@quick
@given(curves(), curves(), curves())
def test_tensor_products_commute_and_associate(f, g, h):
    assert distance(f @ g, g @ f) <= 1e-12
    assert distance((f @ g) @ h, f @ (g @ h)) <= 1e-12
    identity = TradeOff([1.0], [1.0])
    assert distance(f @ identity, f) <= 1e-14
    assert np.all((f @ g)(ALPHA) <= np.minimum(f(ALPHA), g(ALPHA)) + 1e-12)
    assert distance((f @ g).inverse(), f.inverse() @ g.inverse()) <= 1e-12


@pytest.mark.theorem("cor-drs-3-3")
@settings(deadline=None, derandomize=True, max_examples=8)
@given(st.lists(st.floats(0.05, 1.5), min_size=2, max_size=3))
def test_gaussian_products_are_corollary_3_3(mus):
    truth = gaussian_tradeoff(math.hypot(*mus), ALPHA)
    for side, sign in (("pessimistic", 1), ("optimistic", -1)):
        f = TradeOff.gaussian(mus[0], side, 400)
        for mu in mus[1:]:
            f = (f @ TradeOff.gaussian(mu, side, 400)).coarsen(400, side)
        assert np.all(sign * (f(ALPHA) - truth) <= 1e-13)
        assert np.max(np.abs(f(ALPHA) - truth)) < 1e-3


@pytest.mark.theorem("prop-09-binomial")
@pytest.mark.parametrize("epsilon, steps, delta", [(1.0, 3, 0.0), (0.3, 20, 0.01), (0.1, 100, 0.0)])
def test_randomised_response_against_squaring_and_binomials(epsilon, steps, delta):
    f = TradeOff.randomised_response(epsilon, steps, delta)
    assert distance(f, TradeOff.epsilon_delta(epsilon, delta).power(steps)) < 1e-12
    # Kairouz, Oh and Viswanath 2015, Theorem 3.3, written as a sum over lies
    for i in range(steps // 2 + 1):
        e = (steps - 2 * i) * epsilon
        total = sum(
            math.comb(steps, j)
            * (math.exp((steps - j) * epsilon) - math.exp((steps - 2 * i + j) * epsilon))
            for j in range(i)
        ) / (1 + math.exp(epsilon)) ** steps
        wanted = 1 - (1 - delta) ** steps * (1 - total)
        assert math.isclose(float(f.delta(e)), wanted, abs_tol=1e-12)


@pytest.mark.theorem("thm-drs-4-2")
@quick
@given(curves(), rates)
def test_properties_of_subsampling(f, rate):
    """Convex and symmetric by construction of the theorem; p = 0 gives Id; between f's and Id."""
    g = f.subsample(rate)
    assert g.is_symmetric(1e-12)
    assert np.all(np.diff(g.loss) < 0)  # convex: slopes rise
    mixed = f.mixed(rate)
    np.testing.assert_allclose(mixed(ALPHA), rate * f(ALPHA) + (1 - rate) * (1 - ALPHA), atol=1e-13)
    lower = np.minimum(f(ALPHA), f.inverse()(ALPHA))
    assert np.all(g(ALPHA) <= np.minimum(mixed(ALPHA), mixed.inverse()(ALPHA)) + 1e-12)
    hull = TradeOff.from_points(ALPHA, lower)  # f and f⁻¹, symmetrised: p = 1
    assert np.all(f.subsample(1.0)(ALPHA) <= hull(ALPHA) + 1e-12)
    assert np.all(g(ALPHA) >= f.subsample(1.0)(ALPHA) - 1e-12)
    assert np.all(g(ALPHA) <= 1 - ALPHA + 1e-12)
    assert distance(f.subsample(0.0), TradeOff([1.0], [1.0])) <= 1e-14


@pytest.mark.theorem("cor-10-amplification", "lem-10-orders")
@pytest.mark.theorem("thm-10-shape")
@quick
@given(curves(), rates)
def test_subsampling_symmetric_functions(f, rate):
    f = f.subsample(1.0)  # symmetric
    g = f.subsample(rate)
    assert distance(f.subsample(1.0), f) <= 1e-12  # p = 1 changes nothing
    mixed = f.mixed(rate)  # the hull of all vertices of f_p and f_p⁻¹: no use of symmetry
    both = np.append(mixed.alpha, mixed.beta), np.append(mixed.beta, mixed.alpha)
    hull = TradeOff.from_points(*both)
    assert distance(g, hull) <= 1e-12
    assert np.all(g(ALPHA) >= f(ALPHA) - 1e-12)
    for epsilon in (0.0, 0.4, 2.0):  # amplification by sampling is tight for each ε alone
        amplified = math.log1p(rate * math.expm1(epsilon))
        wanted = rate * float(f.delta(epsilon))
        assert math.isclose(float(g.delta(amplified)), wanted, abs_tol=1e-12)


@quick
@given(curves(), rates, rates)
def test_a_subset_of_a_subset_is_a_subset(f, a, b):
    f = f.subsample(1.0)
    assert distance(f.subsample(a).subsample(b), f.subsample(a * b)) <= 1e-12


@pytest.mark.theorem("cor-10-closed")
@pytest.mark.parametrize("rate", [0.0, 1e-6, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("mu", [0.05, 0.7, 3.0])
def test_subsampled_gaussian_three_ways(rate, mu):
    below, above = (TradeOff.gaussian(mu, side, 1500).subsample(rate) for side in SIDES)
    closed = subsampled_gaussian(rate, mu, ALPHA)
    assert np.all(below(ALPHA) <= closed + 1e-13) and np.all(closed <= above(ALPHA) + 1e-13)
    assert distance(below, above) < 1e-4 * max(rate, 1e-9)
    if rate:  # the one-step law's exact profile, by duality
        law = SubsampledLaw(rate, 1 / mu)
        for epsilon in (0.0, 0.3, 1.0):
            lines = 1 - float(law.delta(epsilon)) - math.exp(epsilon) * ALPHA
            assert np.all(lines <= closed + 1e-13)
    middle = np.array([norm.cdf(-mu / 2), rate * norm.cdf(-mu / 2) + (1 - rate) * norm.cdf(mu / 2)])
    ends = subsampled_gaussian(rate, mu, middle)
    np.testing.assert_allclose(ends, middle[::-1], atol=1e-14)  # the segment of slope -1


def test_subsampled_gaussian_is_its_own_inverse():
    alpha = np.concatenate([np.geomspace(1e-12, 0.1, 50), np.linspace(0.1, 0.9, 50)])
    for rate, mu in ((0.01, 1.0), (0.5, 2.0), (0.9, 0.1)):
        once = subsampled_gaussian(rate, mu, alpha)
        np.testing.assert_allclose(subsampled_gaussian(rate, mu, once), alpha, atol=1e-14)


@pytest.mark.theorem("cor-10-closed")
@pytest.mark.theorem("cor-10-amplification")
@pytest.mark.parametrize("rate", [0.0, 0.004, 0.5, 1.0])
@pytest.mark.parametrize("epsilon, delta", [(0.0, 0.0), (1.0, 0.0), (0.5, 0.2), (4.0, 1e-3)])
def test_subsampled_epsilon_delta_closed_form(rate, epsilon, delta):
    hull = TradeOff.epsilon_delta(epsilon, delta).subsample(rate)
    closed = subsampled_epsilon_delta(rate, epsilon, delta, ALPHA)
    np.testing.assert_allclose(hull(ALPHA), closed, atol=1e-14)


def test_functionals_against_quadrature_and_closed_forms():
    mu = 0.8
    found = TradeOff.gaussian(mu, "optimistic", 20001).functionals()
    loss = lambda t: mu * t - mu * mu / 2  # noqa: E731 (log q/p, t ~ N(0,1) under P)
    mean = lambda g: quad(lambda t: g(loss(t)) * norm.pdf(t), -12, 12, points=[0, mu / 2])[0]  # noqa: E731
    wanted = [-mean(lambda x: x), mean(lambda x: x * x), mean(lambda x: abs(x) ** 3),
              mean(lambda x: abs(x + mu * mu / 2) ** 3)]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert math.isclose(found.kl, mu * mu / 2, rel_tol=1e-6)
    assert math.isclose(found.variance, mu * mu, rel_tol=1e-6)
    e = 1.3  # pure DP: log|f'| = ±ε, with weight 1/(1+e^ε) on the steep side
    pure = TradeOff.epsilon_delta(e).functionals()
    steep = 1 / (1 + math.exp(e))
    kl = e * (1 - 2 * steep)
    wanted = [kl, e**2, e**3, steep * (e + kl) ** 3 + (1 - steep) * (e - kl) ** 3]
    np.testing.assert_allclose(pure, wanted, rtol=1e-12)
    assert TradeOff.epsilon_delta(1.0, 0.1).functionals().kl == math.inf
    law = SubsampledLaw(0.3, 1.0)  # C_p(G_mu), by quadrature over its law
    wanted = functionals(law)
    found = TradeOff.gaussian(1.0, "optimistic", 4001).subsample(0.3).functionals()
    for name in found._fields:
        assert math.isclose(getattr(found, name), getattr(wanted, name), rel_tol=1e-5)


@quick
@given(curves(), curves(), st.sampled_from(SIDES), st.integers(10, 30))
def test_coarsening_keeps_its_side(f, g, side, points):
    fine = f @ g @ f
    coarse = fine.coarsen(points, side)
    gap = coarse(ALPHA) - fine(ALPHA)
    assert np.all(gap <= 1e-12) if side == "pessimistic" else np.all(gap >= -1e-12)
    assert coarse.p.size <= points + 4
    for epsilon in (0.0, 1.0):
        moved = float(coarse.delta(epsilon) - fine.delta(epsilon))
        assert moved >= -1e-12 if side == "pessimistic" else moved <= 1e-12


@pytest.mark.parametrize("call, name", [
    (lambda: TradeOff([0.5, 0.6], [0.5, 0.5]), "sum of p"),
    (lambda: TradeOff([0.5, 0.5], [1.0]), "p and q"),
    (lambda: TradeOff([1.5, -0.5], [0.5, 0.5]), "p"),
    (lambda: TradeOff([math.nan, 1.0], [0.5, 0.5]), "p"),
    (lambda: TradeOff.gaussian(math.nan), "mu"),
    (lambda: TradeOff.gaussian(101.0), "mu"),
    (lambda: TradeOff.randomised_response(1.0, 3, 1.0), "delta"),
    (lambda: TradeOff.gaussian(1.0, "left"), "side"),
    (lambda: TradeOff.gaussian(1.0).subsample(1.5), "rate"),
    (lambda: TradeOff.gaussian(1.0)(1.5), "alpha"),
    (lambda: TradeOff.gaussian(1.0).power(2.5), "steps"),
    (lambda: TradeOff.gaussian(1.0, points=9000) @ TradeOff.gaussian(1.0, points=9000), "outcomes"),
    (lambda: subsampled_gaussian(-0.1, 1.0, 0.5), "rate"),
    (lambda: subsampled_epsilon_delta(0.5, -1.0, 0.0, 0.5), "epsilon"),
    (lambda: TradeOff.epsilon_delta(1.0, 0.1).epsilon(0.0), "delta"),
])
def test_wrong_arguments_are_named(call, name):
    with pytest.raises(ValueError) as told:
        call()
    assert str(told.value).startswith(name)


def test_products_keep_null_and_alternative_apart():
    """Two looks at an outcome of masses 0.1 and 0.5: errors 0.01, 0.75 if both must show it."""
    f, identity = TradeOff([0.9, 0.1], [0.5, 0.5]), TradeOff([1.0], [1.0])
    np.testing.assert_allclose((f @ f)([0.01, 0.19]), [0.75, 0.25], atol=1e-15)
    np.testing.assert_allclose((f @ identity)([0.1]), [0.5], atol=1e-15)


def test_functionals_leave_out_what_p_never_shows():
    """f(0) = 0.8 and then one line of slope -0.8: log|f'| = log 0.8 on all of [0, 1]."""
    found = TradeOff([0.0, 0.5, 0.5], [0.2, 0.4, 0.4]).functionals()
    size = -math.log(0.8)
    np.testing.assert_allclose(found, [size, size**2, size**3, 0.0], atol=1e-15)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("points", [10, 11, 50])
def test_coarse_functions_have_the_outcomes_asked(side, points):
    """With outcomes that give P and Q away; what's small enough isn't coarsened again."""
    fine = TradeOff.gaussian(1.0, side, 300) @ TradeOff.epsilon_delta(0.0, 0.1)
    coarse = fine.coarsen(points, side)
    assert coarse.p.size <= points and coarse.coarsen(points, side) is coarse


@pytest.mark.parametrize("points", [10, 20])
def test_coarsening_keeps_its_side_where_many_ratios_are_nearly_the_least(points):
    q = 1 + np.linspace(0, 3, 40) ** 4
    fine = TradeOff(np.full(40, 1 / 40), q / q.sum())
    for side, sign in (("pessimistic", 1), ("optimistic", -1)):
        coarse = fine.coarsen(points, side)
        alpha = np.union1d(fine.alpha, coarse.alpha)
        assert np.all(sign * (coarse(alpha) - fine(alpha)) <= 1e-14)


@pytest.mark.parametrize("delta", [0.3, 0.1, 0.05, 1e-3])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5, 5.0])
def test_least_epsilon_where_delta_stays_level_beyond(epsilon, delta):
    """f_{ε,δ} has δ(ε') = δ from ε on: a sum that's rounded up there must not count as more."""
    found = TradeOff.epsilon_delta(epsilon, delta).epsilon(delta)
    assert found == pytest.approx(epsilon, rel=1e-12)


def test_a_small_delta_keeps_its_digits():
    for delta in (1e-9, 1e-13):
        found = TradeOff.epsilon_delta(1.0, delta).delta(2.0)
        assert float(found) == pytest.approx(delta, rel=1e-14)
    answers = TradeOff.randomised_response(0.1, 1000, 1e-12)
    wanted = -math.expm1(1000 * math.log1p(-1e-12))
    assert float(answers.delta(200.0)) == pytest.approx(wanted, rel=1e-12)
