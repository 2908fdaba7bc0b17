"""Guarantees: closed forms in 80 digits and by other programs, duality, what a bracket answers."""

import math

import mpmath
import numpy as np
import pytest
from golden import records, value
from numpy.testing import assert_allclose
from points import gaussian_delta_mp, points
from scipy.optimize import brentq
from scipy.stats import norm

from dpteach.guarantees import (
    Bracket,
    GaussianGuarantee,
    Guarantee,
    NothingProved,
    NothingReleased,
    OneStep,
    delta_from_tradeoff,
    epsilon_from_delta,
    f_epsilon_delta,
    gaussian_mu,
    gaussian_tradeoff,
    rounded,
    shown,
    tradeoff_from_delta,
)
from dpteach.laws import GaussianLaw, PoissonLaw, SubsampledLaw, gaussian_delta
from dpteach.limits import poisson_clt_mu

ALPHA = np.concatenate([[0, 1], np.logspace(-12, -1, 12), np.linspace(0.15, 0.99, 15)])


def one_step(rate, sigma):
    return OneStep(laws=(PoissonLaw(rate, sigma, "remove"), PoissonLaw(rate, sigma, "add")))


# --- mu-GDP, Corollary 2.13


def test_epsilon_and_delta_of_mu_agree_with_two_other_programs():
    for record in records("eps_from_mu"):
        mu, delta = record["params"]["mu"], record["params"]["delta"]
        assert_allclose(GaussianGuarantee(mu=mu).epsilon(delta), record["value"], rtol=1e-12)
        other = value("get_epsilon_gaussian", sigma=1 / mu, delta=delta)
        assert_allclose(GaussianGuarantee(mu=mu).epsilon(delta), other, rtol=1e-12)
    for record in records("delta_eps_mu"):
        mu, epsilon = record["params"]["mu"], record["params"]["eps"]
        assert_allclose(GaussianGuarantee(mu=mu).delta(epsilon), record["value"], rtol=1e-12)


def test_epsilon_of_mu_anywhere():
    """δ at ε(1 ± 1e-8) lies on both sides of the δ asked for, in 80 digits."""
    with mpmath.workdps(80):
        for mu, delta in points(60, "mu", "delta"):
            epsilon = GaussianGuarantee(mu=mu).epsilon(delta)
            assert gaussian_delta_mp(mu, epsilon * (1 + 1e-8)) <= delta
            assert epsilon == 0 or gaussian_delta_mp(mu, epsilon * (1 - 1e-8)) > delta


@pytest.mark.theorem("thm-01-calibration")
def test_gaussian_mu_anywhere():
    """μ(1 ± 1e-8), in 80 digits."""
    with mpmath.workdps(80):
        for epsilon, delta in [*points(60, "epsilon", "delta"), (0.0, 1e-30), (0.0, 1 - 1e-9)]:
            if gaussian_delta_mp(1e-6, epsilon) > delta:
                with pytest.raises(ValueError, match="^delta = .* mu would be below 1e-6"):
                    gaussian_mu(epsilon, delta)
                continue
            mu = gaussian_mu(epsilon, delta)
            assert gaussian_delta_mp(mu * (1 - 1e-8), epsilon) <= delta
            assert gaussian_delta_mp(mu * (1 + 1e-8), epsilon) >= delta


def test_trade_off_of_the_gaussian_anywhere():
    """Φ(Φ⁻¹(1-α) - μ), by the complementary error function's inverse in 40 digits; 1e-14."""
    with mpmath.workdps(40):
        for mu, alpha in points(60, "mu", "alpha"):
            x = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(alpha))
            assert abs(gaussian_tradeoff(mu, alpha) - mpmath.ncdf(x - mu)) < 1e-14
    assert_allclose(gaussian_tradeoff(0.0, ALPHA), 1 - ALPHA, atol=1e-15)
    assert_allclose(gaussian_tradeoff(2.0, [0, 1]), [1, 0])
    assert_allclose(GaussianGuarantee(mu=1.3).f(ALPHA), gaussian_tradeoff(1.3, ALPHA))


def test_one_gaussian_two_relations():
    """Noise of std C: add-remove 4.37718, replace-one (twice the sensitivity) 9.99726."""
    assert round(one_step(1.0, 1.0).epsilon(1e-5), 5) == 4.37718
    assert round(OneStep(laws=(SubsampledLaw(1.0, 0.5),)).epsilon(1e-5), 5) == 9.99726


def test_the_limit_is_far_from_one_step():
    """Rate 0.01, σ = 1, T = 1: 0.037 in the limit, 0.19945 in truth; the kind says so."""
    limit = GaussianGuarantee(mu=poisson_clt_mu(0.01, 1.0, 1), kind="asymptotic")
    assert round(limit.epsilon(1e-5), 3) == 0.037 and limit.kind == "asymptotic"
    assert round(one_step(0.01, 1.0).epsilon(1e-5), 5) == 0.19945
    assert one_step(0.01, 1.0).kind == "exact"


# --- duality, Proposition 2.12


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
def test_duality_in_both_directions(mu):
    """f is a plain formula of scipy's here, δ the code's: neither comes from the other."""
    f = lambda a: norm.cdf(norm.ppf(1 - a) - mu)  # noqa: E731
    for epsilon in (-1.0, 0.0, 0.3, 1.0, 4.0):
        dual = delta_from_tradeoff(f, epsilon)
        assert_allclose(gaussian_delta(mu, epsilon), dual, rtol=1e-5, atol=1e-9)
        assert dual <= gaussian_delta(mu, epsilon) + 1e-12
    grid = np.concatenate([[0], np.geomspace(1e-5, 60, 4000)])
    found = tradeoff_from_delta(lambda e: gaussian_delta(mu, e), ALPHA, grid)
    assert_allclose(found, f(ALPHA), atol=1e-5)
    assert np.all(found <= f(ALPHA) + 1e-12), "a finite grid of ε may only lose"


def test_the_straight_middle_of_the_subsampled_law():
    """C_p(G_mu): f_p on its steep part, slope -1 in the middle."""
    law, p, mu = SubsampledLaw(0.3, 1 / 1.5), 0.3, 1.5
    grid = np.concatenate([[0], np.geomspace(1e-5, 40, 4000)])
    f = tradeoff_from_delta(law.delta, ALPHA, grid)
    f_p = p * norm.cdf(norm.ppf(1 - ALPHA) - mu) + (1 - p) * (1 - ALPHA)
    assert_allclose(f[ALPHA < 0.1], f_p[ALPHA < 0.1], atol=1e-6)
    middle = OneStep(laws=(SubsampledLaw(0.1, 1.0),)).f(0.5)
    assert_allclose(middle, 0.5 - 0.1 * (2 * norm.cdf(0.5) - 1), rtol=1e-12)


def test_no_mirror_image_where_some_epsilon_is_negative():
    """An asymmetric f: with a grid that holds some ε < 0 the result stays below f."""
    q, sigma = 0.3, 0.5
    law = PoissonLaw(q, sigma, "add")
    # the best test of N(0, σ²) against the mixture rejects where x <= t
    level = lambda t: (1 - q) * norm.cdf(t / sigma) + q * norm.cdf((t - 1) / sigma)  # noqa: E731
    cut = [brentq(lambda t, a=a: level(t) - a, -9, 9, xtol=1e-14) for a in ALPHA[2:]]
    exact = np.append([1.0, 0.0], norm.sf(np.array(cut) / sigma))
    for lowest in (-0.9, -0.3):
        found = tradeoff_from_delta(law.delta, ALPHA, np.linspace(lowest, 20, 4001))
        assert np.all(found <= exact + 1e-12) and np.any(found > exact - 1e-3)
    mirrored = tradeoff_from_delta(law.delta, ALPHA, np.linspace(0, 20, 4001))
    assert np.any(mirrored > exact + 1e-3)  # the mirror image isn't valid for this f


@pytest.mark.parametrize("epsilon, rtol", [(2.9, 1e-6), (7.6, 2e-3)])
def test_delta_from_f_where_the_best_test_rejects_rarely(epsilon, rtol):
    """mu = 1: the maximum lies at α = Φ(-ε - 1/2), between 1e-4 and 1e-3, and near 3e-16."""
    exact = norm.cdf(0.5 - epsilon) - math.exp(epsilon) * norm.cdf(-epsilon - 0.5)
    found = delta_from_tradeoff(lambda a: norm.cdf(norm.isf(a) - 1), epsilon)
    assert_allclose(found, exact, rtol=rtol)
    jump = delta_from_tradeoff(lambda a: f_epsilon_delta(1.0, 0.1, a), 50.0)
    assert_allclose(jump, 0.1, rtol=1e-12)  # f(0) = 1 - δ: at large ε only α = 0 shows it


def test_f_epsilon_delta_anywhere():
    """Eq. 4 in 40 digits, to 1e-15; both lines meet on the diagonal."""
    with mpmath.workdps(40):
        for epsilon, delta, alpha in points(80, "epsilon", "delta", "alpha"):
            lines = (
                1 - mpmath.mpf(delta) - mpmath.exp(epsilon) * mpmath.mpf(alpha),
                mpmath.exp(-epsilon) * (1 - mpmath.mpf(delta) - mpmath.mpf(alpha)),
            )
            assert abs(f_epsilon_delta(epsilon, delta, alpha) - max(0, *lines)) < 1e-15
    corner = 0.9 / (1 + math.e)
    assert_allclose(f_epsilon_delta(1.0, 0.1, corner), corner, rtol=1e-14)
    assert_allclose(f_epsilon_delta(2000.0, 0.1, [0.0, 1e-300]), [0.9, 0.0])


# --- ε from δ


def test_epsilon_is_never_on_the_unsafe_side():
    for mu, delta in points(100, "mu", "delta", seed=1):
        epsilon = GaussianGuarantee(mu=mu).epsilon(delta)
        assert gaussian_delta(mu, epsilon) <= delta
    for jump in np.linspace(0.05, 0.95, 33):  # the search may end on the wrong side of it
        found = epsilon_from_delta(lambda e, jump=jump: 0.6 if e < jump else 0.4, 0.5)
        assert 0 <= found - jump < 1e-13


@pytest.mark.parametrize("delta, slope", [(1e-5, 1.0), (1e-12, 1.0), (1e-30, 1e-8)])
def test_epsilon_where_delta_0_is_one_rounding_above_delta(delta, slope):
    """Their logarithms are the same number, and yet ε = 0 isn't on the safe side."""
    profile = lambda e: math.nextafter(delta, 1) * math.exp(-slope * e)  # noqa: E731
    found = epsilon_from_delta(profile, delta)
    assert 0 < found < 1e-14 / slope and profile(found) <= delta


def test_epsilon_at_the_ends():
    assert GaussianGuarantee(mu=0.5).epsilon(0.5) == 0 == one_step(0.01, 1.0).epsilon(0.5)
    assert epsilon_from_delta(lambda e: 0.2, 0.1) == math.inf
    assert 6e4 < epsilon_from_delta(lambda e: 0.5 if e < 65000 else 0.0, 0.1) < 65001


# --- the base class


class _Exponential(Guarantee):
    """δ(ε) = e^{-ε}/2, for the base class's own methods."""

    name, kind, assumptions = "exponential", "exact", "none"

    def profile(self, epsilon):
        return math.exp(-epsilon) / 2


def test_base_class_answers_all_three_questions():
    made, e = _Exponential(), np.linspace(0, 30, 200_001)
    assert_allclose(made.epsilon(1e-5), math.log(0.5e5), rtol=1e-12)
    steep = [np.max(1 - np.exp(-e) / 2 - np.exp(e) * a) for a in ALPHA]
    flat = [np.max(np.exp(-e) * (1 - np.exp(-e) / 2 - a)) for a in ALPHA]
    expected, f = np.maximum(0, np.maximum(steep, flat)), made.f(ALPHA)
    assert_allclose(f, expected, atol=2e-4)
    assert np.all(f <= expected + 1e-9)
    assert made.details(1e-5) == {} and made.reason == ""
    wanted = norm.cdf(norm.isf(ALPHA) - 1)
    assert_allclose(OneStep(laws=(GaussianLaw(1.0),)).f(ALPHA), wanted, atol=2e-4)


class _Between(Bracket):
    name, assumptions = "between", "none"
    lower, upper = GaussianGuarantee(mu=1.0), GaussianGuarantee(mu=1.1)


def test_a_bracket_answers_from_its_safe_end():
    made = _Between()
    assert made.kind == "bracket" and made.epsilon(1e-5) == made.upper.epsilon(1e-5)
    assert made.delta(1.0) == made.upper.delta(1.0) > made.lower.delta(1.0)
    assert np.all(made.f(ALPHA) == made.upper.f(ALPHA))


def test_nothing_proved_and_nothing_released():
    nothing = NothingProved(name="clt", kind="asymptotic", reason="mu is too large")
    assert nothing.epsilon(0.9) == math.inf and nothing.delta(1e5) == 1.0
    assert nothing.reason == "mu is too large" and np.all(nothing.f(ALPHA) == 0)
    none = NothingReleased()
    assert none.epsilon(1e-30) == 0 == none.delta(0) and np.all(none.f(ALPHA) == 1 - ALPHA)
    assert none.lower is none and none.upper is none


def test_one_step_is_the_worse_direction():
    for rate, sigma in ((0.01, 1.0), (0.3, 0.8), (0.9, 2.0)):
        for epsilon in (0.0, 0.05, 0.4, 1.5):
            both = [PoissonLaw(rate, sigma, d).delta(epsilon) for d in ("remove", "add")]
            assert one_step(rate, sigma).delta(epsilon) == max(both)


# --- numbers that are quoted


@pytest.mark.parametrize("epsilon", [0.0, 1e-7, 0.0999999, 1.0671, 9.996, 87.2413, 12345.6])
@pytest.mark.parametrize("digits", [1, 3, 6])
def test_rounding_keeps_a_quoted_number_true(epsilon, digits):
    width = 10.0 ** (math.floor(math.log10(epsilon)) + 1 - digits) * 1.0001 if epsilon else 0
    for kind in ("exact", "bracket", "upper bound"):
        assert epsilon <= float(shown(kind, epsilon, digits)) <= epsilon + width
    assert epsilon - width <= float(shown("lower bound", epsilon, digits)) <= epsilon
    assert abs(float(shown("asymptotic", epsilon, digits)) - epsilon) <= width / 2


def test_rounding_by_hand():
    assert shown("upper bound", 2.033065, 4) == "2.034"
    assert shown("lower bound", 2.033065, 4) == "2.033"
    assert shown("exact", 2.0) == "2" and rounded(math.inf, 3, "up") == math.inf
    for bad in ({"side": "safe"}, {"digits": 0}):
        with pytest.raises(ValueError, match=f"^{next(iter(bad))} = "):
            rounded(**{"value": 1.0, "digits": 3, "side": "up", **bad})


# --- bad input


@pytest.mark.parametrize("made", [GaussianGuarantee(mu=1.0), one_step(0.1, 1.0), NothingReleased()],
                         ids=lambda g: g.name)  # fmt: skip
def test_bad_questions_are_refused_by_name(made):
    wrong = [math.nan, math.inf, "1", None, True, []]
    for ask, name, bad in (
        (made.epsilon, "delta", [*wrong, 0, 1, -0.1, 1e-31]),
        (made.delta, "epsilon", [*wrong, -0.1, 1.1e5, [1.0]]),
        (made.f, "alpha", [*wrong, -0.1, [0.5, 1.1]]),
    ):
        for value_ in bad:
            with pytest.raises(ValueError, match=f"^{name} = "):
                ask(value_)


@pytest.mark.parametrize("bad", [math.nan, 0, -1.0, 1e-7, 101, "1", None, True], ids=repr)
def test_bad_guarantees_are_refused_when_made(bad):
    with pytest.raises(ValueError, match="^mu = "):
        GaussianGuarantee(mu=bad)
    with pytest.raises(ValueError, match="^laws = .*give for example NoisySGD"):
        OneStep(laws=bad)
