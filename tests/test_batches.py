"""Random allocation, shuffled passes, truncation: against quadrature, enumeration, Monte Carlo."""

import itertools
import json
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from dpteach.__main__ import main
from dpteach.accountants import account
from dpteach.batches import (
    Between,
    RandomAllocation,
    SlicedPair,
    Strongest,
    TruncatedLaw,
    fixed_size_slices,
    revealed_order,
    shuffled_event_delta,
    shuffled_slices,
    truncation,
)
from dpteach.guarantees import GaussianGuarantee
from dpteach.numerics.ratios import contract_cells, on_losses, split_cells, tilted
from dpteach.report import statement, to_markdown
from dpteach.run import RELATIONS, SAMPLINGS, NoisySGD
from dpteach.tensor_power import TensorPower


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


@pytest.mark.theorem("thm-21-allocation")
@pytest.mark.parametrize(("batches", "sigma", "epsilon", "remove", "add"), EXACT)
def test_few_batches_against_quadrature(batches, sigma, epsilon, remove, add):
    low, high = both(allocation(batches, sigma), epsilon)
    assert low <= remove <= high < low + 1e-4
    assert add < low  # the worse direction is asked for


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize(("batches", "sigma", "epsilon", "remove", "add"), EXACT)
def test_each_direction_by_itself(batches, sigma, epsilon, remove, add, direction):
    way = ("remove", "add")[direction]
    low, high = allocation(batches, sigma).delta_of(way, epsilon)
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
    low, high = allocation(batches, sigma).delta_of("remove", epsilon)
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
        low, high = bracket.delta_of(way, epsilon)
        assert low - 3 * error <= found <= high + 3 * error
        assert high - low < 2e-4


@pytest.mark.theorem("thm-21-allocation")
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
    low, high = allocation(batches, sigma, epochs).delta_of("remove", epsilon)
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


@pytest.mark.theorem("prop-21-shuffled-lower")
def test_shuffled_events_against_quadrature():
    assert shuffled_event_delta(1.3, 235, 0.1) == pytest.approx(0.018443, abs=1e-6)
    assert shuffled_event_delta(1.3, 235, 1.0) == pytest.approx(0.000159739, abs=1e-9)
    assert 0.2206 < shuffled_event_delta(1.0, 2, 0.5) <= 0.221269  # the pair, exact
    assert shuffled_event_delta(1.0, 10, 1.0) == pytest.approx(0.0757295, abs=1e-7)


@pytest.mark.theorem("prop-21-shuffled-lower")
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


@pytest.mark.theorem("prop-21-revealed")
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


@pytest.mark.theorem("prop-21-bracket")
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


# --- a record is replaced under Poisson sampling, and batches that are cut


def test_replaced_law_against_quadrature():
    from dpteach.laws import ReplacedLaw

    assert float(ReplacedLaw(0.3, 0.5).delta(0.3)) == pytest.approx(0.108069186, abs=1e-9)
    assert float(ReplacedLaw(0.01, 1.0).delta(0.01)) == pytest.approx(0.000839644, abs=1e-9)
    for rate, sigma, epsilon, exact in ((0.3, 0.5, 0.3, 0.198084), (0.01, 1.0, 0.01, 0.00196642)):
        power = TensorPower(laws=(ReplacedLaw(rate, sigma),), steps=2)
        assert power.lower.delta(epsilon) <= exact + 1e-6
        assert power.upper.delta(epsilon) >= exact - 1e-6
        assert power.upper.delta(epsilon) < 1.002 * power.lower.delta(epsilon)


@pytest.mark.theorem("thm-21-replaced")
@pytest.mark.parametrize(("rate", "sigma"), [(0.3, 0.5), (0.01, 1.0), (1e-4, 0.6), (1.0, 2.0)])
@mpmath.workdps(30)
def test_replaced_law_in_all_its_views(rate, sigma):
    from mpmath import mp, mpf, npdf, quad

    from dpteach.laws import ReplacedLaw

    law, h = ReplacedLaw(rate, sigma), 1 / (2 * sigma)
    q = mpf(rate)
    density = lambda x, s: (1 - q) * npdf(x) + q * npdf(x, s * mpf(h))  # noqa: E731
    for epsilon in (0.02, 0.3):
        y = mp.exp(mpf(epsilon))
        gain = lambda x, y=y: density(x, 1) - y * density(x, -1)  # noqa: E731
        root = mp.findroot(gain, float(law.nodes().loss[0] * 0 + _threshold(law, epsilon)))
        exact = float(quad(gain, [root, root + 2, root + 6, root + 20]))
        assert float(law.delta(epsilon)) == pytest.approx(exact, rel=1e-11)
        nodes = law.nodes(corner=epsilon)
        integral = np.exp(nodes.log_p) @ np.maximum(-np.expm1(epsilon - nodes.loss), 0)
        assert integral == pytest.approx(exact, rel=1e-9)
        assert float(law.type_1(epsilon)) == pytest.approx(
            float(quad(lambda x: density(x, -1), [root, root + 2, root + 6, root + 20])), rel=1e-10
        )
    p, q_mass = law.loss_masses([-np.inf, -0.3, 0.0, 0.1, np.inf])
    assert p.sum() == pytest.approx(1, abs=1e-14)
    assert np.allclose(q_mass[::-1].sum(), 1, atol=1e-14)
    back = law.loss_masses([-np.inf, -0.1, 0.0, 0.3, np.inf])[1][::-1]
    assert np.allclose(p, back, rtol=1e-12)  # symmetric
    low, high = law.loss_range(1e-3)
    losses = law.sample(200_000, np.random.default_rng(3))
    assert np.mean(losses < low) < 1.4e-3
    assert np.mean(losses > high) < 1.4e-3
    seen = np.maximum(-np.expm1(0.02 - losses), 0)
    assert abs(seen.mean() - float(law.delta(0.02))) < 5 * seen.std() / 447 + 1e-12


def _threshold(law, epsilon):
    """The observation at which the loss is ε, by bisection on the mixtures' logarithms."""
    h, q = law.mu / 2, law.rate
    low, high = 0.0, 200.0
    for _ in range(200):
        x = (low + high) / 2
        rest = np.log1p(-q) if q < 1 else -np.inf
        up, down = (np.logaddexp(rest, np.log(q) + s * h * x - h * h / 2) for s in (1, -1))
        low, high = (x, high) if up - down < epsilon else (low, x)
    return low


@pytest.mark.theorem("thm-21-replaced")
def test_no_angle_is_worse_than_the_opposite():
    from dpteach.laws import ReplacedLaw

    x = np.linspace(-8, 8, 801)
    w = np.exp(-x**2 / 2)
    w /= w.sum()
    first = 0.7 + 0.3 * np.exp(x - 0.5)
    found = []
    for rho in (-1, -0.5, 0, 0.5, 0.9):
        second = 0.7 + 0.3 * np.exp(rho * x[:, None] + math.sqrt(1 - rho**2) * x[None, :] - 0.5)
        gain = np.maximum(first[:, None] - math.exp(0.3) * second, 0)
        found.append(float(np.sum(w[:, None] * w[None, :] * gain)))
    assert np.allclose(found, [0.10808, 0.09161, 0.06951, 0.03877, 0.00520], atol=2e-5)
    assert max(found) <= float(ReplacedLaw(0.3, 0.5).delta(0.3)) + 1e-5


def test_runs_a_b_c_under_replace_one():
    for noise, steps, expected in ((1.3, 3516, 1.55548), (1.1, 14063, 4.22153), (0.7, 10547, 8.04874)):
        run = NoisySGD.at_rate(256 / 60000, steps=steps, noise_multiplier=noise)
        found = account(run, "replace-one")["tensor-power"]
        assert found.lower.epsilon(1e-5) <= expected + 1e-4
        assert found.upper.epsilon(1e-5) >= expected - 1e-4
        assert found.upper.epsilon(1e-5) < 1.001 * found.lower.epsilon(1e-5)


TRUNCATED = [(5, 0.3, 2, 0.079803, 0.013637), (8, 0.2, 3, 0.041449, 0.000172)]


@pytest.mark.parametrize(("n", "rate", "largest", "remove", "add"), TRUNCATED)
def test_truncated_law_of_one_step(n, rate, largest, remove, add):
    for way, exact in (("remove", remove), ("add", add)):
        law = TruncatedLaw(n, rate, largest, 1.0, way)
        assert float(law.delta(0.2)) == pytest.approx(exact, abs=6e-7)
        assert law.swapped.swapped == law
        nodes = law.nodes(corner=0.2)
        assert np.exp(nodes.log_p).sum() == pytest.approx(1, abs=1e-12)
        gain = np.exp(nodes.log_p) @ np.maximum(-np.expm1(0.2 - nodes.loss), 0)
        assert gain == pytest.approx(exact, abs=6e-7)
        p, q = law.loss_masses([-np.inf, 0.2, np.inf])
        assert [p.sum(), q.sum()] == pytest.approx([1, 1], abs=1e-12)
        losses = law.sample(100_000, np.random.default_rng(4))
        seen = np.maximum(-np.expm1(0.2 - losses), 0)
        assert abs(seen.mean() - exact) < 5 * seen.std() / 316


@pytest.mark.theorem("thm-21-truncated")
@pytest.mark.parametrize("other", [-1, 0, 1])
@pytest.mark.parametrize(("n", "rate", "largest"), [(5, 0.3, 2), (8, 0.2, 3)])
def test_truncated_law_is_above_enumerated_data_sets(n, rate, largest, other):
    """All draws of n records whose others have one gradient; exact where theory-free."""
    x = np.linspace(-16, 16, 32001)

    def density(present):
        means = {}
        for draw in itertools.product((0, 1), repeat=n - 1):
            for own in (0, 1) if present else (0,):
                chance = math.prod(rate if d else 1 - rate for d in draw)
                chance *= (rate if own else 1 - rate) if present else 1
                size = sum(draw) + own
                keep = min(1.0, largest / size) if size else 1.0
                for kept, share in ((1, keep), (0, 1 - keep)) if own else ((0, 1.0),):
                    mean = kept + other * (min(size, largest) - kept)
                    means[mean] = means.get(mean, 0.0) + chance * share
        return sum(w * np.exp(-((x - m) ** 2) / 2) for m, w in means.items()) / math.sqrt(2 * math.pi)

    inside, outside = density(True), density(False)
    for way, (p, q) in (("remove", (inside, outside)), ("add", (outside, inside))):
        exact = np.sum(np.maximum(p - math.exp(0.2) * q, 0)) * (x[1] - x[0])
        assert exact <= float(TruncatedLaw(n, rate, largest, 1.0, way).delta(0.2)) + 1e-9
    if (n, other) == (5, -1):
        gain = np.sum(np.maximum(inside - math.exp(0.2) * outside, 0)) * (x[1] - x[0])
        assert gain == pytest.approx(0.056830, abs=1e-6)


def test_truncated_runs():
    def ends(largest):
        run = NoisySGD(
            n=60000, batch_size=256, steps=3516, noise_multiplier=1.3,
            sampling="truncated-poisson", largest_batch=largest,
        )  # fmt: skip
        found = account(run, "add-remove")["tensor-power"]
        return found.lower.epsilon(1e-5), found.upper.epsilon(1e-5)

    assert ends(300)[1] == pytest.approx(1.23588, abs=5e-4)
    assert ends(300)[1] < 1.24533  # dp-accounting's coarser second part
    low, high = ends(384)  # never cut: the Poisson run
    assert low <= 0.86458
    assert 0.86452 <= high < low + 1e-3


# --- what account answers, and what it refuses

FACTS = {"n": 1000, "batch_size": 10, "noise_multiplier": 1.0, "epochs": 2}
COVERED = {
    ("poisson", "add-remove"), ("poisson", "zero-out"), ("poisson", "replace-one"),
    ("fixed-size", "replace-one"), ("fixed-size", "zero-out"), ("random-allocation", "add-remove"),
    ("random-allocation", "zero-out"), ("shuffled", "zero-out"), ("shuffled", "replace-one"),
    ("truncated-poisson", "add-remove"),
}  # fmt: skip


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_each_combination_is_answered_or_refused(sampling, relation):
    largest = {"largest_batch": 30} if sampling == "truncated-poisson" else {}
    run = NoisySGD.for_epochs(**FACTS, sampling=sampling, **largest)
    if (sampling, relation) in COVERED:
        found = account(run, relation)["tensor-power"]
        low, high = found.lower.epsilon(1e-5), found.upper.epsilon(1e-5)
        assert 0 <= low <= high < math.inf
        assert found.epsilon(1e-5) == high
        assert found.lower.delta(1.0) <= found.upper.delta(1.0)
        alpha = np.array([0.01, 0.1, 0.5])
        assert np.all(found.upper.f(alpha) <= found.lower.f(alpha) + 1e-9)
        assert sampling in found.assumptions
    else:
        with pytest.raises(ValueError, match=r"isn't covered: .*(ask|draw)"):
            account(run, relation)


@pytest.mark.theorem("prop-21-poisson-zero")
def test_zero_out_is_add_remove_for_poisson_and_allocation():
    for sampling in ("poisson", "random-allocation"):
        run = NoisySGD.for_epochs(**FACTS, sampling=sampling)
        ends = [account(run, relation)["tensor-power"].epsilon(1e-5) for relation in ("add-remove", "zero-out")]
        assert ends[0] == ends[1]


def test_shuffled_runs_leak_more_than_poisson_claims():
    run = NoisySGD.for_epochs(n=60000, batch_size=250, epochs=15, noise_multiplier=1.3, sampling="shuffled")
    found = account(run, "zero-out")
    poisson = account(replace(run, sampling="poisson"), "zero-out")["tensor-power"].epsilon(1e-5)
    assert found["tensor-power"].lower.epsilon(1e-5) > 3 * poisson
    assert found["tensor-power"].epsilon(1e-5) == pytest.approx(16.5262, abs=1e-4)
    for name in set(found) - {"tensor-power"}:
        assert found[name].epsilon(1e-5) == math.inf
        assert "no law of one step" in found[name].reason


@pytest.mark.theorem("prop-21-fixed")
def test_fixed_size_under_zero_out_by_quadrature():
    p, q = fixed_size_slices(0.3, 1.0)
    assert SlicedPair(p=p, q=q, steps=1).delta(0.3) == pytest.approx(0.080460, abs=1e-4)
    p, q = fixed_size_slices(0.01, 1.0)
    assert SlicedPair(p=p, q=q, steps=1).delta(0.1) == pytest.approx(0.00170722, abs=1e-5)
    run = NoisySGD(rate=0.3, steps=1, noise_multiplier=1.0, sampling="fixed-size")
    assert account(run, "zero-out")["tensor-power"].upper.delta(0.3) == pytest.approx(0.165262, abs=1e-5)


def test_runs_by_epochs_have_whole_epochs():
    for facts, word in (
        ({"steps": 150, "sampling": "random-allocation"}, "steps = 150"),
        ({"steps": 150, "sampling": "shuffled"}, "steps = 150"),
        ({"steps": 10, "sampling": "shuffled", "batch_size": 300}, "steps = 10"),
        ({"steps": 4, "sampling": "shuffled", "batch_size": 300}, "n = 1000"),
        ({"steps": 4, "sampling": "poisson", "largest_batch": 30}, "largest_batch = 30"),
        ({"steps": 4, "sampling": "truncated-poisson"}, "largest_batch = None"),
        ({"steps": 4, "sampling": "truncated-poisson", "largest_batch": 0}, "largest_batch = 0"),
        ({"steps": 4, "sampling": "truncated-poisson", "largest_batch": 5, "batch_size": 1000}, "batch_size = 1000"),
    ):
        with pytest.raises(ValueError, match=word):
            NoisySGD(**{"n": 1000, "batch_size": 10, "noise_multiplier": 1.0} | facts)
    with pytest.raises(ValueError, match="rate = 0.3"):
        NoisySGD(rate=0.3, steps=3, noise_multiplier=1.0, sampling="random-allocation")
    with pytest.raises(ValueError, match="epochs = 1.5"):
        NoisySGD.for_epochs(n=1000, batch_size=10, epochs=1.5, noise_multiplier=1.0, sampling="shuffled")
    run = NoisySGD.for_epochs(n=60000, batch_size=256, epochs=15, noise_multiplier=1.3, sampling="random-allocation")
    assert (run.batches_per_epoch, run.steps) == (235, 3525)


# --- the command line


def told(capsys, *arguments):
    assert main(["account", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_command_line_knows_random_allocation(capsys):
    found = told(
        capsys, "--convention", "add-remove", "--sampling", "random-allocation", "--batches-per-epoch", "235",
        "--epochs", "15", "--sigma", "1.3", "--delta", "1e-5", "--json",
    )  # fmt: skip
    row = found["guarantees"][0]
    assert (row["name"], row["kind"], found["sampling"], found["steps"]) == (
        "tensor-power", "bracket", "random-allocation", 3525,
    )  # fmt: skip
    low, high = row["epsilon"]
    assert low <= 0.8391 <= high < low + 1e-3


def test_the_command_line_knows_phases(capsys):
    found = told(
        capsys, "--convention", "add-remove", "--phases", "1.3:0.0042666666666667:2000,1.6:0.0085333333333:1000",
        "--delta", "1e-5", "--json",
    )  # fmt: skip
    low, high = found["guarantees"][0]["epsilon"]
    assert 0 < low < high < low + 1e-3
    assert [phase["steps"] for phase in found["phases"]] == [2000, 1000]


def test_the_command_line_takes_sigma_in_the_relations_unit(capsys):
    found = told(
        capsys, "--relation", "replace-one", "--sampling", "poisson", "--rate", "0.01", "--steps", "10",
        "--sigma", "1.5", "--delta", "1e-5", "--json",
    )  # fmt: skip
    assert found["noise_multiplier"] == 3.0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--sampling", "shuffled", "--batches-per-epoch", "10", "--epochs", "1", "--sigma", "1"], "isn't covered"),
        (["--sampling", "poisson", "--batches-per-epoch", "10", "--epochs", "1", "--sigma", "1"], "batches-per-epoch"),
        (["--phases", "1:0.1:5", "--sigma", "1"], "--sigma"),
        (["--phases", "1:0.1:5", "--rate", "0.1"], "--rate"),
        (["--rate", "0.1", "--steps", "5"], "sigma = None"),
        (["--sampling", "shuffled", "--batches-per-epoch", "9", "--epochs", "1.5", "--sigma", "1"], "epochs = 1.5"),
    ],
)
def test_the_command_line_refuses_with_one_line(capsys, arguments, word):
    assert main(["account", "--relation", "add-remove", "--delta", "1e-5", *arguments]) == 2
    error = capsys.readouterr().err
    assert word in error
    assert error.count("\n") == 1


def test_a_bad_plan_on_the_command_line(capsys):
    with pytest.raises(SystemExit):
        main(["account", "--relation", "add-remove", "--delta", "1e-5", "--phases", "1:2"])
    assert "SIGMA:RATE:STEPS" in capsys.readouterr().err


def test_the_statement_of_shuffled_passes_says_what_it_is():
    run = NoisySGD.for_epochs(n=1000, batch_size=10, epochs=2, noise_multiplier=1.0, sampling="shuffled")
    facts = statement(run, "zero-out", 1e-5)
    assert facts["quoted"]["epsilon"] == pytest.approx(revealed_order(1.0, 2).epsilon(1e-5))
    assert any("even if the order is published" in warning for warning in facts["warnings"])
    assert "chapter 21" in to_markdown(facts)


# --- what the sides rest on, where it shows


def test_the_mass_above_the_largest_ratio_counts():
    """One batch is the Gaussian; at small δ what's cut off is as large as δ itself."""
    for epsilon in (4.0, 5.0, 5.5, 6.0):
        exact = GaussianGuarantee(mu=1.0).delta(epsilon)
        low, high = allocation(1, 1.0).delta_of("remove", epsilon)
        assert low <= exact <= high * (1 + 1e-9)


@pytest.mark.parametrize("step", [0.5, 0.2])
def test_one_ratio_on_a_coarse_lattice_keeps_its_side(step):
    """Calls (remove) and puts (add) of the lognormal ratio, on a lattice so coarse that it shows."""
    from scipy.special import ndtr

    from dpteach.batches import _one_ratio

    z = lambda t: np.log(t) + 0.5  # noqa: E731
    points = step * np.arange(int(40 / step) + 1)
    for t in (0.13, 0.4, 0.7, 1.1, 2.3):
        call = ndtr(1 - z(t)) - t * ndtr(-z(t))
        exact = {"remove": call, "add": call - 1 + t}
        for way, sign in (("remove", 1), ("add", -1)):
            for side, above in (("upper", 1), ("lower", -1)):
                mass, infinite = _one_ratio(1.0, step, points.size - 1, way, side)
                found = mass @ np.maximum(sign * (points[: mass.size] - t), 0) + infinite
                assert above * (found - exact[way]) >= -1e-12


def test_the_limit_of_replaced_records():
    run = NoisySGD.at_rate(0.001, steps=100_000, noise_multiplier=1.0)
    found = account(run, "replace-one")
    assert found["clt"].epsilon(1e-4) == pytest.approx(found["tensor-power"].epsilon(1e-4), rel=0.02)
