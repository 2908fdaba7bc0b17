"""Central limits: against other programs, 30-digit integrals, simulation, Fourier inversion."""

import math

import golden
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from strategies import DELTAS, QUICK, RATES, SIGMAS, STEPS

from dpteach.laws import GaussianLaw, PoissonLaw, SubsampledLaw, gaussian_delta
from dpteach.limits import (
    BerryEsseenGuarantee,
    EdgeworthGuarantee,
    central_limit,
    chi2_plus,
    clt_guarantee,
    functionals,
    poisson_clt_mu,
    subsampled_clt_mu,
)
from dpteach.tradeoff import Functionals

P = 256 / 60000
RUNS = {"A": (1.3, 3516), "B": (1.1, 14063), "C": (0.7, 10547)}  # sigma, steps
EXACT = {"A": 1.067030, "B": 3.068629, "C": 7.208338}  # ε of C_p(G)^{⊗T} at δ = 1e-5
EXACT_REMOVE = {"A": 0.86454, "B": 2.38169, "C": 5.639683}
run_names = pytest.mark.parametrize("name", "ABC")


def subsampled(name):
    sigma, steps = RUNS[name]
    return SubsampledLaw(P, sigma), steps


# --- Lemma 5.3, Corollary 5.4, the Poisson limit


def test_chi2_plus_from_the_graph_of_g():
    """No derivative of G is used: differences on a grid that shrinks towards 0."""
    x = np.concatenate([[0.0], np.geomspace(1e-40, 0.5, 100_000)])
    for mu in (0.2, 1.0, 1.5):
        slope = -np.diff(ndtr(-ndtri(x) - mu)) / np.diff(x)
        graph = np.sum(np.maximum(slope - 1, 0) ** 2 * np.diff(x))
        assert_allclose(chi2_plus(mu), graph, rtol=1e-3)


@pytest.mark.theorem("prop-12-poisson")
@pytest.mark.theorem("cor-drs-5-4")
@run_names
def test_mu_and_epsilon_of_another_program(name):
    sigma, steps = RUNS[name]
    peer = dict(peer="tensorflow-privacy", run=name)
    mu = subsampled_clt_mu(P, sigma, steps)
    assert_allclose(mu, golden.value("compute_mu_uniform", **peer), rtol=1e-4)  # its T is E·n/m
    assert_allclose(clt_guarantee(SubsampledLaw(P, sigma), steps).mu, mu, rtol=1e-14)
    poisson = poisson_clt_mu(P, sigma, steps)
    assert_allclose(poisson, golden.value("compute_mu_poisson", **peer), rtol=1e-4)
    for direction in ("remove", "add"):
        law = PoissonLaw(P, sigma, direction)
        assert_allclose(clt_guarantee(law, steps).mu, poisson, rtol=1e-14)
    epsilon = clt_guarantee(SubsampledLaw(P, sigma), steps).epsilon(1e-5)
    assert_allclose(epsilon, golden.value("compute_eps_uniform", **peer), rtol=1e-4)


@run_names
def test_paper_numbers(name):
    law, steps = subsampled(name)
    limit = clt_guarantee(law, steps)
    mu, epsilon = {"A": (0.2847, 1.069), "B": (0.7374, 3.087), "C": (1.5536, 7.355)}[name]
    assert round(limit.mu, 4) == mu and round(limit.epsilon(1e-5), 3) == epsilon
    assert limit.kind == "asymptotic" and limit.name == "clt"


# --- functionals


def lemma_5_5(p, mu):
    """Lemma 5.5 in 20 digits, with the corners of |Z ± kl| as ends of intervals."""
    with mpmath.workdps(20):
        p, mu = mpmath.mpf(p), mpmath.mpf(mu)
        phi = mpmath.npdf

        def z(t):  # in units of p·mu: mpmath stops at an absolute error
            return mpmath.log1p(p * mpmath.expm1(mu * t - mu**2 / 2)) / (p * mu)

        def q(t):
            return (1 - p) * phi(t) + p * phi(t - mu)

        ends = mpmath.linspace(mu / 2, mu + 13, 9 + int(mu))

        def integral(g, at=ends):
            return mpmath.quad(g, at)

        kl = p * integral(lambda t: z(t) * (phi(t - mu) - phi(t)))
        corner = (mpmath.log1p(mpmath.expm1(kl * p * mu) / p) + mu**2 / 2) / mu
        split = sorted({*ends, corner})
        atom = (1 - p) * (1 - 2 * mpmath.ncdf(-mu / 2))
        kappa2 = integral(lambda t: z(t) ** 2 * (phi(t) + q(t)))
        kappa3 = integral(lambda t: z(t) ** 3 * (phi(t) + q(t)))
        bar = integral(lambda t: (z(t) + kl) ** 3 * phi(t) + abs(z(t) - kl) ** 3 * q(t), split)
        found = zip((kl, kappa2, kappa3, bar + atom * kl**3), (1, 2, 3, 3), strict=True)
        return [float(x * (p * mu) ** k) for x, k in found]


@pytest.mark.theorem("lem-drs-5-5")
@pytest.mark.parametrize("rate, sigma", [
    (1e-9, 0.3), (1e-9, 1e3), (1e-4, 0.7), (1e-4, 1e3), (0.3, 1.0), (1.0, 0.3), (1.0, 20.0),
])  # fmt: skip
def test_functionals_against_lemma_5_5(rate, sigma):
    found, wanted = functionals(SubsampledLaw(rate, sigma)), lemma_5_5(rate, 1 / sigma)
    assert_allclose(found.kl, wanted[0], rtol=1e-10 + 1e-15 * sigma / rate)
    assert_allclose(found[1:], wanted[1:], rtol=1e-10)


@QUICK
@given(SIGMAS)
def test_functionals_of_a_normal_loss(sigma):
    """L ~ N(mu²/2, mu²): E|L - kl|³ = √(8/π)·mu³, and E|L|³ of a folded normal."""
    mu, found = 1 / sigma, functionals(GaussianLaw(sigma))
    m, s = mu / 2, math.sqrt(2 / math.pi)  # E|Z + m|³, times mu³
    folded = s * math.exp(-m * m / 2) * (m * m + 2) + (m**3 + 3 * m) * math.erf(m / math.sqrt(2))
    wanted = [mu**2 / 2, mu**2 * (1 + mu**2 / 4), folded * mu**3, 2 * s * mu**3]
    assert_allclose(found, wanted, rtol=1e-11 + 1e-14 * sigma)
    assert_allclose(clt_guarantee(GaussianLaw(sigma), 1).mu, mu, rtol=1e-15)


@pytest.mark.theorem("thm-12-clt")
@pytest.mark.theorem("cor-drs-5-6")
@run_names
def test_functionals_and_corollary_5_6_golden(name):
    law, steps = subsampled(name)
    wanted = golden.value("Lemma 5.5 functionals", run=name)
    found, bound = functionals(law), BerryEsseenGuarantee(law=law, steps=steps)
    assert_allclose(
        [found.kl, found.kappa2, found.kappa3, found.kappa3_bar, bound.mu, bound.gamma],
        [wanted[key] for key in ("kl", "k2", "k3", "k3bar", "mu", "gamma")],
        rtol=1e-10,
    )


@pytest.mark.parametrize(
    "law",
    [
        PoissonLaw(0.3, 0.8, "remove"),
        PoissonLaw(0.3, 0.8, "add"),
        PoissonLaw(1.0, 2.0, "add"),
        SubsampledLaw(0.2, 1 / 1.2),
        SubsampledLaw(1.0, 1 / 0.6),
    ],
)
def test_functionals_by_simulation(law):
    found, rng = functionals(law), np.random.default_rng(12)
    loss = law.sample(150_000, rng)
    for value, draws in (
        (found.kl, loss),
        (found.kappa2, loss**2),
        (found.kappa3, abs(loss) ** 3),
        (found.kappa3_bar, abs(loss - found.kl) ** 3),
    ):
        assert abs(draws.mean() - value) < 4.5 * draws.std() / math.sqrt(loss.size)


@pytest.mark.theorem("thm-drs-5-2")
@pytest.mark.theorem("lem-12-expansions")
@QUICK
@given(st.floats(-6, 0), st.floats(-1.5, 0.8))
def test_expansions_of_theorem_5_2(log_p, log_mu):
    """0 ≤ p²χ²₊ - kl ≤ p³H3/2 and so on, with H3 from its own closed form."""
    p, s = 10**log_p, 10**log_mu
    found = functionals(SubsampledLaw(p, 1 / s))
    third = quad(
        lambda t: math.expm1(s * t - s * s / 2) ** 3 * math.exp(-t * t / 2),
        s / 2,
        3 * s + 13,
        points=[3 * s],
        epsabs=0,
        epsrel=1e-11,
        limit=300,
    )[0] / math.sqrt(2 * math.pi)
    second, slack = p * p * chi2_plus(s), 1e-8 * p * p * chi2_plus(s)
    assert -slack <= second - found.kl <= p**3 * third / 2 + slack
    assert -slack <= 2 * second - found.kappa2 <= 2 * p**3 * third + slack
    assert 0 < found.kappa3 <= 2 * p**3 * third * (1 + 1e-8)
    assert found.kappa3_bar <= 8 * found.kappa3 * (1 + 1e-12)


@pytest.mark.theorem("thm-drs-3-4")
def test_central_limit_of_unequal_parts():
    first, second = Functionals(0.1, 0.5, 1.0, 2.0), Functionals(0.3, 0.7, 1.0, 3.0)
    mu, gamma = central_limit([first, second], 50)
    variance = 50 * (0.5 - 0.01 + 0.7 - 0.09)
    assert_allclose(mu, 2 * 50 * 0.4 / math.sqrt(variance), rtol=1e-14)
    assert_allclose(gamma, 0.56 * 50 * 5 / variance**1.5, rtol=1e-14)


# --- Corollary 5.6


@run_names
def test_floor_and_silence_of_berry_esseen(name):
    law, steps = subsampled(name)
    bound = BerryEsseenGuarantee(law=law, steps=steps)
    assert round(bound.floor, 3) == {"A": 0.095, "B": 0.119, "C": 0.559}[name]
    assert bound.epsilon(1e-5) == math.inf and "never falls below" in bound.reason
    assert bound.kind == "upper bound" and bound.details(0.9).keys() == {"mu", "gamma"}
    above = bound.floor + 0.01
    epsilon = bound.epsilon(above)
    assert bound.delta(epsilon) <= above and (epsilon == 0 or bound.delta(epsilon - 1e-6) > above)
    assert bound.delta(bound.epsilon(bound.floor)) <= bound.floor


@pytest.mark.theorem("prop-13-delta")
@run_names
def test_berry_esseen_delta_is_the_conjugate(name):
    """δ(ε) = max over α of 1 - e^ε α - f(α), on a fine grid with the corner α = 0."""
    law, steps = subsampled(name)
    bound = BerryEsseenGuarantee(law=law, steps=steps)
    alpha = np.linspace(0, 1, 200_001)
    f = bound.f(alpha)
    for epsilon in (0.0, 0.1, 0.3, 1.0, 2.0, 5.0, 50.0):
        assert_allclose(bound.delta(epsilon), np.max(1 - math.exp(epsilon) * alpha - f), atol=1e-6)


@pytest.mark.theorem("cor-drs-5-6")
@run_names
def test_berry_esseen_curves(name):
    law, steps = subsampled(name)
    bound = BerryEsseenGuarantee(law=law, steps=steps)
    alpha = np.linspace(0, 1, 2001)
    f, gamma = bound.f(alpha), bound.gamma
    inside = (alpha > 0) & (f > 0)
    assert_allclose(bound.f(f[inside]), alpha[inside], atol=1e-9)  # f is its own inverse
    middle = (alpha > gamma) & (alpha < 1 - gamma)

    def g(a):
        return ndtr(-ndtri(a) - bound.mu)

    assert_allclose(f[middle], np.maximum(0, g(alpha[middle] + gamma) - gamma), rtol=1e-12)
    wanted = np.minimum(1 - alpha[middle], g(alpha[middle] - gamma) + gamma)
    assert_allclose(bound.optimistic(alpha[middle]), wanted)
    assert np.all(f[alpha >= 1 - gamma] == 0) and np.all(np.diff(f) <= 0)
    assert np.all(f <= bound.optimistic(alpha)) and bound.f(0.0) < 1


# --- Edgeworth


def inversion_epsilon(law, steps, delta):
    """ε of the summed loss by Fourier inversion of E e^{zS}/(z(z+1)) on Re z = a."""
    nodes = law.nodes(40)

    def tail(x):
        return (steps * np.log(np.exp(nodes.log_p + x * nodes.loss).sum()) - math.log(delta)) / x

    top, a = min((tail(x), x) for x in (1.0, 2.0, 4.0, 8.0, 12.0, 16.0))
    p = np.exp(nodes.log_p)
    std = math.sqrt(steps * (p @ nodes.loss**2 - (p @ nodes.loss) ** 2))
    u = np.arange(600) * 0.04 / std
    z = a + 1j * u
    log_m = steps * np.log(np.exp(nodes.log_p + np.outer(z, nodes.loss)).sum(axis=1))

    def profile(epsilon):
        terms = (np.exp(log_m - z * epsilon) / (z * (z + 1))).real
        return (terms.sum() - terms[0] / 2) * u[1] / math.pi

    return brentq(lambda e: math.log(profile(e) / delta), 0.0, top, xtol=1e-10)


@QUICK
@given(RATES, SIGMAS, STEPS, DELTAS)
def test_guarantees_everywhere(rate, sigma, steps, delta):
    """Numbers are in their range, and ε, where there's one, reaches δ."""
    law = SubsampledLaw(rate, sigma)
    for guarantee in (
        BerryEsseenGuarantee(law=law, steps=steps),
        EdgeworthGuarantee(laws=(law,), steps=steps),
    ):
        epsilon = guarantee.epsilon(delta)
        assert epsilon >= 0 and guarantee.reason
        assert epsilon > 1e5 or guarantee.delta(epsilon) <= delta * (1 + 1e-6) + 1e-12
        assert all(0 <= guarantee.delta(e) <= 1 for e in (0.0, 1e-9, 1.0, 100.0, 1e5))
        assert np.all(guarantee.f([0.0, 1e-9, 0.5, 1.0]) >= 0)


@run_names
def test_edgeworth_beats_the_limit(name):
    law, steps = subsampled(name)
    for delta in (1e-2, 1e-5):
        exact = inversion_epsilon(law, steps, delta)
        if delta == 1e-5:
            assert_allclose(exact, EXACT[name], rtol=1e-6)
        error = [
            abs(EdgeworthGuarantee(laws=(law,), steps=steps, order=k).epsilon(delta) / exact - 1)
            for k in (0, 2)
        ]
        assert error[1] < {"A": 1e-4, "B": 1e-4, "C": 1e-2}[name]
        assert error[1] < 0.3 * error[0]
        assert error[1] < 0.5 * abs(clt_guarantee(law, steps).epsilon(delta) / exact - 1)


@run_names
def test_edgeworth_of_the_poisson_pair(name):
    sigma, steps = RUNS[name]
    remove, add = PoissonLaw(P, sigma, "remove"), PoissonLaw(P, sigma, "add")
    worse = EdgeworthGuarantee(laws=(remove, add), steps=steps)
    alone = EdgeworthGuarantee(laws=(remove,), steps=steps)
    assert_allclose(worse.epsilon(1e-5), alone.epsilon(1e-5), rtol=1e-10)
    error = worse.epsilon(1e-5) / EXACT_REMOVE[name] - 1
    limit = clt_guarantee(remove, steps).epsilon(1e-5) / EXACT_REMOVE[name] - 1
    assert abs(error) < 0.3 * abs(limit) and abs(error) < {"A": 1e-3, "B": 1e-3, "C": 0.03}[name]


def test_edgeworth_of_normal_losses_is_exact():
    series = EdgeworthGuarantee(laws=(GaussianLaw(10.0),), steps=100)
    epsilon = np.linspace(0, 4, 9)
    found = [series.delta(e) for e in epsilon]
    assert_allclose(found, gaussian_delta(1.0, epsilon), rtol=1e-9)
    alpha = np.linspace(0.01, 0.99, 15)
    assert_allclose(series.f(alpha), ndtr(-ndtri(alpha) - 1.0), atol=1e-6)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("law", [
    SubsampledLaw(0.05, 0.7), PoissonLaw(0.05, 0.7, "remove"), PoissonLaw(0.05, 0.7, "add"),
])  # fmt: skip
def test_edgeworth_delta_is_the_integral_of_its_density(law, order):
    """E_P[(1 - e^{ε-S})_+] with the series' density written out and cumulants by quad."""
    steps, mu = 300, law.mu
    rate = law.rate

    def phi(t, m=0.0):
        return math.exp(-((t - m) ** 2) / 2) / math.sqrt(2 * math.pi)

    def loss(t):
        return math.log1p(rate * math.expm1(mu * t - mu * mu / 2))

    def mixture(t):
        return (1 - rate) * phi(t) + rate * phi(t, mu)

    def moment(k):
        def ends(g, low):
            return sum(
                quad(g, a, b, epsabs=0, epsrel=1e-12, limit=200)[0]
                for a, b in ((low, mu / 2 + 1.0), (mu / 2 + 1.0, mu + 12))
            )

        if isinstance(law, SubsampledLaw):
            return ends(lambda t: loss(t) ** k * (mixture(t) + (-1) ** k * phi(t)), mu / 2)
        if law.direction == "remove":
            return ends(lambda t: loss(t) ** k * mixture(t), -12.0)
        return ends(lambda t: (-loss(t)) ** k * phi(t), -12.0)

    m1, m2, m3, m4 = (moment(k) for k in (1, 2, 3, 4))
    variance = m2 - m1**2
    third = m3 - 3 * m1 * m2 + 2 * m1**3
    fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4 - 3 * variance**2
    skew = third / variance**1.5 / math.sqrt(steps) * (order > 0)
    excess = fourth / variance**2 / steps * (order > 1)

    def density(x):
        he3, he4 = x**3 - 3 * x, x**4 - 6 * x**2 + 3
        he6 = x**6 - 15 * x**4 + 45 * x**2 - 15
        return phi(x) * (1 + skew * he3 / 6 + excess * he4 / 24 + (order > 1) * skew**2 * he6 / 72)

    mean, std = steps * m1, math.sqrt(steps * variance)
    series = EdgeworthGuarantee(laws=(law,), steps=steps, order=order)
    for epsilon in (0.0, mean, mean + std, mean + 3 * std):
        x = (epsilon - mean) / std
        wanted, _ = quad(
            lambda y, x=x: -math.expm1(std * (x - y)) * density(y),
            x,
            14,
            epsabs=1e-15,
            limit=300,
        )
        assert_allclose(series.delta(max(epsilon, 0.0)), max(0.0, wanted), rtol=1e-8, atol=1e-13)


@pytest.mark.theorem("prop-13-cumulants")
@run_names
def test_skewness_of_a_symmetric_pair(name):
    """With p√T fixed both are of size 1/T: kurtosis (H4 - 6χ⁴)/(2χ⁴T), skewness mu/2 times that."""
    sigma, steps = RUNS[name]
    s, many = 1 / sigma, 10**9
    law = SubsampledLaw(P * math.sqrt(steps / many), 1 / s)
    ((_, _, terms),) = EdgeworthGuarantee(laws=(law,), steps=many)._series
    skewness, excess = 6 * terms[3], 24 * terms[4]
    cdf = [float(mpmath.ncdf(k * s - s / 2)) for k in range(5)]  # upper tails from s/2 of N(ks, 1)
    fourth = sum(
        math.comb(4, k) * (-1) ** k * math.exp(k * (k - 1) * s * s / 2) * cdf[k] for k in range(5)
    )
    square = chi2_plus(s) ** 2
    assert_allclose(excess * many, (fourth - 6 * square) / (2 * square), rtol=0.08)
    assert_allclose(skewness / excess, subsampled_clt_mu(law.rate, sigma, many) / 2, rtol=1e-2)


def test_edgeworth_epsilon_just_below_delta_at_0():
    """Between the first two points of the search's grid ε is small and not 0."""
    series = EdgeworthGuarantee(laws=(GaussianLaw(10.0),), steps=100)
    at_0 = float(series.delta(0.0))
    found = series.epsilon(at_0 * (1 - 1e-6))
    assert found > 0
    assert_allclose(float(series.delta(found)), at_0 * (1 - 1e-6), rtol=1e-9)
    assert series.epsilon(at_0 * 1.001) == 0


def test_edgeworth_delta_near_1():
    """A hundred steps of mu = 1 give the record away."""
    series = EdgeworthGuarantee(laws=(GaussianLaw(1.0),), steps=100)
    assert_allclose(series.delta(0.0), math.erf(5 / math.sqrt(2)), rtol=1e-12)


@pytest.mark.parametrize(("mu", "alpha"), [(0.01, [0.01, 0.3, 0.9]), (2.0, [1e-120, 1e-90, 1e-60])])
def test_edgeworth_f_of_little_and_of_much_loss(mu, alpha):
    """The losses' standard deviation is 1/10 and 20."""
    series = EdgeworthGuarantee(laws=(GaussianLaw(1 / mu),), steps=100)
    assert_allclose(series.f(alpha), ndtr(-ndtri(alpha) - 10 * mu), atol=1e-4)


def test_edgeworth_is_silent_where_the_series_breaks():
    laws = (PoissonLaw(0.01, 1.0, "remove"), PoissonLaw(0.01, 1.0, "add"))
    assert EdgeworthGuarantee(laws=laws, steps=1).epsilon(1e-5) == math.inf
    assert 0 < EdgeworthGuarantee(laws=laws, steps=10_000).epsilon(1e-5) < 10
    assert EdgeworthGuarantee(laws=(SubsampledLaw(P, 1.3),), steps=3516).epsilon(0.5) == 0.0


@pytest.mark.parametrize("call, name", [
    (lambda: subsampled_clt_mu(1.5, 1.0, 10), "rate"),
    (lambda: poisson_clt_mu(0.1, 0.0, 9), "sigma"),
    (lambda: poisson_clt_mu(0.1, 1.0, 2.5), "steps"),
    (lambda: clt_guarantee(PoissonLaw(0.1, 0.05), 10), "mu"),
    (lambda: clt_guarantee(GaussianLaw(1.0), 0), "steps"),
    (lambda: central_limit([functionals(GaussianLaw(1.0))], -1), "steps"),
    (lambda: BerryEsseenGuarantee(law=PoissonLaw(0.1, 1.0), steps=10), "law"),
    (lambda: BerryEsseenGuarantee(law=GaussianLaw(1.0), steps=10).f(1.2), "alpha"),
    (lambda: EdgeworthGuarantee(laws=(GaussianLaw(1.0),), steps=10, order=3), "order"),
    (lambda: EdgeworthGuarantee(laws=(GaussianLaw(1.0),), steps=0), "steps"),
])  # fmt: skip
def test_arguments_out_of_range_are_named(call, name):
    with pytest.raises(ValueError, match=f"^{name} = .*isn't allowed"):
        call()
