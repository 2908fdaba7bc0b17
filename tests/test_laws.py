"""One-step laws at points of the whole domain, against 40-digit arithmetic."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from strategies import QUICK, RATES, SIGMAS

from dpteach.laws import (
    GaussianLaw,
    PoissonLaw,
    SubsampledLaw,
    chi2_plus,
    gaussian_delta,
    mixture_loss,
)

KINDS = st.sampled_from(["gaussian", "remove", "add", "subsampled"])
MANY = [
    GaussianLaw(3.0), GaussianLaw(0.05), PoissonLaw(0.01, 1.5), PoissonLaw(0.3, 0.5),
    PoissonLaw(0.6, 4.0, "add"), PoissonLaw(0.02, 0.7, "add"), PoissonLaw(1.0, 2.0, "add"),
    SubsampledLaw(0.004, 1.25), SubsampledLaw(0.5, 0.5), SubsampledLaw(1.0, 0.7),
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def forty_digits():
    """Of every integral here, whatever tests ran before."""
    with mpmath.workdps(40):
        yield


def make(kind, rate, sigma):
    if kind == "gaussian":
        return GaussianLaw(sigma)
    return SubsampledLaw(rate, sigma) if kind == "subsampled" else PoissonLaw(rate, sigma, kind)


def exceeds(law, loss):
    """P(L > loss) and Q(L > loss), from the half-line of outputs whose loss is larger."""
    q, mu, x = mpmath.mpf(law.rate), 1 / mpmath.mpf(law.sigma), mpmath.mpf(loss)

    def beyond(at):  # of the mixture and of the base, where log(1 - q + q e^{mu t - mu²/2}) > at
        inner = (mpmath.exp(at) - 1 + q) / q
        t = mpmath.log(inner) / mu + mu / 2 if inner > 0 else -mpmath.inf
        return (1 - q) * mpmath.ncdf(-t) + q * mpmath.ncdf(mu - t), mpmath.ncdf(-t)

    if isinstance(law, SubsampledLaw):  # branches at ±L(t) for t > mu/2, and an atom at 0
        half, far = beyond(0), beyond(abs(x))
        atom = 1 - half[0] - half[1]
        if x >= 0:
            return far
        return half[0] + atom + half[1] - far[1], half[1] + atom + half[0] - far[0]
    if law.direction == "remove":
        return beyond(x)
    mixture, base = beyond(-x)
    return 1 - base, 1 - mixture


def hockey_stick(law, epsilon):
    """P(L > ε) - e^ε Q(L > ε): the best event."""
    p, q = exceeds(law, epsilon)
    return p - mpmath.exp(mpmath.mpf(epsilon)) * q


@pytest.mark.theorem("cor-drs-2-13")
@QUICK
@given(st.floats(-6, 2), st.floats(-12, 12))
@pytest.mark.theorem("thm-01-profile")
def test_gaussian_delta_everywhere(log_mu, t):
    mu = 10**log_mu
    epsilon = mu * t + mu * mu / 2
    m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
    exact = mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)
    found = float(gaussian_delta(mu, epsilon))
    assert abs(found - exact) <= 1e-14
    if exact > 1e-30:
        assert abs(found / exact - 1) < 1e-12 * (1 + 1 / mu)


@pytest.mark.theorem("cor-11-profile")
@QUICK
@given(KINDS, RATES, SIGMAS, st.floats(-9, 9), st.booleans())
@pytest.mark.theorem("thm-01-profile")
def test_delta_everywhere(kind, rate, sigma, t, mirrored):
    """At the losses of outputs that occur, and at the same values below 0."""
    law = make(kind, rate, sigma)
    epsilon = float(mixture_loss(law.rate, t / sigma + 0.5 / sigma**2)) * (-1) ** mirrored
    found, exact = float(law.delta(epsilon)), hockey_stick(law, epsilon)
    assert abs(found - exact) <= 1e-14
    if exact > 1e-30 and rate <= 0.5:
        assert abs(found / exact - 1) < 1e-11 * (1 + sigma)


@pytest.mark.parametrize("law", MANY, ids=str)
def test_delta_far_out_and_its_shape(law):
    epsilon = np.array([[-1e5, -700.0, -30.0], [30.0, 700.0, 1e5]])
    exact = [[float(max(hockey_stick(law, e), 0)) for e in row] for row in epsilon]
    assert law.delta(epsilon).shape == (2, 3)
    assert_allclose(law.delta(epsilon), exact, atol=1e-15)


@pytest.mark.theorem("prop-11-law")
@pytest.mark.parametrize("law", MANY, ids=str)
def test_masses_and_ranges_of_losses(law):
    edges = np.array([-50.0, -5.0, -1.3, -0.4, -0.02, 0.0, 1e-3, 0.3, 0.999, 1.001, 2.0, 9.0, 40.0])
    tails = [(1, 1), *(exceeds(law, edge) for edge in edges), (0, 0)]
    wanted = -np.diff(np.array(tails, dtype=object), axis=0).astype(float).T
    if isinstance(law, SubsampledLaw):  # its atom belongs to the cell that begins at 0
        wanted[:, 5] -= law.atom
        wanted[:, 6] += law.atom
    found = law.loss_masses(np.concatenate([[-np.inf], edges, [np.inf]]))
    assert_allclose(found, wanted, rtol=1e-9, atol=1e-17)
    for tail in (1e-40, 1e-12, 0.1):
        low, high = law.loss_range(tail)
        hair = 1e-9 * np.array([1 + abs(low), 1 + abs(high)])
        assert 1 - exceeds(law, low - hair[0])[0] <= tail
        assert exceeds(law, high + hair[1])[0] <= tail
        assert exceeds(law, high - hair[1])[0] >= 0.39 * tail or high < 1e-9


def moment(law, order):
    """log E_Q e^{aL} by an adaptive integral over the output."""
    q, mu, a = mpmath.mpf(law.rate), 1 / mpmath.mpf(law.sigma), mpmath.mpf(order)
    ratio = lambda t: 1 - q + q * mpmath.exp(mu * t - mu**2 / 2)  # noqa: E731

    def integral(power, low, high):
        cuts = mpmath.linspace(low, high, 1 + int(mpmath.ceil((high - low) / 3)))
        return mpmath.quad(lambda t: ratio(t) ** power * mpmath.npdf(t), cuts)

    if isinstance(law, SubsampledLaw):
        ends = mu / 2, a * mu + 14
        return mpmath.log(integral(a, *ends) + integral(1 - a, *ends) + law.atom)
    if law.direction == "remove":
        return mpmath.log(integral(a, mpmath.mpf(-14), a * mu + 14))
    return mpmath.log(integral(1 - a, -a * mu - 14, mu + 14))


@pytest.mark.parametrize("order", [2.0, 7.5])
@pytest.mark.parametrize("law", [law for law in MANY if law.sigma > 0.3], ids=str)
def test_nodes_at_large_orders(law, order):
    with mpmath.workdps(18):
        nodes = law.nodes(order)
        found = np.logaddexp.reduce(nodes.log_q + order * nodes.loss)
        assert_allclose(found, float(moment(law, order)), rtol=1e-11, atol=1e-12)


@QUICK
@given(KINDS, RATES, SIGMAS, st.floats(0, 4))
def test_nodes_everywhere(kind, rate, sigma, log_share):
    """E_Q e^{aL} at a up to 1e4·sigma is the same on other panels, and both masses are 1."""
    law = make(kind, rate, sigma)
    order = max(1.0, sigma * 10**log_share)
    coarse, fine = law.nodes(order), law.nodes(min(1.07 * order, 1e4 * sigma), corner=1e-4)
    both = [np.logaddexp.reduce(n.log_q + order * n.loss) for n in (coarse, fine)]
    assert_allclose(both[0], both[1], rtol=1e-11, atol=2e-12)
    for log_weight in (coarse.log_p, coarse.log_q):
        assert np.logaddexp.reduce(log_weight) == pytest.approx(0.0, abs=1e-11)


@pytest.mark.parametrize("rate, mu, order", [
    (1 - 2.0**-30, 1.0, 41), (0.9999, 1.0, 101), (0.9999, 2.0, 41), (1 - 2.0**-30, 0.4, 201),
    (0.99, 0.2, 3001), (0.5, 20.0, 400), (0.01, 1.0, 9000),
])  # fmt: skip
def test_a_peak_narrower_than_the_gaussian(rate, mu, order):
    """Added nearly always, L flattens where e^{aL} pulls to. The reference is the trapezoidal rule,
    whose error vanishes exponentially with its step."""
    nodes, step = PoissonLaw(rate, 1 / mu, "add").nodes(order), 5e-4
    t = np.arange(-90, 20 + mu, step)
    mixture = np.logaddexp(np.log1p(-rate), np.log(rate) + mu * t - mu**2 / 2)
    log_base = -t * t / 2 - math.log(2 * math.pi) / 2
    wanted = np.logaddexp.reduce(log_base + (1 - order) * mixture) + math.log(step)
    found = np.logaddexp.reduce(nodes.log_q + order * nodes.loss)
    assert_allclose(found, wanted, rtol=1e-10, atol=1e-11)


@pytest.mark.theorem("thm-01-profile")
@pytest.mark.parametrize("corner", [-3.0, -0.2, 0.0, 0.05, 0.8, 4.0])
@pytest.mark.parametrize("law", MANY, ids=str)
def test_a_corner_costs_the_quadrature_nothing(law, corner):
    """E_P[(1 - e^{ε-L})_+] is the hockey-stick divergence."""
    nodes = law.nodes(corner=corner)
    value = np.exp(nodes.log_p) @ -np.expm1(np.minimum(corner - nodes.loss, 0.0))
    assert_allclose(value, float(hockey_stick(law, corner)), rtol=1e-11, atol=1e-14)


@pytest.mark.theorem("lem-01-gaussian")
@pytest.mark.parametrize("law", MANY, ids=str)
@pytest.mark.theorem("lem-01-gaussian")
def test_samples_have_the_law(law):
    size = 200_000
    loss = law.sample(size, np.random.default_rng(3))
    assert np.array_equal(loss, law.sample(size, np.random.default_rng(3)))
    low, high = np.quantile(loss, [0.05, 0.95])
    for at in (low - 1e-9, -1e-9, 1e-9, (low + high) / 2, high + 1e-9):
        share = float(exceeds(law, at)[0])
        error = math.sqrt(share * (1 - share) / size)
        assert abs(np.mean(loss > at) - share) <= 5 * error + 1e-12


@QUICK
@given(RATES, st.floats(-9, 3.5), st.sampled_from([-1, 1]))
def test_mixture_loss_everywhere(rate, log_size, sign):
    x, q = sign * 10**log_size, mpmath.mpf(rate)
    with mpmath.workdps(60):
        exact = mpmath.log((1 - q) + q * mpmath.exp(mpmath.mpf(x)))
    assert abs(float(mixture_loss(rate, x)) / exact - 1) < 2e-15


@pytest.mark.theorem("lem-drs-5-3")
@settings(QUICK, max_examples=20)
@given(SIGMAS)
def test_chi2_plus_everywhere(sigma):
    """∫ (e^{mu t - mu²/2} - 1)₊² φ(t) dt."""
    mu = 1 / sigma
    m = mpmath.mpf(mu)
    slope = lambda t: mpmath.expm1(m * t - m**2 / 2) ** 2 * mpmath.npdf(t)  # noqa: E731
    with mpmath.workdps(20):
        exact = mpmath.quad(slope, mpmath.linspace(m / 2, 2 * m + 12, 5))
    assert abs(chi2_plus(mu) / exact - 1) < 1e-13 * (1 + 1e-2 / mu**2)


def test_the_limit_of_a_step_is_that_of_its_variance():
    """Small rates: Var L tends to limit_mu²; at rate 1 the step is G_mu."""
    for law in (PoissonLaw(1e-6, 0.8), PoissonLaw(1e-6, 0.8, "add"), SubsampledLaw(1e-6, 0.8)):
        nodes = law.nodes()
        variance = np.exp(nodes.log_p) @ nodes.loss**2
        assert variance == pytest.approx(law.limit_mu**2, rel=1e-4)
    for law in (GaussianLaw(2.0), PoissonLaw(1.0, 2.0), SubsampledLaw(1.0, 2.0)):
        assert law.limit_mu == 0.5 and law.symmetric
    assert SubsampledLaw(0.1, 2.0).symmetric and not PoissonLaw(0.1, 2.0).symmetric


@pytest.mark.parametrize("call, name", [
    (lambda: GaussianLaw(0.04), "sigma"), (lambda: GaussianLaw(math.nan), "sigma"),
    (lambda: PoissonLaw(1.5, 1.0), "rate"), (lambda: SubsampledLaw(1e-10, 1.0), "rate"),
    (lambda: PoissonLaw(0.1, 1.0, "both"), "direction"),
    (lambda: gaussian_delta(101.0, 1.0), "mu"),
    (lambda: GaussianLaw(1.0).delta("x"), "epsilon"),
    (lambda: GaussianLaw(1.0).nodes(1e5), "order"),
    (lambda: GaussianLaw(1.0).sample(0, np.random.default_rng(0)), "size"),
    (lambda: SubsampledLaw(0.1, 1.0).sample(3, 0), "rng"), (lambda: chi2_plus(21.0), "mu"),
    (lambda: GaussianLaw(1.0).loss_masses([1.0, 0.0]), "edges"),
    (lambda: GaussianLaw(1.0).loss_range(0.3), "tail"), (lambda: mixture_loss(0.0, 1.0), "rate"),
])  # fmt: skip
def test_arguments_out_of_range_are_named(call, name):
    with pytest.raises(ValueError, match=f"^{name} = .*isn't allowed"):
        call()
