"""One-step laws: δ(ε) against 50-digit arithmetic and DRS22's C_p; the laws' own identities."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import norm

from dpteach.laws import (
    GaussianLaw,
    PoissonLaw,
    SubsampledLaw,
    gaussian_delta,
    loss_masses,
    loss_range,
    mixture_loss,
)  # fmt: skip

EPSILONS = [-30.0, -3.0, -0.5, -0.01, -1e-6, 0.0, 1e-6, 0.01, 0.3, 1.0, 4.0, 12.0, 40.0]
RATES = [1e-6, 0.004, 0.1, 0.7, 1.0]
MUS = [0.05, 0.4, 1.0, 3.0, 10.0]
SETTINGS = settings(max_examples=80, deadline=None, derandomize=True)


# An independent route: the best test between P and Q keeps {L > ε}, which is a half-line in t. Its
# two probabilities are normal distribution functions, taken here to 50 digits.
def _remove(q, mu, epsilon):
    e, q, mu = mpmath.e ** mpmath.mpf(epsilon), mpmath.mpf(q), mpmath.mpf(mu)
    ratio = (e - 1 + q) / q  # of N(mu, 1) to N(0, 1) at the threshold
    if ratio <= 0:
        return 1 - e
    t = mpmath.log(ratio) / mu + mu / 2
    return (1 - q) * mpmath.ncdf(-t) + q * mpmath.ncdf(mu - t) - e * mpmath.ncdf(-t)


def _add(q, mu, epsilon):
    e, q, mu = mpmath.e ** mpmath.mpf(epsilon), mpmath.mpf(q), mpmath.mpf(mu)
    ratio = (1 / e - 1 + q) / q
    if ratio <= 0:
        return mpmath.mpf(0)
    t = mpmath.log(ratio) / mu + mu / 2
    return mpmath.ncdf(t) - e * ((1 - q) * mpmath.ncdf(t) + q * mpmath.ncdf(t - mu))


def _subsampled(p, mu, epsilon):
    """From the law itself: branches at ±L(t) for t > mu/2, and an atom at 0."""
    e, p, mu = mpmath.e ** mpmath.mpf(epsilon), mpmath.mpf(p), mpmath.mpf(mu)
    upper, half = mpmath.ncdf(-mu / 2), mu / 2

    def masses(t):  # of (1-p)φ + pφ(·-mu) and of φ, beyond t
        return (1 - p) * mpmath.ncdf(-t) + p * mpmath.ncdf(mu - t), mpmath.ncdf(-t)

    heavy, light = masses(half)
    if epsilon >= 0:
        t = mpmath.log((e - 1 + p) / p) / mu + half
        above, below = masses(t)
        return above - e * below
    atom = (1 - p) * (1 - 2 * upper)
    total = heavy - e * light + atom * (1 - e)  # L(t) > 0 > ε, and the atom's loss 0 > ε
    t = mpmath.log((1 / e - 1 + p) / p) / mu + half  # -L(t) > ε below this t
    above, below = masses(t)
    return total + (light - below) - e * (heavy - above)


CASES = [
    pytest.param(lambda q, mu: PoissonLaw(q, 1 / mu, "remove"), _remove, id="remove"),
    pytest.param(lambda q, mu: PoissonLaw(q, 1 / mu, "add"), _add, id="add"),
    pytest.param(lambda q, mu: SubsampledLaw(q, 1 / mu), _subsampled, id="subsampled"),
    pytest.param(lambda q, mu: GaussianLaw(1 / mu), lambda q, mu, e: _remove(1, mu, e), id="gaussian"),
]


@pytest.mark.parametrize("make, reference", CASES)
def test_delta_equals_fifty_digit_arithmetic(make, reference):
    with mpmath.workdps(50):
        for q in RATES:
            for mu in MUS:
                law = make(q, mu)
                mu_used = 1 / law.sigma
                expected = [float(reference(q, mu_used, e)) for e in EPSILONS]
                assert_allclose(
                    law.delta(EPSILONS), expected, rtol=1e-9, atol=2e-16, err_msg=str(law)
                )


@pytest.mark.parametrize(
    "q, sigma, epsilon", [(0.1, 1.0, 0.2), (0.5, 0.7, 1.0), (0.02, 2.0, -0.05)]
)
def test_delta_is_the_integral_of_the_positive_part(q, sigma, epsilon):
    """The definition, integrated as it stands, without knowing where the positive part begins."""

    def mixture(t):
        return (1 - q) * norm.pdf(t, 0, sigma) + q * norm.pdf(t, 1, sigma)

    def base(t):
        return norm.pdf(t, 0, sigma)

    for direction, p, r in (("remove", mixture, base), ("add", base, mixture)):
        integral = quad(
            lambda t, p=p, r=r: max(p(t) - math.exp(epsilon) * r(t), 0),
            -15,
            16,
            limit=2000,
            epsabs=1e-11,
        )[0]
        assert_allclose(PoissonLaw(q, sigma, direction).delta(epsilon), integral, atol=1e-8)


@pytest.mark.parametrize("p, mu", [(0.1, 1.0), (0.5, 2.0), (0.9, 0.3), (256 / 60000, 1 / 1.3)])
def test_subsampled_law_is_the_dual_of_c_p(p, mu):
    """δ(ε) = sup_α 1 - e^ε α - C_p(G_mu)(α); C_p is the lower one of f_p and its inverse."""

    def f_p(alpha):
        return p * norm.cdf(norm.ppf(1 - alpha) - mu) + (1 - p) * (1 - alpha)

    for epsilon in (0.0, 0.02, 0.3, 1.0):
        along = [  # points (α, f_p(α)) and their mirror images (f_p(α), α)
            lambda a, e=epsilon: 1 - math.exp(e) * a - f_p(a),
            lambda a, e=epsilon: 1 - math.exp(e) * f_p(a) - a,
        ]
        best = 0.0
        for gain in along:
            grid = np.concatenate([np.logspace(-12, -2, 400), np.linspace(0.01, 1 - 1e-9, 400)])
            i = int(np.argmax([gain(a) for a in grid]))
            low, high = grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)]
            found = minimize_scalar(
                lambda a, g=gain: -g(a),
                bounds=(low, high),
                method="bounded",
                options={"xatol": 1e-14},
            )
            best = max(best, gain(grid[i]), -found.fun)
        assert_allclose(SubsampledLaw(p, 1 / mu).delta(epsilon), best, rtol=1e-6, atol=1e-12)


rates = st.floats(1e-9, 1.0)
mus = st.floats(1e-3, 30.0)
epsilons = st.floats(-60.0, 60.0)


@SETTINGS
@given(rates, mus, epsilons)
def test_swapping_the_pair(q, mu, epsilon):
    """δ_add(ε) = 1 - e^ε + e^ε δ_remove(-ε); the symmetric laws satisfy it with themselves."""
    epsilon = abs(epsilon)
    e = math.exp(-epsilon)
    remove, add = PoissonLaw(q, 1 / mu, "remove"), PoissonLaw(q, 1 / mu, "add")
    pairs = [
        (add, remove),
        (remove, add),
        *[(law, law) for law in (SubsampledLaw(q, 1 / mu), GaussianLaw(1 / mu))],
    ]
    for law, swapped in pairs:  # written at -ε, where no factor exceeds 1
        assert_allclose(
            law.delta(-epsilon),
            -math.expm1(-epsilon) + e * swapped.delta(epsilon),
            rtol=1e-10,
            atol=1e-15,
        )


@SETTINGS
@given(rates, mus)
def test_delta_decreases_and_is_convex_in_exp_epsilon(q, mu):
    grid = np.linspace(-4, 6, 300)
    x = np.exp(grid)
    for law in (
        PoissonLaw(q, 1 / mu),
        PoissonLaw(q, 1 / mu, "add"),
        SubsampledLaw(q, 1 / mu),
        GaussianLaw(1 / mu),
    ):
        delta = law.delta(grid)
        assert np.all(delta <= 1) and np.all(delta >= np.maximum(0, -np.expm1(grid)) - 1e-15)
        assert np.all(np.diff(delta) <= 1e-15), law
        slopes = np.diff(delta) / np.diff(x)
        noise = 4e-16 / np.diff(x)
        assert np.all(np.diff(slopes) >= -(noise[1:] + noise[:-1])), law


@SETTINGS
@given(mus)
def test_every_record_in_every_batch_is_the_gaussian_mechanism(mu):
    expected = GaussianLaw(1 / mu).delta(EPSILONS)
    for law in (PoissonLaw(1.0, 1 / mu), PoissonLaw(1.0, 1 / mu, "add"), SubsampledLaw(1.0, 1 / mu)):
        assert_allclose(law.delta(EPSILONS), expected, rtol=1e-9, atol=1e-15)
    assert SubsampledLaw(1.0, 1 / mu).atom == 0


@SETTINGS
@given(
    st.floats(5e-324, 1.0),
    st.floats(1e-59, 1e59),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_extreme_inputs_give_a_probability_and_no_warning(q, mu, epsilon):
    """RuntimeWarnings are errors in this test suite."""
    for law in (
        PoissonLaw(q, 1 / mu),
        PoissonLaw(q, 1 / mu, "add"),
        SubsampledLaw(q, 1 / mu),
        GaussianLaw(1 / mu),
    ):
        assert 0 <= law.delta(epsilon) <= 1


def laws(q=0.2, mu=1.2):
    return [
        GaussianLaw(1 / mu),
        PoissonLaw(q, 1 / mu),
        PoissonLaw(q, 1 / mu, "add"),
        SubsampledLaw(q, 1 / mu),
    ]


@pytest.mark.parametrize("law", laws() + laws(0.01, 4.0) + laws(1.0, 0.3), ids=repr)
def test_quadrature_rule(law):
    """Both masses are 1, and E_P (1 - e^{ε-L})+ is about δ(ε): the rule isn't made for corners."""
    nodes = law.nodes()
    p, q = np.exp(nodes.log_p), np.exp(nodes.log_q)
    assert_allclose(p.sum(), 1, rtol=1e-13)
    assert_allclose(q.sum(), 1, rtol=1e-13)
    assert_allclose(nodes.log_p - nodes.log_q, nodes.loss, atol=1e-12)
    assert_allclose(
        np.sum(p * np.maximum(0, 1 - np.exp(0.3 - nodes.loss))), law.delta(0.3), atol=2e-3
    )


@pytest.mark.parametrize("law", laws() + laws(0.7, 0.5), ids=repr)
def test_samples_have_the_law(law):
    """Mean and profile within five standard errors of the quadrature and the exact δ(ε)."""
    size = 200_000
    sample = law.sample(size, np.random.default_rng(7))
    nodes = law.nodes()
    weight = np.exp(nodes.log_p)
    mean = np.sum(weight * nodes.loss)
    spread = math.sqrt(np.sum(weight * (nodes.loss - mean) ** 2))
    assert abs(sample.mean() - mean) < 5 * spread / math.sqrt(size)
    for epsilon in (-0.2, 0.0, 0.2, 1.0):
        gains = np.maximum(0, -np.expm1(epsilon - sample))
        assert abs(gains.mean() - law.delta(epsilon)) < 5 * gains.std() / math.sqrt(size) + 1e-12
    if isinstance(law, SubsampledLaw):
        share = np.mean(sample == 0)
        assert abs(share - law.atom) < 5 * math.sqrt(law.atom / size)


def test_samples_repeat_with_the_seed():
    for law in laws():
        assert np.array_equal(
            law.sample(50, np.random.default_rng(1)), law.sample(50, np.random.default_rng(1))
        )


@SETTINGS
@given(st.floats(5e-324, 1.0), st.floats(-600.0, 600.0))
def test_mixture_loss(q, x):
    with mpmath.workdps(400):
        exact = float(mpmath.log1p(mpmath.mpf(q) * mpmath.expm1(x)))
    assert_allclose(float(mixture_loss(q, np.array(x))), exact, rtol=1e-12, atol=1e-300)


def test_mixture_loss_far_out():
    assert_allclose(
        mixture_loss(0.25, np.array([1e300, -1e300])), [1e300, math.log(0.75)], rtol=1e-15
    )


def test_shapes_are_kept():
    for law in laws():
        assert law.delta(0.5).shape == ()
        assert law.delta([[0.1, 0.2, 0.3]]).shape == (1, 3)


BAD = [math.nan, math.inf, -math.inf, "1", None, True, [], 1j]


@pytest.mark.parametrize("bad", [*BAD, 0.0, -1.0], ids=repr)
def test_parameters_out_of_range_are_refused_by_name(bad):
    for name, make in [
        ("sigma", GaussianLaw),
        ("rate", lambda v: PoissonLaw(v, 1.0)),
        ("sigma", lambda v: PoissonLaw(0.1, v)),
        ("rate", lambda v: SubsampledLaw(v, 1.0)),
        ("sigma", lambda v: SubsampledLaw(0.1, v)),
        ("mu", lambda v: gaussian_delta(v, 1.0)),
    ]:
        with pytest.raises(ValueError, match=f"^{name} = "):
            make(bad)


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_epsilon_out_of_range_is_refused(bad):
    for law in laws():
        with pytest.raises(ValueError, match="^epsilon = "):
            law.delta(bad)


def test_more_refusals():
    with pytest.raises(ValueError, match="rate = 1.5"):
        PoissonLaw(1.5, 1.0)
    with pytest.raises(ValueError, match="direction = 'both'.*'remove', 'add'"):
        PoissonLaw(0.1, 1.0, "both")
    with pytest.raises(ValueError, match="size = 0"):
        GaussianLaw(1.0).sample(0, np.random.default_rng(0))
    with pytest.raises(ValueError, match="quadrature panels"):
        PoissonLaw(0.1, 1e-3).nodes(1e6)


# --- masses and ranges of losses, quadrature with a corner and at large orders


def _tail(law, loss):
    """P(L > loss) and Q(L > loss) to 50 digits, from the half-line of outputs whose loss is larger."""
    q, mu, x = mpmath.mpf(law.rate), mpmath.mpf(law.mu), mpmath.mpf(loss)

    def beyond(at):  # of the mixture and of the base, where log(1 - q + q e^{mu t - mu²/2}) > at
        inner = (mpmath.e**at - 1 + q) / q
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


MANY_LAWS = [
    GaussianLaw(1 / 0.3), GaussianLaw(0.1), PoissonLaw(0.01, 1.5), PoissonLaw(0.3, 0.5), PoissonLaw(0.6, 4.0, "add"),
    PoissonLaw(0.02, 0.7, "add"), PoissonLaw(1.0, 2.0, "add"), SubsampledLaw(0.004, 1.25), SubsampledLaw(0.5, 0.5),
    SubsampledLaw(1.0, 1 / 1.5),
]  # fmt: skip


@pytest.mark.parametrize("law", MANY_LAWS)
def test_masses_of_losses_to_fifty_digits(law):
    edges = np.array([-50.0, -5.0, -1.3, -0.4, -0.02, 0.0, 1e-3, 0.02, 0.3, 0.999, 1.001, 2.0, 9.0, 40.0])
    with mpmath.workdps(50):
        tails = [(mpmath.mpf(1), mpmath.mpf(1)), *(_tail(law, edge) for edge in edges), (mpmath.mpf(0), mpmath.mpf(0))]
        wanted = np.array([[float(a - b) for a, b in zip(x, y, strict=True)]
                           for x, y in zip(tails[:-1], tails[1:], strict=True)])
    found = np.array(loss_masses(law, np.concatenate([[-np.inf], edges, [np.inf]]))).T
    at_zero = 6  # an atom at 0 belongs to the interval that begins there
    if isinstance(law, SubsampledLaw):
        wanted[at_zero - 1] -= law.atom
        wanted[at_zero] += law.atom
    assert_allclose(found, wanted, rtol=1e-9, atol=1e-17)


@pytest.mark.parametrize("tail", [1e-12, 1e-4, 0.1])
@pytest.mark.parametrize("law", MANY_LAWS)
def test_range_of_losses_leaves_out_the_tails_and_little_more(law, tail):
    low, high = loss_range(law, tail)
    with mpmath.workdps(50):
        hair = 1e-9 * (1 + abs(low)), 1e-9 * (1 + abs(high))
        below, above = 1 - _tail(law, low - hair[0])[0], _tail(law, high + hair[1])[0]
        assert below <= tail and above <= tail
        inside_below, inside_above = 1 - _tail(law, low + hair[0])[0], _tail(law, high - hair[1])[0]
        if law.direction == "add" or isinstance(law, SubsampledLaw) or law.rate == 1:
            light = min(tail / 2, 1 - law.atom if isinstance(law, SubsampledLaw) else 1) / 2.5
            assert inside_below >= light * (1e-3 if isinstance(law, SubsampledLaw) else 0.8) or low == 0
        assert inside_above >= 0.39 * tail or high <= 1e-9


@pytest.mark.parametrize("corner", [-3.0, -0.2, 0.0, 0.05, 0.8, 4.0])
@pytest.mark.parametrize("law", MANY_LAWS)
def test_a_corner_costs_the_quadrature_nothing(law, corner):
    nodes = law.nodes(corner=corner)
    value = np.exp(nodes.log_p) @ np.maximum(-np.expm1(np.minimum(corner - nodes.loss, 0.0)), 0.0)
    assert_allclose(value, law.delta(corner), rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("order", [2.0, 7.5, 40.0])
@pytest.mark.parametrize("law", MANY_LAWS)
def test_large_orders_against_arithmetic_in_thirty_digits(law, order):
    """log E_Q e^{aL}, by an adaptive integral over the output; a dominant far mode is where the rule must reach."""
    with mpmath.workdps(30):
        q, mu, a = mpmath.mpf(law.rate), mpmath.mpf(law.mu), mpmath.mpf(order)

        def ratio(t):
            return 1 - q + q * mpmath.e ** (mu * t - mu**2 / 2)

        def integral(power, low):
            cuts = [low + (a * mu + 14 - low) * k / 40 for k in range(41)]
            return mpmath.quad(lambda t: ratio(t) ** power * mpmath.npdf(t), cuts)

        if isinstance(law, SubsampledLaw):
            exact = integral(a, mu / 2) + integral(1 - a, mu / 2) + law.atom
        elif law.direction == "remove":
            exact = integral(a, mpmath.mpf(-14))
        else:
            exact = integral(1 - a, -a * mu - 14)
        nodes = law.nodes(order)
        found = np.logaddexp.reduce(nodes.log_q + order * nodes.loss)
        assert_allclose(found, float(mpmath.log(exact)), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("rate, mu, order", [(1 - 2.0**-30, 1.0, 41), (0.9999, 1.0, 101), (0.9999, 2.0, 41),
                                             (1 - 2.0**-30, 0.4, 201), (0.99, 0.2, 3001)])  # fmt: skip
def test_a_peak_narrower_than_the_gaussian(rate, mu, order):
    """Added nearly always: e^{aL} pulls far to the left, and L flattens there, which makes a narrow peak.

    The reference is the trapezoidal rule, whose error vanishes exponentially with its step.
    """
    nodes = PoissonLaw(rate, 1 / mu, "add").nodes(order)
    step = 0.002
    t = np.arange(-70, 10, step)
    mixture = np.logaddexp(np.log1p(-rate), np.log(rate) + mu * t - mu**2 / 2)
    exact = np.logaddexp.reduce(norm.logpdf(t) + (1 - order) * mixture) + np.log(step)
    assert_allclose(np.logaddexp.reduce(nodes.log_q + order * nodes.loss), exact, rtol=2e-13)


# --- found by changing the code in small ways


@pytest.mark.parametrize("rate, mu, order", [(0.01, 8.0, 2.5), (0.3, 20.0, 1.5), (0.7, 3.0, 6.0), (0.004, 1.4, 9.0),
                                             (0.1, 1.25, 22.0), (0.5, 1.0, 21.0), (0.6, 1.0, 401.0),
                                             (0.2, 1.0, 401.0), (0.5, 0.5, 201.0), (0.3, 2.0, 31.0)])  # fmt: skip
@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_quadrature_against_the_trapezoidal_rule(rate, mu, order, direction):
    """Whose error vanishes exponentially with its step. The hard case is little noise: there the loss bends sharply."""
    nodes = PoissonLaw(rate, 1 / mu, direction).nodes(order)
    t = np.arange(-40 * 1024, round(order * mu + 40) * 1024) / 1024
    mixture = np.logaddexp(np.log1p(-rate), np.log(rate) + mu * t - mu**2 / 2)
    power = order if direction == "remove" else 1 - order
    exact = logsumexp(norm.logpdf(t) + power * mixture) - np.log(1024)
    assert_allclose(logsumexp(nodes.log_q + order * nodes.loss), exact, rtol=2e-13, atol=2e-13)


def test_a_corner_that_is_no_loss_is_refused():
    for corner in ("x", math.inf, None):
        with pytest.raises(ValueError, match="corner = "):
            PoissonLaw(0.1, 1.0).nodes(corner=corner)


@pytest.mark.parametrize("edges", [[0.0, 2.0, 1.0], [1.0, 0.0, 2.0], [[0.0, 1.0]]])
def test_edges_out_of_order_are_refused(edges):
    with pytest.raises(ValueError, match="edges must be a list of losses in increasing order"):
        loss_masses(PoissonLaw(0.1, 1.0), np.array(edges))


@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.9])
@pytest.mark.parametrize("tail", [1e-3, 1e-9, 0.2])
def test_the_mass_above_the_range_in_closed_form(rate, tail):
    """P(t > s) = (1-q)Φ(-s) + qΦ(mu-s) at the output s of the upper end, within the promise and not a tenth of it."""
    law, mu = PoissonLaw(rate, 0.5), 2.0
    _, high = loss_range(law, tail)
    s = mu / 2 + math.log(math.expm1(high) / rate + 1) / mu
    assert 0.1 * tail < (1 - rate) * norm.sf(s) + rate * norm.sf(s - mu) <= tail * (1 + 1e-9)


def test_few_samples_of_the_subsampled_law_have_its_mean():
    law, size = SubsampledLaw(0.5, 0.5), 100_000
    sample, nodes = law.sample(size, np.random.default_rng(3)), law.nodes()
    for power in (1, 2):
        moment = np.exp(nodes.log_p) @ nodes.loss**power
        assert abs(np.mean(sample**power) - moment) < 5 * np.std(sample**power) / math.sqrt(size)


@pytest.mark.parametrize("law", [SubsampledLaw(1.0, 1.0), GaussianLaw(1.0), PoissonLaw(1.0, 1.0, "add")], ids=repr)
def test_large_orders_without_sampling(law):
    """log E_Q e^{aL} = a(a-1)/2 for N(1, 1) and N(0, 1): the integrand's mode lies a standard deviations out."""
    for order in (5.0, 30.0):
        nodes = law.nodes(order)
        assert_allclose(np.logaddexp.reduce(nodes.log_q + order * nodes.loss), order * (order - 1) / 2, rtol=1e-12)


def test_large_orders_of_a_rate_just_below_1():
    """In the direction 'add' the rule must reach far to the left, until the loss has flattened at -log(1-q)."""
    q, order = 1 - 2.0**-30, 20.0
    nodes = PoissonLaw(q, 1.0, "add").nodes(order)
    t = np.linspace(-60, 20, 400_001)  # the trapezoidal rule of a smooth function that vanishes at both ends
    log_base = -t * t / 2 - math.log(2 * math.pi) / 2
    exact = np.logaddexp.reduce(log_base + (1 - order) * np.logaddexp(math.log(2.0**-30), math.log(q) + t - 0.5))
    assert_allclose(np.logaddexp.reduce(nodes.log_q + order * nodes.loss), exact + math.log(t[1] - t[0]), rtol=1e-11)


def test_range_of_losses_holds_an_atom():
    """More than `tail` of the mass is the atom at 0, and no output has a loss in the gap below it."""
    for law in (SubsampledLaw(0.5, 0.1), SubsampledLaw(0.3, 0.25)):
        low, high = loss_range(law, 0.1)
        assert law.atom > 0.1 and -1e-12 <= low <= 0 < high


@pytest.mark.parametrize("law", [PoissonLaw(0.3, 0.01), PoissonLaw(0.3, 0.01, "add"), SubsampledLaw(0.3, 0.01)])
def test_quadrature_of_far_apart_modes(law):
    """Both masses are 1 where the panels must be narrow, also of a rule for small orders."""
    for order in (0.0, 1.0):
        nodes = law.nodes(order)
        assert_allclose([np.exp(nodes.log_p).sum(), np.exp(nodes.log_q).sum()], 1, rtol=1e-12)


@pytest.mark.parametrize("law", [PoissonLaw(1.0, 0.5, "add"), PoissonLaw(1.0, 0.5), GaussianLaw(0.5)], ids=repr)
def test_very_large_orders_without_sampling(law):
    """log E_Q e^{aL} = a(a-1)mu²/2, mu = 2: without sampling no peak is narrower than φ, and panels are few enough."""
    for order in (30.0, 1e4):
        nodes = law.nodes(order)
        assert_allclose(np.logaddexp.reduce(nodes.log_q + order * nodes.loss), 2 * order * (order - 1), rtol=1e-12)


def test_weights_keep_their_digits_where_the_modes_are_far_apart():
    """The pair is symmetric, and so is the rule: P's weights are Q's, read backwards. t²/2 is as large as 1e5 here."""
    nodes = GaussianLaw(0.002).nodes()
    near = nodes.log_p > -50
    assert_allclose(nodes.log_p[near], nodes.log_q[::-1][near], rtol=0, atol=4e-12)


def test_shares_of_samples_above_a_loss():
    """P(L > L(t)) = (1-p)Φ(-t) + pΦ(mu-t) for t > mu/2; about a third of these outputs come from the Gaussian at 0."""
    p, mu, size = 0.2, 2.5, 300_000
    sample = SubsampledLaw(p, 1 / mu).sample(size, np.random.default_rng(5))
    for t in (1.3, 1.8, 2.3, 3.0):
        share = (1 - p) * norm.sf(t) + p * norm.sf(t - mu)
        found = np.mean(sample > math.log(1 - p + p * math.exp(mu * t - mu**2 / 2)))
        assert abs(found - share) < 4 * math.sqrt(share * (1 - share) / size)


@pytest.mark.parametrize("mu, epsilon", [(1e-16, 1e-16), (1e-15, 1e-15), (1e-12, 3e-12), (1e-8, 1e-8), (1e-6, 3e-6),
                                         (9.9e-6, 2e-6), (1.01e-5, 2e-5), (1e-4, 3e-4)])  # fmt: skip
def test_delta_of_next_to_no_loss(mu, epsilon):
    """Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2) in 60 digits, where both terms are nearly the same."""
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        exact = float(mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2))
    assert_allclose(float(gaussian_delta(mu, epsilon)), exact, rtol=3e-11)
