"""Guarantees: closed forms against other programs and 50 digits, duality in both directions."""

import math

import mpmath
import numpy as np
import pytest
from golden import records, value
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from scipy.stats import norm

from dpteach.guarantees import (
    GaussianGuarantee,
    Guarantee,
    OneStep,
    delta_from_tradeoff,
    epsilon_from_delta,
    f_epsilon_delta,
    gaussian_mu,
    gaussian_tradeoff,
    tradeoff_from_delta,
)
from dpteach.laws import GaussianLaw, PoissonLaw, SubsampledLaw, gaussian_delta
from dpteach.limits import poisson_clt_mu

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)
ALPHA = np.concatenate([[0, 1], np.logspace(-12, -1, 12), np.linspace(0.15, 0.99, 15)])


def one_step(q, sigma):
    return OneStep(laws=(PoissonLaw(q, sigma, "remove"), PoissonLaw(q, sigma, "add")))


# --- mu-GDP, Corollary 2.13


def test_epsilon_of_mu_agrees_with_two_other_programs():
    for record in records("eps_from_mu"):
        mu, delta = record["params"]["mu"], record["params"]["delta"]
        assert_allclose(GaussianGuarantee(mu=mu).epsilon(delta), record["value"], rtol=1e-12)
        other = value("get_epsilon_gaussian", sigma=1 / mu, delta=delta)
        assert_allclose(GaussianGuarantee(mu=mu).epsilon(delta), other, rtol=1e-12)


def test_delta_of_mu_agrees_with_another_program():
    found = records("delta_eps_mu")
    assert len(found) == 3
    for record in found:
        mu, epsilon = record["params"]["mu"], record["params"]["eps"]
        assert_allclose(GaussianGuarantee(mu=mu).delta(epsilon), record["value"], rtol=1e-12)


@pytest.mark.parametrize("mu", [0.01, 0.2847, 1.0, 7.0])
def test_epsilon_is_the_root_in_fifty_digits(mu):
    with mpmath.workdps(50):
        m = mpmath.mpf(mu)
        for delta in (1e-12, 1e-5, 1e-3):
            e = mpmath.mpf(GaussianGuarantee(mu=mu).epsilon(delta))
            exact = mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)
            assert abs(exact / delta - 1) < 1e-9, (mu, delta)


def test_one_gaussian_two_relations():
    """Noise of std C: add-remove 4.37718, replace-one (twice the sensitivity) 9.99726."""
    assert round(GaussianGuarantee(mu=1.0).epsilon(1e-5), 5) == 4.37718
    assert round(GaussianGuarantee(mu=2.0).epsilon(1e-5), 5) == 9.99726
    assert round(one_step(1.0, 1.0).epsilon(1e-5), 5) == 4.37718
    assert round(OneStep(laws=(SubsampledLaw(1.0, 0.5),)).epsilon(1e-5), 5) == 9.99726


def test_the_limit_is_far_from_one_step():
    """q = 0.01, σ = 1, T = 1: 0.037 in the limit, 0.19945 in truth; the kind says so."""
    limit = GaussianGuarantee(mu=poisson_clt_mu(0.01, 1.0, 1), kind="asymptotic")
    assert round(limit.epsilon(1e-5), 3) == 0.037 and limit.kind == "asymptotic"
    assert round(one_step(0.01, 1.0).epsilon(1e-5), 5) == 0.19945
    assert one_step(0.01, 1.0).kind == "exact"


@SETTINGS
@given(st.floats(1e-3, 20), st.floats(0, 30))
def test_gaussian_mu_inverts_delta(mu, epsilon):
    delta = float(gaussian_delta(mu, epsilon))
    if 1e-280 < delta < 1 - 1e-9:
        assert_allclose(gaussian_mu(epsilon, delta), mu, rtol=1e-6)


@pytest.mark.parametrize(
    "epsilon, delta",
    [(0, 1e-300), (0, 1e-12), (1e-9, 1e-5), (50, 1e-5), (1, 0.999), (0, 1 - 1e-12)],
)
def test_gaussian_mu_at_the_edges(epsilon, delta):
    assert_allclose(gaussian_delta(gaussian_mu(epsilon, delta), epsilon), delta, rtol=1e-8)


# --- duality, Proposition 2.12


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
def test_duality_from_f_to_delta(mu):
    """f is a plain formula of scipy's here, δ the code's: neither comes from the other."""
    for epsilon in (-1.0, 0.0, 0.3, 1.0, 4.0):
        dual = delta_from_tradeoff(lambda a: norm.cdf(norm.ppf(1 - a) - mu), epsilon)
        assert_allclose(gaussian_delta(mu, epsilon), dual, rtol=1e-5, atol=1e-9)
        assert dual <= gaussian_delta(mu, epsilon) + 1e-12


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
def test_duality_from_delta_to_f(mu):
    epsilons = np.concatenate([[0], np.geomspace(1e-5, 60, 4000)])
    f = tradeoff_from_delta(lambda e: gaussian_delta(mu, e), ALPHA, epsilons)
    exact = norm.cdf(norm.ppf(1 - ALPHA) - mu)
    assert_allclose(f, exact, atol=1e-5)
    assert np.all(f <= exact + 1e-12), "a finite grid of ε may only lose"


def test_a_round_trip_through_the_subsampled_law():
    """f → δ → f for C_p(G_mu), whose graph has a straight middle."""
    law, p, mu = SubsampledLaw(0.3, 1 / 1.5), 0.3, 1.5
    f = tradeoff_from_delta(law.delta, ALPHA, np.concatenate([[0], np.geomspace(1e-5, 40, 4000)]))
    for epsilon in (0.0, 0.2, 0.8):
        at = np.linspace(0, 1, 4001)
        again = tradeoff_from_delta(
            law.delta, at, np.concatenate([[0], np.geomspace(1e-5, 40, 4000)])
        )
        assert_allclose(np.max(1 - math.exp(epsilon) * at - again), law.delta(epsilon), atol=2e-4)
    f_p = p * norm.cdf(norm.ppf(1 - ALPHA) - mu) + (1 - p) * (1 - ALPHA)
    steep = ALPHA < 0.1  # left of the straight part C_p is f_p itself
    assert_allclose(f[steep], f_p[steep], atol=1e-6)


# --- one (ε, δ) pair


def test_f_epsilon_delta_and_its_corner():
    """Both lines meet on the diagonal at α = (1-δ)/(1+e^ε); f(0) = 1-δ; f = 0 from 1-δ on."""
    for epsilon in (0.0, 0.1, 1.0, 8.0):
        for delta in (0.0, 1e-5, 0.1):
            corner = (1 - delta) / (1 + math.exp(epsilon))
            assert_allclose(f_epsilon_delta(epsilon, delta, corner), corner, rtol=1e-11)
            assert f_epsilon_delta(epsilon, delta, 0.0) == 1 - delta
            assert_allclose(f_epsilon_delta(epsilon, delta, [1 - delta, 1]), 0, atol=1e-15)
            direct = [
                max(0, 1 - delta - math.exp(epsilon) * a, math.exp(-epsilon) * (1 - delta - a))
                for a in ALPHA
            ]
            assert_allclose(f_epsilon_delta(epsilon, delta, ALPHA), direct, rtol=1e-12, atol=1e-14)


# --- ε from δ


def test_epsilon_is_zero_where_delta_0_is_small():
    assert GaussianGuarantee(mu=0.5).epsilon(0.5) == 0
    assert one_step(0.01, 1.0).epsilon(0.5) == 0


@SETTINGS
@given(st.floats(1e-3, 50), st.floats(1e-250, 0.99))
def test_epsilon_is_never_on_the_unsafe_side(mu, delta):
    epsilon = GaussianGuarantee(mu=mu).epsilon(delta)
    assert epsilon >= 0 and gaussian_delta(mu, epsilon) <= delta
    if epsilon > 1e-6:
        assert gaussian_delta(mu, epsilon * (1 - 1e-6)) > delta


def test_a_profile_that_never_gets_there():
    with pytest.raises(ValueError, match="delta = 0.1 isn't reached"):
        epsilon_from_delta(lambda e: 0.2, 0.1)


# --- the base class and one step


class _Exponential(Guarantee):
    """δ(ε) = e^{-ε}/2, for the base class's own methods."""

    name, kind, convention = "exponential", "exact", "none"

    def delta(self, epsilon):
        return math.exp(-epsilon) / 2


def test_base_class_answers_all_three_questions():
    made = _Exponential()
    assert_allclose(made.epsilon(1e-5), math.log(0.5e5), rtol=1e-12)
    f = made.f(ALPHA)
    expected = [
        max(
            0,
            np.max(1 - np.exp(-E) / 2 - np.exp(E) * a),
            np.max(np.exp(-E) * (1 - np.exp(-E) / 2 - a)),
        )
        for a in ALPHA
    ]
    assert_allclose(f, expected, atol=2e-4)
    assert np.all(f <= np.array(expected) + 1e-9) and made.details(1e-5) == {}


E = np.linspace(0, 30, 200_001)


def test_one_step_is_the_worse_direction():
    for q, sigma in ((0.01, 1.0), (0.3, 0.8), (0.9, 2.0)):
        for epsilon in (0.0, 0.05, 0.4, 1.5):
            both = [PoissonLaw(q, sigma, d).delta(epsilon) for d in ("remove", "add")]
            assert one_step(q, sigma).delta(epsilon) == max(both)


def test_one_step_of_many_epsilons_is_one_by_one():
    made, epsilons = one_step(0.3, 0.8), np.array([[0.0, 0.05, 0.4], [1.5, 2.0, 9.0]])
    wanted = [[float(made.delta(epsilon)) for epsilon in row] for row in epsilons]
    assert_allclose(made.delta(epsilons), wanted, rtol=1e-12)


def test_trade_off_of_the_gaussian():
    assert_allclose(
        gaussian_tradeoff(1.3, ALPHA), norm.cdf(norm.ppf(1 - ALPHA) - 1.3), rtol=1e-9, atol=1e-15
    )
    assert_allclose(gaussian_tradeoff(0.0, ALPHA), 1 - ALPHA, atol=1e-15)
    assert_allclose(GaussianGuarantee(mu=1.3).f(ALPHA), gaussian_tradeoff(1.3, ALPHA))


# --- bad input

GUARANTEES = [
    GaussianGuarantee(mu=1.0),
    OneStep(laws=(GaussianLaw(1.0),)),
]
BAD = [math.nan, math.inf, "1", None, True, []]


@pytest.mark.parametrize("made", GUARANTEES, ids=lambda g: g.name)
def test_bad_questions_are_refused_by_name(made):
    for bad in [*BAD, 0, 1, -0.1, 1.5]:
        with pytest.raises(ValueError, match="^delta = "):
            made.epsilon(bad)
    for bad in BAD:
        with pytest.raises(ValueError, match="^epsilon = "):
            made.delta(bad)
    for bad in [*BAD, -0.1, 1.1]:
        with pytest.raises(ValueError, match="^alpha = "):
            made.f(bad)


@pytest.mark.parametrize("bad", [*BAD, -1.0], ids=repr)
def test_bad_guarantees_are_refused_when_made(bad):
    with pytest.raises(ValueError, match="^mu = "):
        GaussianGuarantee(mu=bad)


numbers = st.one_of(st.floats(), st.integers(), st.none(), st.text(max_size=2), st.booleans())


@SETTINGS
@given(numbers, numbers, numbers)
def test_any_input_gives_a_finite_number_or_a_value_error(a, b, c):
    for function in (
        lambda: f_epsilon_delta(a, b, c),
        lambda: gaussian_tradeoff(a, b),
        lambda: gaussian_mu(a, b),
        lambda: gaussian_delta(a, b),
        lambda: GaussianGuarantee(mu=a).epsilon(b),
        lambda: delta_from_tradeoff(lambda x: 1 - x, a),
    ):
        try:
            result = function()
        except ValueError:
            continue
        assert np.isfinite(result) and result >= 0


# --- found by changing the code in small ways


def test_gaussian_mu_at_large_epsilon():
    """The search's upper end must grow with ε."""
    for epsilon in (1e4, 1e6, 1e10):
        mu = gaussian_mu(epsilon, 1e-5)
        assert_allclose(GaussianGuarantee(mu=mu).delta(epsilon), 1e-5, rtol=1e-4)


def test_delta_at_a_jump_of_f_at_0():
    """f(0) = 1 - δ: at large ε only the point α = 0 shows it."""
    found = delta_from_tradeoff(lambda a: f_epsilon_delta(1.0, 0.1, a), 50.0)
    assert_allclose(found, 0.1, rtol=1e-12)


def test_no_mirror_image_where_some_epsilon_is_negative():
    """An asymmetric f: with a grid that holds some ε < 0 the result stays below f."""
    q, sigma = 0.3, 0.5
    law = PoissonLaw(q, sigma, "add")
    # P = N(0, σ²) against Q = (1-q)N(0, σ²) + qN(1, σ²): the best test rejects Q where x <= t, at level α = Q(x <= t)
    level = lambda t: (1 - q) * norm.cdf(t / sigma) + q * norm.cdf((t - 1) / sigma)  # noqa: E731
    exact = np.array([norm.sf(brentq(lambda t, a=a: level(t) - a, -9, 9, xtol=1e-14) / sigma) if 0 < a < 1 else 1 - a
                      for a in ALPHA])
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


def test_epsilon_of_a_profile_with_a_jump():
    """The search may end on the near side of the jump, wider away from it than one smallest step."""
    for jump in np.linspace(0.05, 0.95, 33):
        found = epsilon_from_delta(lambda e, jump=jump: 0.6 if e < jump else 0.4, 0.5)
        assert 0 <= found - jump < 1e-13


@pytest.mark.parametrize("start", [1e-6, 0.3, 1.0, 3.0, 1000.3])
def test_epsilon_of_a_profile_that_is_level_at_delta(start):
    """δ(ε) is 0.5 from `start` on: a delta that's met, and not undercut, is reached there and no later."""
    found = epsilon_from_delta(lambda e: 0.6 if e < start else 0.5, 0.5)
    assert start <= found <= start * (1 + 1e-13)


@pytest.mark.parametrize("delta, slope", [(1e-5, 1.0), (1e-12, 1.0), (1e-100, 1e-8)])
def test_epsilon_where_delta_0_is_one_rounding_above_delta(delta, slope):
    """Their logarithms are the same number, and yet ε = 0 isn't on the safe side; a slow fall takes no longer."""
    profile = lambda e: math.nextafter(delta, 1) * math.exp(-slope * e)  # noqa: E731
    found = epsilon_from_delta(profile, delta)
    assert 0 < found < 1e-14 / slope and profile(found) <= delta


def test_f_epsilon_delta_at_0_where_e_to_the_epsilon_overflows():
    assert_allclose(f_epsilon_delta(2000.0, 0.1, [0.0, 1e-300]), [0.9, 0.0])


def test_base_class_f_of_one_step():
    """Φ(Φ⁻¹(1-α) - 1) of a Gaussian; on C_p's segment of slope -1 it's 1 - δ(0) - α, δ(0) = p(2Φ(mu/2) - 1)."""
    alpha = np.array([0.0, 0.01, 0.3, 0.9])
    wanted = norm.cdf(norm.isf(alpha) - 1)
    assert_allclose(OneStep(laws=(GaussianLaw(1.0),)).f(alpha), wanted, atol=2e-4)
    middle = OneStep(laws=(SubsampledLaw(0.1, 1.0),)).f(0.5)
    assert_allclose(middle, 0.5 - 0.1 * (2 * norm.cdf(0.5) - 1), rtol=1e-12)
