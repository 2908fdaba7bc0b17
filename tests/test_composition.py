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
from strategies import DELTAS, QUICK, RATES, SIGMAS, STEPS

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
BOTH = [StrongComposition, OptimalComposition]


def both(q, sigma):
    return PoissonLaw(q, sigma, "remove"), PoissonLaw(q, sigma, "add")


def gaussian_profile(mu, epsilon):
    """δ(ε) of one Gaussian, as Balle and Wang print it: independent of dpteach.laws."""
    return norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)


# --- optimal composition


def enumerated_delta(odds, delta_0, steps, e_epsilon):
    """Σ (P - e^ε Q)_+ over all 4^T outputs of the worst (ε0, δ0) mechanism, in fractions."""
    kept = 1 - delta_0
    p = [delta_0, kept * odds / (1 + odds), kept / (1 + odds), Fraction(0)]
    total = Fraction(0)
    for word in itertools.product(range(4), repeat=steps):
        mass_p, mass_q = math.prod(p[i] for i in word), math.prod(p[3 - i] for i in word)
        total += max(Fraction(0), mass_p - e_epsilon * mass_q)
    return total


@pytest.mark.theorem("thm-kov")
@pytest.mark.theorem("lem-06-four")
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("delta_0", [Fraction(0), Fraction(1, 1000), Fraction(1, 5)])
@pytest.mark.parametrize("odds", [Fraction(11, 10), Fraction(2), Fraction(9)])
def test_optimal_delta_is_the_enumeration_of_all_outputs(odds, delta_0, steps):
    for e_epsilon in (Fraction(1), Fraction(5, 4), odds, Fraction(7, 2), odds**steps):
        want = float(enumerated_delta(odds, delta_0, steps, e_epsilon))
        got = optimal_composition_delta(math.log(e_epsilon), math.log(odds), steps, float(delta_0))
        assert float(got) == pytest.approx(want, rel=1e-12, abs=1e-14)


def summed_delta(epsilon, epsilon_0, steps):
    """The two-point losses' sum in 40 digits: Σ P(k)(1 - e^{ε - (2k-T)ε0})_+, from the top."""
    with mpmath.workdps(40):
        e0 = mpmath.mpf(epsilon_0)
        p = 1 / (1 + mpmath.exp(-e0))
        mass, total = p**steps, mpmath.mpf(0)
        for k in range(steps, -1, -1):
            gap = epsilon - (2 * k - steps) * e0
            if gap >= 0:
                break
            total -= mass * mpmath.expm1(gap)
            mass *= mpmath.mpf(k) / (steps - k + 1) * (1 - p) / p
        return float(total)


@pytest.mark.theorem("thm-kov")
@QUICK
@given(st.floats(-6, 1.3), st.integers(1, 400), st.floats(0, 6))
def test_optimal_delta_everywhere(log_epsilon_0, steps, deviations):
    epsilon_0 = 10**log_epsilon_0
    mean = steps * math.tanh(epsilon_0 / 2)
    epsilon = epsilon_0 * (deviations * math.sqrt(steps) + mean)
    got = float(optimal_composition_delta(epsilon, epsilon_0, steps))
    want = summed_delta(epsilon, epsilon_0, steps)
    assert got >= want - 1e-10 and (epsilon > 600 or got <= want + 1e-10)
    if want > 1e-30 and deviations > 1 and epsilon < 600:  # in the tail its digits are kept
        assert got == pytest.approx(want, rel=1e-9 * (1 + 1 / epsilon_0 / math.sqrt(steps)))


@pytest.mark.parametrize("steps, epsilon_0", [(10**9, 1e-5), (10**9, 1e-6), (10**8, 1e-3)])
def test_many_steps_are_the_central_limit(steps, epsilon_0):
    """The loss is normal with mean T ε0 tanh(ε0/2) and variance T ε0²/cosh²(ε0/2), up to 1/√T."""
    mean, mu = steps * epsilon_0 * math.tanh(epsilon_0 / 2), epsilon_0 * math.sqrt(steps)
    for epsilon in (0.5 * mean, mean, mean + 2 * mu):
        got = float(optimal_composition_delta(epsilon, epsilon_0, steps))
        assert got == pytest.approx(gaussian_profile(mu, epsilon), rel=2e-3)


@pytest.mark.theorem("thm-kov")
@pytest.mark.parametrize("epsilon_0, delta_0, steps", [(0.5, 1e-6, 40), (1.5, 0.01, 9)])
def test_optimal_delta_is_theorem_33_as_printed(epsilon_0, delta_0, steps):
    for i in range(steps // 2 + 1):
        terms = (math.comb(steps, m)
                 * (math.exp((steps - m) * epsilon_0) - math.exp((steps - 2 * i + m) * epsilon_0))
                 for m in range(i))  # fmt: skip
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


def test_optimal_composition_at_its_ends():
    for arguments, want in [((0, 0, 10, 0), 0), ((3, 0.3, 10, 0), 0), ((1e5, 900, 1000, 0), 1),
                            ((1, 0.3, 0, 0.5), 0), ((700, 20, 40, 0), 1)]:  # fmt: skip
        got = float(optimal_composition_delta(*map(float, arguments)))
        assert got == pytest.approx(want, abs=1e-6)
    for epsilon_0, steps, delta, delta_0 in [(0.1, 100, 1e-5, 0.0), (0.02, 10**6, 1e-9, 1e-17)]:
        epsilon = optimal_composition_epsilon(epsilon_0, steps, delta, delta_0)
        at = float(optimal_composition_delta(epsilon, epsilon_0, steps, delta_0))
        assert at <= delta and at == pytest.approx(delta, rel=1e-8)
    assert optimal_composition_epsilon(0.3, 1, 0.1, 0.1) == pytest.approx(0.3, rel=1e-12)
    assert optimal_composition_epsilon(0.3, 10, 0.1, 0.1) == math.inf


# --- strong composition


@pytest.mark.theorem("thm-drv")
@QUICK
@given(st.floats(1e-3, 2), st.integers(1, 3000), st.floats(1e-12, 0.5))
def test_strong_composition_is_a_bound_on_the_worst_case(epsilon_0, steps, slack):
    epsilon = float(strong_composition_epsilon(epsilon_0, steps, slack))
    printed = math.sqrt(2 * steps * math.log(1 / slack)) * epsilon_0
    printed += steps * epsilon_0 * (math.exp(epsilon_0) - 1)
    assert epsilon == pytest.approx(printed, rel=1e-11)
    assert float(optimal_composition_delta(min(epsilon, 1e5), epsilon_0, steps)) <= slack


@pytest.mark.parametrize("steps, linear, right", [(10_000, 9.3532, 26.4), (40_000, 24.2445, 82.3)])
def test_the_papers_comparison(steps, linear, right):
    """DRV on the classical Gaussian pair, split of 1e-5 chosen best; invalid here (ε0 > 1)."""
    assert golden.value("linear amplification", T=steps) == linear
    right_pair = lambda e: math.log1p(0.01 * math.expm1(e))  # noqa: E731
    for amplified, wanted in ((lambda e: 0.01 * e, linear), (right_pair, right)):

        def epsilon(share, amplified=amplified):
            delta_0 = share * 1e-5 / (0.01 * steps)
            epsilon_0 = amplified(math.sqrt(2 * math.log(1.25 / delta_0)) / 4)
            return float(strong_composition_epsilon(epsilon_0, steps, (1 - share) * 1e-5))

        best = minimize_scalar(epsilon, bounds=(1e-6, 1 - 1e-6), method="bounded")
        assert best.fun == pytest.approx(wanted, abs=0.05 if wanted == right else 1e-4)


# --- sampling, classical Gaussian


@pytest.mark.theorem("thm-06-amplify")
@pytest.mark.parametrize("q", [1e-3, 0.2, 1.0])
@pytest.mark.parametrize("epsilon_0", [0.1, 1.0, 3.0])
def test_amplification_against_integration_of_the_sampled_gaussian(q, epsilon_0):
    sigma = 1.2
    delta_0 = gaussian_profile(1 / sigma, epsilon_0)
    epsilon, delta = map(float, amplify_by_sampling(q, epsilon_0, delta_0))

    def excess(z):
        base = norm.pdf(z, 0, sigma)
        return max(0.0, (1 - q) * base + q * norm.pdf(z, 1, sigma) - math.exp(epsilon) * base)

    border = 0.5 + sigma**2 * epsilon_0  # where the losses equal ε0: the integrand starts
    found = quad(excess, border, border + 15, epsabs=1e-15, limit=200)[0]
    assert found == pytest.approx(delta, rel=1e-8)
    low = 1 / (1 + math.exp(epsilon_0))  # one sampled randomised response attains ε
    ones = q * (1 - low) + (1 - q) * low
    assert math.log(ones / low) == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.3])
def test_classical_gaussian_is_enough_where_it_is_proved(epsilon, delta):
    sigma = classical_gaussian_sigma(epsilon, delta)
    assert gaussian_profile(1 / sigma, epsilon) <= delta
    assert 1.25 * math.exp(-((sigma * epsilon) ** 2) / 2) == pytest.approx(delta, rel=1e-12)
    at_20 = math.sqrt(2 * math.log(1.25 / 1e-5)) / 20
    assert gaussian_profile(1 / at_20, 20.0) > 1e-5  # where it's refused it fails


# --- Lemma C.1


@pytest.mark.theorem("prop-06-extremal")
@pytest.mark.theorem("lem-abadi-c1")
@QUICK
@given(st.floats(-6, 3), st.floats(-9, 2.4))
def test_moments_of_pure_dp_everywhere(log_lam, log_epsilon):
    """The extremal one is randomised response's, the lemma's and Hoeffding's lie above."""
    lam, epsilon = 10**log_lam, 10**log_epsilon
    with mpmath.workdps(60):
        e = mpmath.exp(mpmath.mpf(epsilon))
        p, q = e / (1 + e), 1 / (1 + e)
        want = float(mpmath.log(p * (p / q) ** mpmath.mpf(lam) + q * (q / p) ** mpmath.mpf(lam)))
    slack = 1e-15 * (1 + (lam + 1) * epsilon)
    assert abs(float(pure_dp_moment(lam, epsilon)) - want) <= 2 * slack
    printed = lam * epsilon * math.expm1(epsilon) + (lam * epsilon * math.exp(epsilon)) ** 2 / 2
    assert float(pure_dp_moment_bound(lam, epsilon)) == pytest.approx(printed, rel=1e-12)
    hoeffding = lam * epsilon * math.expm1(epsilon) + (lam * epsilon) ** 2 / 2
    assert want <= hoeffding * (1 + 1e-12) <= printed * (1 + 1e-11)


# --- guarantees of a run


@pytest.mark.theorem("thm-drv")
@pytest.mark.parametrize("q, sigma, steps", [
    (0.01, 4.0, 10_000), (0.01, 4.0, 40_000), (0.1, 5.0, 300),
])  # fmt: skip
def test_strong_guarantee_is_the_scan_of_the_split(q, sigma, steps):
    """DRV on the analytic Gaussian pair with log(1 + q(e^{ε0} - 1)), split scanned: own code."""

    def epsilon(share, delta=1e-5):
        delta_0 = share * delta / (q * steps)
        inner = brentq(lambda e: gaussian_profile(1 / sigma, e) - delta_0, 0, 30, xtol=1e-13)
        epsilon_0 = math.log1p(q * math.expm1(inner))
        root = math.sqrt(2 * steps * math.log(1 / ((1 - share) * delta)))
        return epsilon_0 * root + steps * epsilon_0 * math.expm1(epsilon_0)

    best = minimize_scalar(epsilon, bounds=(1e-4, 1 - 1e-4), method="bounded")
    got = StrongComposition(laws=both(q, sigma), steps=steps)
    assert got.epsilon(1e-5) == pytest.approx(best.fun, rel=1e-6)
    told = got.details(1e-5)
    assert told["share"] == pytest.approx(steps * told["delta_0"] / 1e-5)
    inner = math.log1p(math.expm1(told["epsilon_0"]) / q)
    assert told["delta_0"] == pytest.approx(q * gaussian_profile(1 / sigma, inner), rel=1e-8)


def test_optimal_guarantee_is_a_scan_of_the_pair():
    laws, steps = both(0.01, 4.0), 10_000
    got = OptimalComposition(laws=laws, steps=steps)
    epsilon = got.epsilon(1e-5)
    scan = np.geomspace(1e-3, 1, 4001)
    least = np.min(optimal_composition_delta(epsilon, scan, steps, laws[0].delta(scan)))
    assert 1e-5 * (1 - 1e-7) <= least <= 1e-5 * (1 + 1e-3)  # the scan misses corners by a little
    assert got.delta(epsilon) <= 1e-5


@pytest.mark.parametrize("name", RUNS)
def test_order_of_the_guarantees_and_the_truth(name):
    sigma, steps = RUNS[name]
    facts = dict(n=60000, batch_size=256, steps=steps, sigma=sigma)
    for run, relation in [(NoisySGD.abadi16(**facts), "add-remove"),
                          (NoisySGD.drs22(**facts), "replace-one")]:  # fmt: skip
        found = [r for r in golden.records("bracket", run=name) if r["sampling"] == run.sampling]
        lower = max(r["value"][0] for r in found)
        strong, optimal = (cls(laws=run.laws(relation), steps=steps).epsilon(1e-5) for cls in BOTH)
        assert lower < optimal <= strong * (1 + 1e-9)


@pytest.mark.parametrize("law", [GaussianLaw(1.0), SubsampledLaw(0.1, 2.0)])
@pytest.mark.parametrize("cls", BOTH)
def test_one_step_is_its_own_curve(law, cls):
    one = cls(laws=(law,), steps=1)
    for epsilon in (0.1, 1.0, 3.0):
        assert one.delta(epsilon) == pytest.approx(float(law.delta(epsilon)), rel=1e-11)


@settings(QUICK, max_examples=15)
@given(RATES, SIGMAS, STEPS, DELTAS)
def test_guarantees_everywhere(rate, sigma, steps, delta):
    """ε is inf or reaches δ; optimal is below strong; more noise and fewer steps help."""
    ask = lambda cls, s=sigma, t=steps: cls(laws=both(rate, s), steps=t)  # noqa: E731
    strong, optimal = (ask(cls).epsilon(delta) for cls in BOTH)
    assert 0 <= optimal <= strong * (1 + 1e-4) + 1e-14
    for cls, epsilon in zip(BOTH, (strong, optimal), strict=True):
        slack = 1 + 1e-4
        if math.isinf(epsilon):
            assert ask(cls).delta(1e5) > delta and ask(cls).reason
            continue
        assert ask(cls).delta(epsilon) <= delta
        assert ask(cls, s=min(1.5 * sigma, 1e3)).epsilon(delta) <= epsilon * slack + 1e-14
        assert ask(cls, t=steps // 2).epsilon(delta) <= epsilon * slack + 1e-14
        assert ask(cls, t=0).epsilon(delta) == 0


def test_both_directions_count():
    one, two = PoissonLaw(0.3, 0.8, "add"), PoissonLaw(0.3, 0.8, "remove")
    alone = OptimalComposition(laws=(one,), steps=50).epsilon(1e-5)
    assert alone < OptimalComposition(laws=(one, two), steps=50).epsilon(1e-5)


@pytest.mark.parametrize("call", [
    lambda: amplify_by_sampling(1.5, 1.0, 1e-5), lambda: amplify_by_sampling(0.5, -1.0, 1e-5),
    lambda: amplify_by_sampling(0.5, 1.0, 1.0), lambda: strong_composition_epsilon(1.0, 2.5, 0.1),
    lambda: strong_composition_epsilon(1.0, 2, 0.0),
    lambda: optimal_composition_delta(-1.0, 1.0, 2),
    lambda: optimal_composition_delta(1.0, 1.0, 2, 1.0),
    lambda: optimal_composition_epsilon(0.1, 10, 1.5), lambda: classical_gaussian_sigma(0.5, 0.0),
    lambda: classical_gaussian_sigma(20.0, 1e-5), lambda: pure_dp_moment(-1.0, 1.0),
    lambda: pure_dp_moment_bound(1.0, 1e4), lambda: StrongComposition(laws=(), steps=1),
    lambda: OptimalComposition(laws=both(0.1, 1.0), steps=-1),
])  # fmt: skip
def test_wrong_arguments_are_named(call):
    with pytest.raises(ValueError, match="isn't allowed: it must be"):
        call()
