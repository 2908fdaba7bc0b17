"""Laws on a lattice: chords above, tangents below, exact masses, and errors that are counted."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.fft import next_fast_len
from scipy.special import ndtr
from scipy.stats import binom

from dpteach.laws import (
    GaussianLaw,
    PoissonLaw,
    SubsampledLaw,
    gaussian_delta,
    loss_masses,
    loss_range,
)
from dpteach.numerics.lattice import (
    _WRAPPED,
    Lattice,
    _anchor,
    _contract,
    _reach,
    convolve,
    discretise,
    power,
    regrid,
    tails,
)

LAWS = [
    GaussianLaw(5.0), GaussianLaw(1 / 3.0), PoissonLaw(0.01, 1.0, "remove"), PoissonLaw(0.01, 1.0, "add"),
    PoissonLaw(0.4, 0.5, "remove"), PoissonLaw(0.4, 0.5, "add"), PoissonLaw(1e-4, 0.3, "remove"),
    SubsampledLaw(256 / 60000, 1.3), SubsampledLaw(0.3, 0.5), SubsampledLaw(1.0, 1.0),
    SubsampledLaw(1e-5, 0.25),
]  # fmt: skip
SIDES = ("upper", "lower")
laws = pytest.mark.parametrize("law", LAWS, ids=str)
tilts = pytest.mark.parametrize("tilt", [0.0, 3.5])


def lattice_of(law, side, tilt=0.0, points=400, tail=1e-13):
    low, high = loss_range(law, tail)
    return discretise(law, (high - low) / points, tilt, low, high, side)


def masses(lattice):
    """P mass and Q mass of each point, untilted."""
    p = lattice.weights * np.exp(lattice.log_mass - lattice.tilt * lattice.points)
    return p, p * np.exp(-lattice.points)


def profile(lattice, epsilon):
    """δ(ε) from its definition: Σ P(z)(1 - e^{ε - z})_+ plus what's infinite."""
    excess = -np.expm1(np.minimum(np.subtract.outer(epsilon, lattice.points), 0.0))
    return excess @ masses(lattice)[0] + lattice.infinite


def epsilons(law):
    low, high = loss_range(law, 1e-9)
    return np.unique(np.concatenate([np.linspace(low, high, 301), np.geomspace(1e-6, max(high, 1e-5), 40), [0.0]]))


@pytest.mark.theorem("lem-11-cells", "lem-11-monotone")
@laws
@tilts
def test_chords_lie_above_and_tangents_below_the_exact_profile(law, tilt):
    epsilon = epsilons(law)
    exact = law.delta(epsilon)
    upper, lower = (profile(lattice_of(law, side, tilt), epsilon) for side in SIDES)
    assert np.all(upper >= exact * (1 - 1e-11) - 1e-15)
    assert np.all(lower <= exact * (1 + 1e-11) + 1e-15)
    assert np.max(upper - lower) < 1e-2 and np.any(upper > exact + 1e-9) and np.any(lower < exact - 1e-9)


@laws
def test_the_upper_profile_meets_the_exact_one_on_the_lattice(law):
    lattice = lattice_of(law, "upper")
    inside = lattice.points[2:-2]
    assert_allclose(profile(lattice, inside), law.delta(inside), rtol=1e-9, atol=3e-13)


@laws
@tilts
def test_both_masses_are_kept(law, tilt):
    """Q has mass where P has next to none: what the lattice can't hold of it lies below its first point."""
    for side, slack in zip(SIDES, (1e-11, 1e-3), strict=True):
        lattice = lattice_of(law, side, tilt)
        p, q = masses(lattice)
        assert_allclose(p.sum() + lattice.infinite, 1.0, rtol=1e-12)
        assert_allclose(lattice.weights.sum(), 1.0, rtol=1e-12)
        first = np.array([-np.inf, lattice.points[0] + 1.5 * lattice.step, np.inf])
        out_of_range = loss_masses(law, first)[1][0]
        assert 1 - out_of_range - slack <= q.sum() <= 1 + slack and np.all(lattice.weights >= 0)


@pytest.mark.parametrize("law", [law for law in LAWS if law.rate > 0.1], ids=str)
def test_the_error_falls_with_the_square_of_the_step(law):
    epsilon = epsilons(law)
    gap = [
        np.max(np.abs(profile(lattice_of(law, "upper", points=n), epsilon) - law.delta(epsilon))) for n in (200, 800)
    ]
    assert gap[1] < gap[0] / 8


def test_what_is_out_of_range_goes_to_the_safe_side():
    law, epsilon = GaussianLaw(1.0), np.linspace(-3, 6, 91)
    for side, sign in zip(SIDES, (1, -1), strict=True):
        cut = discretise(law, 0.05, 0.0, -1.0, 1.5, side)
        assert np.all(sign * (profile(cut, epsilon) - law.delta(epsilon)) >= -1e-13)
    assert cut.infinite == 0 and cut.points.max() < 1.6
    upper = discretise(law, 0.05, 0.0, -1.0, 1.5, "upper")
    assert ndtr(-1.1) <= upper.infinite <= ndtr(-1.0)  # P(L > 1.5) = Φ(-1), cut within two cells


@laws
@tilts
@pytest.mark.parametrize("factor", [3, 7])
def test_a_coarser_lattice_stays_on_its_side(law, tilt, factor):
    epsilon = epsilons(law)
    for side, sign in zip(SIDES, (1, -1), strict=True):
        fine = lattice_of(law, side, tilt, points=900)
        coarse = regrid(fine, factor, side)
        assert coarse.step == factor * fine.step and coarse.weights.size <= fine.weights.size / factor + 4
        before, after = profile(fine, epsilon), profile(coarse, epsilon)
        assert np.all(sign * (after - before) >= -1e-11 * before - 1e-15)
        assert_allclose(masses(coarse)[0].sum(), masses(fine)[0].sum(), rtol=1e-12)
        if side == "upper":
            assert_allclose(masses(coarse)[1].sum(), masses(fine)[1].sum(), rtol=1e-11)
            assert np.all(after >= law.delta(epsilon) * (1 - 1e-11) - 1e-15)


def responses(p, epsilon, tilt=0.0):
    """Randomised response: loss epsilon with probability p, else -epsilon; points -epsilon, 0, epsilon."""
    weights = np.array([(1 - p) * math.exp(-tilt * epsilon), 0.0, p * math.exp(tilt * epsilon)])
    return Lattice(weights / weights.sum(), -1, epsilon, 0.0, tilt, math.log(weights.sum()))


@tilts
@pytest.mark.parametrize("n", [2, 3, 60, 1000])
def test_power_of_two_points_is_the_binomial(tilt, n):
    """Deep in the tail, at 1e-60 and below, the tilted sum still has digits; the plain one has only its error bound."""
    p, epsilon = math.exp(0.1) / (1 + math.exp(0.1)), 0.1
    total = power(responses(p, epsilon, tilt), n)
    k = (total.first + np.arange(total.weights.size) + n) / 2  # how many times +epsilon
    tilted = p * math.exp(tilt * epsilon) / (p * math.exp(tilt * epsilon) + (1 - p) * math.exp(-tilt * epsilon))
    truth = np.where(k == np.floor(k), binom.pmf(np.floor(k), n, tilted), 0.0)
    assert np.abs(total.weights - truth).sum() <= total.error
    assert total.error < 1e-9 * max(1, n / 1000) and abs(truth.sum() - 1) <= total.error
    centre = truth > 1e-6
    untilted = np.log(total.weights[centre]) + total.log_mass - tilt * total.points[centre]
    assert_allclose(untilted, binom.logpmf(k[centre], n, p), rtol=1e-6, atol=1e-8)


@laws
def test_power_and_convolve_are_sums(law):
    one = lattice_of(law, "upper", points=150)
    three = power(one, 3)
    direct = np.convolve(np.convolve(one.weights, one.weights), one.weights)
    aligned = np.zeros(direct.size)
    start = three.first - 3 * one.first
    aligned[start : start + three.weights.size] = three.weights
    assert np.abs(aligned - direct).sum() <= three.error
    assert_allclose([three.offset, three.step], [3 * one.offset, one.step])
    x = one.infinite
    assert_allclose(three.infinite, 3 * x - 3 * x**2 + x**3, rtol=1e-9)
    both = convolve(power(one, 2), one)
    start, stop = both.first - 3 * one.first, both.first - 3 * one.first + both.weights.size
    assert np.abs(both.weights - direct[start:stop]).sum() <= both.error
    assert both.log_mass == pytest.approx(3 * one.log_mass, abs=1e-10) and power(one, 1) is one


def test_power_of_an_infinite_loss():
    one = Lattice(np.array([0.5, 0.5]), 0, 1.0, 0.0, 0.0, math.log(0.9), infinite=0.1)
    assert power(one, 10).infinite == pytest.approx(1 - 0.9**10)
    assert convolve(one, one).infinite == pytest.approx(1 - 0.9**2)


@laws
@pytest.mark.parametrize("n", [4, 50])
def test_the_window_holds_all_but_what_is_counted(law, n):
    """Chernoff's window against the sum itself, by repeated squaring of a full convolution."""
    one = lattice_of(law, "upper", points=150)
    low, high = _reach(one, n)
    size = n * (one.weights.size - 1) + 1
    full = np.fft.irfft(np.fft.rfft(one.weights, 2 * size) ** n, 2 * size)[:size]
    index = n * one.first + np.arange(size)
    outside = full[(index < low) | (index > high)].sum()
    assert outside <= _WRAPPED + 1e-13
    assert high - low < size


def test_power_refuses_what_would_fill_the_memory():
    wide = Lattice(np.array([0.5, 0.5]), 0, 1e-9, 0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="steps = 10000000000000 needs .* lattice points .*larger delta"):
        power(wide, 10**13)


@laws
@tilts
def test_tails_are_sums(law, tilt):
    lattice = lattice_of(law, "upper", tilt, points=80)
    z, a, b = tails(lattice)
    p, q = masses(lattice)
    unit = np.exp(lattice.log_mass - tilt * z)
    assert_allclose(a * unit, np.cumsum(p[::-1])[::-1], rtol=1e-10)
    assert_allclose(b * unit * np.exp(-z), np.cumsum(q[::-1])[::-1], rtol=1e-10)


@pytest.mark.parametrize("steps", [2, 37, 400])
@pytest.mark.parametrize("mu", [0.05, 0.6])
def test_gaussian_steps_compose_to_a_gaussian(mu, steps):
    total = mu * math.sqrt(steps)
    epsilon = np.linspace(0, total**2 / 2 + 4 * total, 60)
    exact = gaussian_delta(total, epsilon)
    upper, lower = (profile(power(lattice_of(GaussianLaw(1 / mu), s, tail=1e-17), steps), epsilon) for s in SIDES)
    assert np.all(upper >= exact - 1e-9) and np.all(lower <= exact + 1e-9)
    assert np.max(upper - lower) < 0.01


# --- found by changing the code in small ways


def test_masses_multiply():
    a = Lattice(np.array([0.5, 0.5]), 0, 1.0, 0.0, 0.0, math.log(0.9), infinite=0.1)
    b = Lattice(np.array([0.25, 0.75]), 2, 1.0, 0.5, 0.0, math.log(0.8), infinite=0.2)
    both = convolve(a, b)
    assert_allclose(both.points, [2.5, 3.5, 4.5])
    assert_allclose(masses(both)[0], 0.72 * np.array([0.125, 0.5, 0.375]), rtol=1e-12)
    assert both.infinite == pytest.approx(1 - 0.9 * 0.8)


def test_rounding_is_counted_by_the_norm_of_the_sum():
    """Σ|φ|^{2n} over all frequencies is size · Σ_k pmf(k)² (Parseval); the half spectrum counts frequency 0 twice."""
    n, p = 10**6, 0.3
    one = Lattice(np.array([1 - p, p]), 0, 0.1, 0.0, 0.0, 0.0)
    low, high = _reach(one, n)
    size = next_fast_len(high - low + 1, real=True)
    norm = math.sqrt(size * np.sum(binom.pmf(np.arange(low, high + 1), n, p) ** 2) + 1)
    rounding = 4 * n * 2.0**-53 * math.log2(size) * norm
    assert_allclose(power(one, n).error, rounding + 2e-11, rtol=1e-6)


@pytest.mark.parametrize("law", [PoissonLaw(0.4, 0.5, "remove"), PoissonLaw(1e-4, 0.3, "remove")], ids=str)
def test_a_coarser_lattice_from_below_loses_little(law):
    """The heaviest cell's mean lies on its point: fallen by a step it alone would cost more than a hundredth."""
    fine, epsilon = lattice_of(law, "lower", points=900), epsilons(law)
    lost = profile(fine, epsilon) - profile(regrid(fine, 7, "lower"), epsilon)
    assert -1e-12 < lost.min() and lost.max() < 0.01


def test_window_of_many_small_losses_is_that_of_a_normal_sum():
    """Chernoff: n draws of variance v leave √(2 n v log(2/c)) on either side with probability c at most."""
    n, p = 10**6, 0.3
    one = Lattice(np.array([1 - p, p]), 0, 0.1, 0.0, 0.0, 0.0)
    half = math.sqrt(2 * n * p * (1 - p) * math.log(2 / _WRAPPED))
    assert_allclose(_reach(one, n), [n * p - half, n * p + half], rtol=1e-3)


def test_rounding_of_a_convolution_is_counted():
    """Three transforms, each off by log2(size) roundings in the norm; √size more in the sum of absolute values."""
    one = lattice_of(GaussianLaw(1.0), "upper", points=1000)
    size = 2 * one.weights.size
    assert convolve(one, one).error - 2 * one.error >= 3 * 2.0**-53 * math.log2(size) * math.sqrt(size)


def test_largest_lattice_is_told():
    with pytest.raises(ValueError, match="at most 4194304"):
        power(Lattice(np.array([0.5, 0.5]), 0, 1e-9, 0.0, 0.0, 0.0), 10**13)
    with pytest.raises(ValueError, match=r"high = 1.0 .*0.41943"):
        discretise(GaussianLaw(1.0), 1e-7, 0.0, 0.0, 1.0, "upper")


def test_lattice_covers_the_range_and_ends_within_a_step():
    law, low, high, step = GaussianLaw(1.0), -1.03, 1.52, 0.1
    lower, upper = (discretise(law, step, 0.0, low, high, side) for side in SIDES[::-1])
    assert low - step < lower.points[0] <= low and high <= lower.points[-1] < high + step
    assert upper.points.size == lower.points.size + 1  # half a cell lies above `high`: split onto one point more
    top = upper.points[-1] - step / 2
    assert_allclose(upper.infinite, ndtr(0.5 - top), rtol=1e-12)  # L is normal with mean 1/2 and deviation 1


@laws
def test_heaviest_cell_is_anchored_at_its_mean(law):
    """The mean ratio P/Q of the cell around the anchor is e^anchor, to a twentieth of a step."""
    low, high = loss_range(law, 1e-13)
    step = (high - low) / 60
    anchor = _anchor(law, step, low, high)
    p, q = loss_masses(law, np.array([anchor - step / 2, anchor + step / 2]))
    assert abs(math.log(p[0] / q[0]) - anchor) < step / 20


@pytest.mark.parametrize("points", [20, 60, 150])
def test_a_cluster_narrower_than_a_cell_costs_nothing_above(points):
    """A loss split onto two points h apart costs tanh(h/4) of its mass at most; here 3 % lie outside the cluster."""
    law = PoissonLaw(0.03, 0.2, "remove")
    lattice, epsilon = lattice_of(law, "upper", points=points), epsilons(law)
    assert np.max(profile(lattice, epsilon) - law.delta(epsilon)) < 0.03 * math.tanh(lattice.step / 4)


@pytest.mark.parametrize("points", range(20, 60, 4))
def test_heaviest_cell_does_not_fall_on_a_coarse_lattice(points):
    """Nearly all mass lies in one narrow cell: fallen by a step it alone would cost nearly the step."""
    law = PoissonLaw(4e-4, 1.3, "add")
    lattice, epsilon = lattice_of(law, "lower", points=points), epsilons(law)
    assert np.max(law.delta(epsilon) - profile(lattice, epsilon)) < lattice.step / 10


def test_contraction_tells_how_far_the_heaviest_mean_lies_from_its_point():
    step, away = 0.1, 0.001
    mass, shift = _contract(np.array([0.0, 0.3, 0.0]), np.array([0.0, 0.3 * math.exp(-away), 0.0]), step, 0.0)
    assert_allclose(mass, [0.0, 0.3, 0.0])
    assert shift == pytest.approx(away, rel=away)  # e^away - 1 is taken for it


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_contraction_takes_the_share_that_balances(share):
    """A cell of mean ratio too low, and one of mass 0.3 on the next point, which makes up 0.3(1 - e^{-h}) in all."""
    step = 0.1
    p, q = np.array([0.0, 0.4, 0.3, 0.0]), np.array([0.0, 0.4 + share * 0.3 * -math.expm1(-step), 0.3, 0.0])
    mass, _ = _contract(p, q, step, 0.0)
    assert_allclose(mass, [0.0, 0.4 + share * 0.3, (1 - share) * 0.3, 0.0], atol=1e-6)


def test_contraction_of_light_cells_is_that_of_heavy_ones():
    """Three cells with means 0.3, -0.1 and 0.2 steps off their points: the first is joined to the second."""
    step = 1e-5
    p = np.array([0.0, 0.2, 0.4, 0.4, 0.0])
    q = p * np.exp(-step * np.array([0.0, 0.3, -0.1, 0.2, 0.0]))
    heavy, light = _contract(p, q, step, 0.0)[0], _contract(1e-9 * p, 1e-9 * q, step, 0.0)[0]
    assert heavy[1] == 0 and heavy.sum() == pytest.approx(1.0)
    assert_allclose(light * 1e9, heavy, atol=1e-6)


def test_power_of_a_certain_loss():
    total = power(Lattice(np.array([1.0]), 3, 0.5, 0.25, 0.0, 0.0), 7)
    assert total.points.tolist() == [12.25] and total.weights.tolist() == [1.0]


def test_largest_lattice_is_allowed(monkeypatch):
    """n coins have n + 1 sums: 16 of them for n = 15."""
    monkeypatch.setattr("dpteach.numerics.lattice._MAX_POINTS", 16)
    coin = Lattice(np.array([0.5, 0.5]), 0, 1.0, 0.0, 0.0, 0.0)
    assert_allclose(power(coin, 15).weights, binom.pmf(np.arange(16), 15, 0.5), rtol=1e-9)
    with pytest.raises(ValueError, match=r"steps = 16 needs 18 lattice points \(at most 16\)"):
        power(coin, 16)


def test_a_regrid_whose_tilt_overflows_is_refused():
    fine = discretise(GaussianLaw(1.0), 0.5, 200.0, -8.0, 9.0, "upper")
    for side in ("upper", "lower"):
        with pytest.raises(ValueError, match="tilt · step = .*regrid by a smaller factor"):
            regrid(fine, 7, side)
