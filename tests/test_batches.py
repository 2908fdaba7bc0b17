"""Random allocation, shuffled passes, truncation: against quadrature, enumeration, Monte Carlo."""

import itertools
import math

import numpy as np
import pytest

from dpteach.batches import (
    Between,
    RandomAllocation,
    SlicedPair,
    Strongest,
    revealed_order,
    shuffled_event_delta,
    shuffled_slices,
    truncation,
)
from dpteach.guarantees import GaussianGuarantee
from dpteach.numerics.ratios import contract_cells, on_losses, split_cells, tilted


def allocation(batches, sigma, epochs=1):
    return RandomAllocation(sigma=sigma, batches=batches, epochs=epochs)


def both(guarantee, epsilon):
    return guarantee.lower.delta(epsilon), guarantee.upper.delta(epsilon)


# Closed inner integral and Gauss-Legendre outside, independent of the package: remove, add.
EXACT = [
    (2, 1.0, 0.2, 0.2320795908, 0.2294222108),
    (2, 1.0, 1.0, 0.0592065187, 0.0501976624),
    (2, 1.3, 0.5, 0.0781783086, 0.0744386919),
    (3, 1.0, 0.5, 0.1068406436, 0.0980949441),
]


@pytest.mark.parametrize(("batches", "sigma", "epsilon", "remove", "add"), EXACT)
def test_few_batches_against_quadrature(batches, sigma, epsilon, remove, add):
    low, high = both(allocation(batches, sigma), epsilon)
    assert low <= remove <= high < low + 1e-4
    assert add < low  # the worse direction is asked for


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize(("batches", "sigma", "epsilon", "remove", "add"), EXACT)
def test_each_direction_by_itself(batches, sigma, epsilon, remove, add, direction):
    way = ("remove", "add")[direction]
    low, high = allocation(batches, sigma)._one_delta(way, epsilon)
    assert low <= (remove, add)[direction] <= high < low + 2e-4


@pytest.mark.parametrize("batches", [2, 3, 4])
def test_a_grid_of_outputs_for_at_most_four_batches(batches):
    """Enumerate all cells of a grid of the B outputs: a lower bound for the pair that converges."""
    sigma, epsilon = 1.5, 0.3
    cuts = np.linspace(-6, 7, 41)
    centre = (cuts[1:] + cuts[:-1]) / 2
    weights = np.exp(-(centre**2) / (2 * sigma**2))
    weights /= weights.sum()
    ratio = np.exp((centre - 0.5) / sigma**2)
    delta = 0.0
    shape = np.meshgrid(*[np.arange(centre.size)] * batches, indexing="ij")
    q = math.prod(weights[k] for k in shape)
    mean = sum(ratio[k] for k in shape) / batches
    delta = float(np.sum(q * np.maximum(mean - math.exp(epsilon), 0)))
    low, high = allocation(batches, sigma)._one_delta("remove", epsilon)
    assert abs(delta - (low + high) / 2) < 0.01 * high  # the grid's own error


# (B, σ, E, ε), and Monte Carlo estimates with their standard errors: remove, add.
SIMULATED = [
    (235, 1.3, 1, 0.05, 0.006657, 1.9e-5, 0.006446, 1.8e-5),
    (235, 1.3, 15, 0.2, 0.02600, 2.1e-4, 0.02582, 2.1e-4),
    (10, 1.0, 2, 0.5, 0.07118, 2.4e-4, 0.06281, 2.2e-4),
]


@pytest.mark.parametrize("case", SIMULATED)
def test_recorded_simulations(case):
    batches, sigma, epochs, epsilon, remove, remove_error, add, add_error = case
    bracket = allocation(batches, sigma, epochs)
    for way, found, error in (("remove", remove, remove_error), ("add", add, add_error)):
        low, high = bracket._one_delta(way, epsilon)
        assert low - 3 * error <= found <= high + 3 * error
        assert high - low < 2e-4


def test_a_fresh_simulation():
    batches, sigma, epochs, epsilon, runs = 5, 1.2, 3, 0.4, 200_000
    rng = np.random.default_rng(21)
    loss = np.zeros(runs)
    for _ in range(epochs):
        x = sigma * rng.standard_normal((runs, batches))
        x[:, 0] += 1  # the record's batch: the first, without loss of generality
        loss += np.log(np.mean(np.exp((x - 0.5) / sigma**2), axis=1))
    seen = np.maximum(-np.expm1(epsilon - loss), 0)
    error = 3.5 * seen.std() / math.sqrt(runs)
    low, high = allocation(batches, sigma, epochs)._one_delta("remove", epsilon)
    assert low - error < seen.mean() < high + error


def test_the_reference_run():
    bracket = allocation(235, 1.3)
    low, high = bracket.lower.epsilon(1e-5), bracket.upper.epsilon(1e-5)
    assert low <= 0.197546 <= high <= low + 1e-3
    ways = bracket.details(1e-5)["directions"]
    assert ways["add"][0] <= 0.185962 <= ways["add"][1] <= ways["add"][0] + 1e-3
    whole = allocation(235, 1.3, 15)
    assert whole.upper.epsilon(1e-5) - whole.lower.epsilon(1e-5) < 1e-3
    assert whole.upper.epsilon(1e-5) < 0.8632  # Poisson batches of the same rate, as many steps


def test_one_batch_is_the_gaussian():
    low, high = (getattr(allocation(1, 1.0), end).epsilon(1e-5) for end in ("lower", "upper"))
    exact = GaussianGuarantee(mu=1.0).epsilon(1e-5)
    assert low <= exact <= high * (1 + 1e-12)
    assert high - low < 1e-3


def test_the_upper_end_is_never_above_published_allocation():
    bracket = allocation(100, 0.3, 2)
    assert bracket.lower.epsilon(1e-5) <= bracket.upper.epsilon(1e-5)
    assert bracket.upper.epsilon(1e-5) == revealed_order(0.3, 2).epsilon(1e-5)


def test_curves_are_ordered():
    bracket = allocation(10, 1.0)
    alpha = np.linspace(0, 1, 41)
    lower_f, upper_f = bracket.upper.f(alpha), bracket.lower.f(alpha)
    assert np.all(lower_f <= upper_f + 1e-12)
    assert np.max(upper_f - lower_f) < 1e-3
    for epsilon in (0.1, 0.5, 1.0):  # each curve lies above the line of its own δ(ε)
        line = 1 - bracket.upper.delta(epsilon) - math.exp(epsilon) * alpha
        assert np.all(upper_f >= line - 1e-9)


def test_shuffled_events_against_quadrature():
    assert shuffled_event_delta(1.3, 235, 0.1) == pytest.approx(0.018443, abs=1e-6)
    assert shuffled_event_delta(1.3, 235, 1.0) == pytest.approx(0.000159739, abs=1e-9)
    assert 0.2206 < shuffled_event_delta(1.0, 2, 0.5) <= 0.221269  # the pair, exact
    assert shuffled_event_delta(1.0, 10, 1.0) == pytest.approx(0.0757295, abs=1e-7)


def test_shuffled_slices_are_below_the_pair():
    for sigma, batches, steps, epsilon, pair, error in (
        (1.0, 10, 1, 1.0, 0.07640, 1.9e-4),
        (1.0, 10, 2, 0.5, 0.26792, 3.3e-4),
        (1.3, 235, 1, 0.1, 0.02434, 1.4e-4),
        (1.3, 235, 1, 0.5, 0.00154, 4e-5),
    ):
        p, q = shuffled_slices(sigma, batches)
        found = SlicedPair(p=p, q=q, steps=steps).delta(epsilon)
        assert 0.7 * pair < found <= pair + 3 * error
    p, q = shuffled_slices(1.3, 235)
    assert SlicedPair(p=p, q=q, steps=15).delta(1.0) == pytest.approx(0.013707, rel=1e-3)


def test_one_pass_of_slices_is_the_event():
    p, q = shuffled_slices(1.3, 235)
    for epsilon in (0.1, 1.0):
        found, event = SlicedPair(p=p, q=q, steps=1).delta(epsilon), shuffled_event_delta(1.3, 235, epsilon)
        assert 0.99 * event < found < 1.02 * event


def test_slices_of_a_coin_by_hand():
    """Randomised response, twice: δ(ε) by enumeration."""
    p, q = np.array([0.7, 0.3]), np.array([0.3, 0.7])
    for epsilon in (0.0, 0.5, 1.0):
        exact = sum(
            max(np.prod(p[list(k)]) - math.exp(epsilon) * np.prod(q[list(k)]), 0)
            for k in itertools.product((0, 1), repeat=2)
        )
        found = SlicedPair(p=p, q=q, steps=2).delta(epsilon)
        assert found <= exact + 1e-12
        assert found > 0.97 * exact


def test_published_orders():
    assert revealed_order(1.3, 15).epsilon(1e-5) == pytest.approx(16.5262, abs=1e-4)
    assert revealed_order(0.65, 15).epsilon(1e-5) == pytest.approx(42.4114, abs=1e-4)
    assert revealed_order(1.3, 1).epsilon(1e-5) == pytest.approx(3.2388, abs=1e-4)


@pytest.mark.parametrize(("n", "rate", "largest"), [(5, 0.3, 2), (8, 0.2, 3), (6, 0.5, 6), (4, 0.9, 1)])
def test_truncation_by_enumeration(n, rate, largest):
    """All 2^n draws; a full batch keeps a uniform subset."""
    full = kept = cut = 0.0
    for draw in itertools.product((0, 1), repeat=n):
        weight = math.prod(rate if d else 1 - rate for d in draw)
        others, size = sum(draw[1:]), sum(draw)
        cut += weight * (size > largest)
        if others >= largest:
            full += weight
            kept += weight * draw[0] * largest / size
    pi, inside, psi = truncation(n, rate, largest)
    assert pi == pytest.approx(full, abs=1e-12)
    assert psi == pytest.approx(cut, abs=1e-12)
    if full:
        assert inside == pytest.approx(kept / full, rel=1e-12)


def test_truncation_of_the_reference_run():
    for largest, expected in ((300, 11.4), (340, 7.9e-4), (352, 1.8e-5), (384, 1.1e-10)):
        cut = truncation(60000, 256 / 60000, largest)[2]
        assert 3516 * cut == pytest.approx(expected, rel=0.04)


def test_joined_ends():
    low, high = revealed_order(2.0, 1), revealed_order(1.0, 1)
    assert Strongest(parts=(low, high)).epsilon(1e-5) == low.epsilon(1e-5)
    assert Strongest(parts=(low, high)).delta(1.0) == low.delta(1.0)
    assert float(Strongest(parts=(low, high)).f(0.1)) == float(low.f(0.1))
    assert Between(low=low, high=high).epsilon(1e-5) == high.epsilon(1e-5)
    p, q = np.array([0.7, 0.3]), np.array([0.3, 0.7])
    slices = [SlicedPair(p=p, q=q, steps=steps) for steps in (1, 2)]
    assert Strongest(parts=tuple(slices)).delta(0.5) == slices[1].delta(0.5)
    with pytest.raises(ValueError, match="of one kind"):
        Strongest(parts=(low, slices[0]))


def test_refusals():
    with pytest.raises(ValueError, match="batches = 0"):
        allocation(0, 1.0)
    with pytest.raises(ValueError, match="sigma = -1"):
        allocation(3, -1.0)
    with pytest.raises(ValueError, match="epochs = 0.5"):
        allocation(3, 1.0, 0.5)
    with pytest.raises(ValueError, match="p and q"):
        SlicedPair(p=np.ones(2) / 2, q=np.ones(3) / 3, steps=1)
    with pytest.raises(ValueError, match="largest = 0"):
        truncation(5, 0.3, 0)


# --- the lattices under it


def convex_means(mass, points, thresholds):
    return np.array([mass @ np.maximum(points - t, 0) for t in thresholds])


def test_split_lies_above_and_contraction_below_in_the_convex_order():
    """Against the exact call function of a lognormal ratio, Black and Scholes's formula."""
    from scipy.special import ndtr

    sigma, step, count = 1.0, 0.02, 10000
    z = lambda r: sigma * np.log(np.maximum(r, 1e-300)) + 1 / (2 * sigma)  # noqa: E731
    edges = step * np.arange(count + 1)
    cells = [np.diff(ndtr(z(edges) - s)) for s in (0, 1 / sigma)]
    upper = split_cells(*cells, step)
    around = np.append(0.0, edges + step / 2)
    middle = [np.diff(ndtr(z(around) - s)) for s in (0, 1 / sigma)]
    down, up = (contract_cells(*middle, step, rest) for rest in ("down", "up"))
    thresholds = np.linspace(0.013, 20, 200)
    exact = ndtr(-(z(thresholds) - 1 / sigma)) - thresholds * ndtr(-z(thresholds))
    tail = ndtr(-(z(edges[-1]) - 1 / sigma))
    assert np.all(convex_means(upper, edges, thresholds) >= exact - tail - 1e-12)
    assert np.all(convex_means(down, edges, thresholds) <= exact + 1e-12)
    puts = exact - 1 + thresholds  # (t - r)+ for the decreasing functions
    put_means = np.array([up @ np.maximum(t - edges, 0) for t in thresholds])
    assert np.all(put_means <= puts + 1e-12)
    assert np.max(np.abs(convex_means(upper, edges, thresholds) - exact)) < 1e-3
    assert np.max(np.abs(convex_means(down, edges, thresholds) - exact)) < 1e-3
    assert np.max(np.abs(put_means - puts)) < 1e-3
    assert upper.sum() == pytest.approx(1 - (1 - ndtr(z(edges[-1]))), abs=1e-12)
    assert down.sum() <= 1 + 1e-12
    assert up.sum() <= 1 + 1e-12


def test_losses_of_atoms_on_a_lattice():
    rng = np.random.default_rng(5)
    loss = np.sort(rng.normal(0.1, 0.4, 300))
    p = rng.random(300)
    p /= p.sum()
    for epsilon in (-0.5, 0.0, 0.3, 0.9):
        exact = p @ np.maximum(-np.expm1(epsilon - loss), 0)
        for side, sign in (("upper", 1), ("lower", -1)):
            lattice = on_losses(loss, p, 0.02, side, 0.0, 0.0)
            mass = lattice.weights * math.exp(lattice.log_mass)
            found = mass @ np.maximum(-np.expm1(epsilon - lattice.points), 0)
            assert 0 <= sign * (found - exact) + 1e-13 < 2e-2


def test_tilting_keeps_the_law():
    mass, points = np.array([0.2, 0.5, 0.3]), np.array([-1.0, 0.0, 1.0])
    for slope in (-2.0, 0.0, 3.0):
        lattice = tilted(mass, points, -1, 1.0, slope)
        back = lattice.weights * np.exp(lattice.log_mass - slope * lattice.points)
        assert np.allclose(back, mass, rtol=1e-14)
