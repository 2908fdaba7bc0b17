"""Random allocation, shuffled passes, truncated Poisson batches: what's proved of each (chapter 21).

σ is the standard deviation of the noise on the sum of clipped gradients, divided by the sensitivity
that the function's relation has: C for add-remove and zero-out, 2C for replace-one. Epochs are
independent: each draws its allocation, or its order, anew.

==================  ======================================  ======================================
batches             relation                                 what's proved
==================  ======================================  ======================================
random allocation   add-remove, zero-out                     a bracket of the exact privacy
shuffled passes     zero-out, replace-one                    two ends far apart
truncated Poisson   add-remove                               two ends, near for a large maximum
fixed size          zero-out                                 two ends
==================  ======================================  ======================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtrc, logsumexp, ndtr, ndtri

from dpteach import domain
from dpteach.guarantees import Bracket, GaussianGuarantee, Guarantee, Kind
from dpteach.laws import Law, Nodes, PoissonLaw, SubsampledLaw
from dpteach.numerics.lattice import Side, power, tails
from dpteach.numerics.ratios import contract_cells, on_losses, split_cells, tilted
from dpteach.run import RUN_EXAMPLE, NoisySGD, Relation
from dpteach.tensor_power import Profile, TensorPower, TensorPowerEnd

__all__ = [
    "Between", "RandomAllocation", "SlicedPair", "Strongest", "TruncatedLaw", "Uncut", "bracket",
    "fixed_size_slices", "largest_value", "revealed_order", "shuffled_event_delta",
    "shuffled_slices", "truncation",
]  # fmt: skip

_DIRECTIONS: tuple[Literal["remove", "add"], ...] = ("remove", "add")
_RESOLUTION = 64.0  # lattice points in one standard deviation of a ratio, to begin with
_TOLERANCE = 2e-4  # relative width of ε asked for
_MOST_POINTS = 2**19
_BATCHES = "[1, 1e7]"
_NEVER = 1e-300  # probability of a cut below which there's none


# --- random allocation: a lattice of ratios


def _ratio_masses(sigma: float, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masses and moments ∫ r dQ between edges ≥ 0 of r = e^{(u - 1/2)/σ²}, u ~ N(0, σ²)."""
    with np.errstate(divide="ignore"):
        z = sigma * np.log(edges) + 1 / (2 * sigma)
    return _interval(z), _interval(z - 1 / sigma)


def _interval(z: np.ndarray) -> np.ndarray:
    """Normal probability between consecutive points, from the nearer tail."""
    tail = ndtr(-np.abs(z))
    fall = tail[:-1] - tail[1:]
    around_0 = (z[:-1] <= 0) & (z[1:] > 0)
    return np.where(around_0, 1 - tail[:-1] - tail[1:], np.where(z[:-1] > 0, fall, -fall))


def _one_ratio(
    sigma: float, step: float, count: int, direction: str, side: Side
) -> tuple[np.ndarray, float]:
    """Q masses of r at 0, h, …, and the P mass that's called infinite."""
    y = step * np.arange(count + 1)
    if side == "lower":  # what lies above the last cell is dropped: r = ∞ there in direction add
        edges = np.append(0.0, y + step / 2)
        rest = "down" if direction == "remove" else "up"
        return contract_cells(*_ratio_masses(sigma, edges), step, rest), 0.0
    mass, moment = _ratio_masses(sigma, np.append(y, np.inf))
    split = split_cells(mass[:-1], moment[:-1], step)
    split[0 if direction == "remove" else -1] += mass[-1]
    return split, float(moment[-1]) if direction == "remove" else 0.0


def _ratio_grid(
    sigma: float, batches: int, direction: str, tail: float, resolution: float
) -> tuple[float, int]:
    """Step and number of cells. Above the last one lies P mass `tail`: of the record's own ratio in
    direction remove, where a large ratio is a large loss, and of all B ratios under Q in add."""
    spread = min(1.0, math.sqrt(math.expm1(min(1 / sigma**2, 300.0))))
    spread *= min(1.0, math.sqrt(batches) / 16)  # several sums to one point of the losses
    if direction == "remove":
        z = 1 / sigma - float(ndtri(tail))
    else:
        z = -float(ndtri(tail / batches))
    top = math.exp(min(z / sigma - 1 / (2 * sigma**2), 300.0))
    step = max(spread / resolution, top / _MOST_POINTS)
    return step, math.ceil(top / step) + 1


def _slope(mass: np.ndarray, step: float, batches: int) -> float:
    """The tilt θ of one ratio with the least B·K(θ) - log(θB): what an error of the FFT can become."""
    slopes = np.geomspace(1e-7, 1e3, 21) / (batches * step * mass.size)
    log_mass, y = np.log(np.maximum(mass, 1e-320)), step * np.arange(mass.size)
    worst = [batches * logsumexp(log_mass + s * y) - math.log(s * batches) for s in slopes]
    return float(slopes[np.argmin(worst)])


@lru_cache(maxsize=64)
def _epochs(
    sigma: float, batches: int, epochs: int, direction: str, side: Side, question: tuple[float, float]
) -> Profile:
    tail, resolution = question
    step, count = _ratio_grid(sigma, batches, direction, tail, resolution)
    mass, infinite = _one_ratio(sigma, step, count, direction, side)
    slope = _slope(mass, step, batches) if direction == "remove" else 0.0
    total = power(tilted(mass, step * np.arange(mass.size), 0, step, slope), batches)
    log_q = np.log(np.maximum(total.weights, 1e-320)) + total.log_mass - slope * total.points
    positive = total.points > 0
    loss = np.log(total.points[positive] / batches)
    if direction == "remove":
        p = np.exp(log_q[positive] + loss)
        error = total.error * math.exp(total.log_mass - 1) / (slope * batches)
    else:
        loss, p, error = -loss[::-1], np.exp(log_q[positive])[::-1], total.error
        infinite = float(np.exp(log_q[~positive]).sum()) if side == "upper" else 0.0
    deviation = math.sqrt(max(float(p @ loss**2) - float(p @ loss) ** 2, 1e-300))
    grid = max(deviation / resolution / 2, (loss[-1] - loss[0]) / _MOST_POINTS)
    result = power(on_losses(loss, p, grid, side, infinite, error), epochs)
    return Profile(result, side, *tails(result))


@lru_cache(maxsize=64)
def _epsilon_ends(
    sigma: float, batches: int, epochs: int, direction: str, delta: float, most: float
) -> tuple[float, float]:
    tail, resolution, low, high = 1e-4 * delta / epochs, _RESOLUTION, 0.0, most
    for _ in range(3):
        ends_grid = _ratio_grid(sigma, batches, direction, tail, resolution)
        try:
            ends = _sides(sigma, batches, epochs, direction, (tail, resolution))
        except ValueError:
            break  # the lattice would be too large: what's known so far holds
        low, high = max(low, ends[0].epsilon(delta)), min(high, ends[1].epsilon(delta))
        finer = _ratio_grid(sigma, batches, direction, tail, 4 * resolution)
        if high - low <= _TOLERANCE * high or finer == ends_grid:
            break
        resolution *= 4
    return low, high


def _sides(sigma: float, batches: int, epochs: int, direction: str, question: Any) -> list[Profile]:
    return [_epochs(sigma, batches, epochs, direction, s, question) for s in ("lower", "upper")]


@dataclass(frozen=True, kw_only=True)
class RandomAllocation(Bracket):
    """`epochs` epochs in which each record enters one of `batches` batches, uniformly chosen.

    Neighbours: add-remove or zero-out, σ = noise std / C in [0.05, 1e3]. The dominating pair is
    (1/B)Σ N(e_t, σ²I) against N(0, σ²I), and constant gradients attain it (chapter 21). Both ends
    are computed in double precision, for δ ≥ 1e-8. The upper end is never above √E/σ-GDP, which
    holds even where the allocation is published; with σ below about 0.6 it's often that one.

    >>> bracket = RandomAllocation(sigma=1.3, batches=235, epochs=1)
    >>> low, high = bracket.lower.epsilon(1e-5), bracket.upper.epsilon(1e-5)
    >>> low < 0.197546 < high and high - low < 1e-4
    True
    """

    sigma: float
    batches: int
    epochs: int
    name: str = "tensor-power"
    kind: Kind = "bracket"
    assumptions: str = "random allocation, add-remove or zero-out neighbours"

    def __post_init__(self) -> None:
        domain.set_fields(self, sigma=domain.sigma(self.sigma))
        advice = "it's the number of batches in one epoch"
        batches = domain.whole_number("batches", self.batches, _BATCHES, advice)
        epochs = domain.whole_number("epochs", self.epochs, "[1, 1e6]", "whole passes")
        domain.set_fields(self, batches=batches, epochs=epochs)

    @property
    def lower(self) -> Guarantee:
        return TensorPowerEnd(power=self, kind="lower bound")

    @property
    def upper(self) -> Guarantee:
        return TensorPowerEnd(power=self, kind="upper bound")

    def _ends(self, direction: str, delta: float) -> tuple[float, float]:
        known = revealed_order(self.sigma, self.epochs).epsilon(delta)
        return _epsilon_ends(self.sigma, self.batches, self.epochs, direction, delta, known)

    def epsilon_ends(self, delta: float) -> tuple[float, float]:
        """Both ends of ε at δ: the worse direction's."""
        low, high = zip(*(self._ends(way, delta) for way in _DIRECTIONS), strict=True)
        return max(low), max(high)

    def details(self, delta: float) -> dict[str, Any]:
        return {"directions": {way: list(self._ends(way, delta)) for way in _DIRECTIONS}}

    def delta_ends(self, epsilon: float) -> tuple[float, float]:
        """Both ends of δ at ε: the worse direction's."""
        low, high = zip(*(self.delta_of(way, epsilon) for way in _DIRECTIONS), strict=True)
        return max(low), min(max(high), revealed_order(self.sigma, self.epochs).delta(epsilon))

    def delta_of(self, direction: str, epsilon: float) -> tuple[float, float]:
        """Both ends of δ at ε in one direction."""
        tail, resolution, low, high = 1e-9 / self.epochs, _RESOLUTION, 0.0, 1.0
        for _ in range(3):
            try:
                ends = _sides(self.sigma, self.batches, self.epochs, direction, (tail, resolution))
            except ValueError:
                break
            low = max(low, float(ends[0].delta(epsilon)))
            high = min(high, float(ends[1].delta(epsilon)))
            if high - low <= _TOLERANCE * high:
                break
            tail = min(tail, max(1e-4 * low, 1e-14) / self.epochs)
            resolution *= 4
        return low, high

    def tradeoff_ends(self, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of f, the lower one first."""
        known = revealed_order(self.sigma, self.epochs).f(alpha)
        question = (1e-10 / self.epochs, _RESOLUTION)
        try:
            pairs = [_sides(self.sigma, self.batches, self.epochs, w, question) for w in _DIRECTIONS]
        except ValueError:
            return known, 1 - alpha  # the lattice would be too large
        low, high = (np.min([pair[k].tradeoff(alpha) for pair in pairs], axis=0) for k in (1, 0))
        return np.maximum(low, known), high


# --- shuffled passes, and fixed-size batches under zero-out: two ends


def revealed_order(sigma: float, epochs: int) -> GaussianGuarantee:
    """√E/σ-GDP: of shuffling and of random allocation, even if the order is published. Upper bound.

    One batch of each epoch holds the record; given which, that batch is a Gaussian mechanism
    (DRS22, Theorem 2.7 and Corollary 3.3), and f is convex. σ is noise std / sensitivity under
    zero-out or replace-one.

    >>> round(revealed_order(1.3, 1).epsilon(1e-5), 4)
    3.2388
    """
    epochs = domain.whole_number("epochs", epochs, "[1, 1e6]")
    return GaussianGuarantee(
        mu=math.sqrt(epochs) / domain.sigma(sigma), name="revealed-order", kind="upper bound",
        assumptions="zero-out or replace-one neighbours, order or allocation published",
    )  # fmt: skip


def largest_value(sigma: float, batches: int, shift: float, c: np.ndarray) -> np.ndarray:
    """P(max_t x_t ≤ c) where x has `batches` entries N(0, σ²), one of them moved by `shift`: exact.

    >>> float(largest_value(1.0, 1, 2.0, np.array(2.0)))
    0.5
    """
    c = np.asarray(c, dtype=float)
    return ndtr((c - shift) / sigma) * ndtr(c / sigma) ** (batches - 1)


def shuffled_event_delta(sigma: float, batches: int, epsilon: float) -> float:
    """A δ that one shuffled pass exceeds: sup over c of P(max > c) - e^ε Q(max > c). Lower bound.

    Zero-out neighbours. P has one entry of B moved by 2, Q by 1 (Chua et al. 2024): all other
    gradients are -C, the record's is C, or 0 once it's zeroed.

    >>> round(shuffled_event_delta(1.3, 235, 1.0), 9)
    0.000159739
    """
    sigma, epsilon = domain.sigma(sigma), domain.epsilon(epsilon)
    batches = domain.whole_number("batches", batches, _BATCHES)
    c = np.arange(-2.0, 4 + 40 * sigma, 1e-3 * min(1.0, sigma))
    p, q = (-np.expm1(np.log(largest_value(sigma, batches, s, c))) for s in (2.0, 1.0))
    return float(np.max(p - math.exp(min(epsilon, 700.0)) * q, initial=0.0))


def shuffled_slices(sigma: float, batches: int) -> tuple[np.ndarray, np.ndarray]:
    """P and Q mass of max_t x_t between neighbouring cuts: what one pass shows of (P_S, Q_S).

    >>> p, q = shuffled_slices(1.3, 235)
    >>> round(float(p.sum()), 9), bool(np.all(p >= 0))
    (1.0, True)
    """
    sigma, batches = domain.sigma(sigma), domain.whole_number("batches", batches, _BATCHES)
    middle = sigma * float(ndtri(0.5 ** (1 / batches)))  # of the largest of B
    cuts = np.linspace(min(middle, 0.0) - 6 * sigma, max(middle, 2.0) + 8 * sigma, 4001)
    cuts = np.concatenate([[-np.inf], cuts, [np.inf]])
    p, q = (np.diff(largest_value(sigma, batches, shift, cuts)) for shift in (2.0, 1.0))
    return p, q


@dataclass(frozen=True, kw_only=True)
class SlicedPair(Guarantee):
    """What `steps` independent looks at a pair leak at least, when each shows a slice only.

    p, q : masses of the slices under P and Q, each of sum 1. Whatever the slices are, looking at
    them is post-processing: the number is a lower bound for the pair, in the worse direction.

    >>> p, q = shuffled_slices(1.0, 10)
    >>> round(SlicedPair(p=p, q=q, steps=2).delta(0.5), 3)
    0.265
    """

    p: np.ndarray
    q: np.ndarray
    steps: int
    name: str = "slices"
    kind: Kind = "lower bound"
    assumptions: str = "of the pair given"

    def __post_init__(self) -> None:
        p, q = domain.numbers("p", self.p, "[0, 1]"), domain.numbers("q", self.q, "[0, 1]")
        domain.same_shape(p=p, q=q)
        steps = domain.whole_number("steps", self.steps, "[1, 1e9]")
        domain.set_fields(self, p=p, q=q, steps=steps)
        profiles = tuple(_sliced(a, b, steps) for a, b in ((p, q), (q, p)))
        object.__setattr__(self, "_profiles", profiles)

    def profile(self, epsilon: float) -> float:
        return max(float(p.delta(epsilon)) for p in self._profiles)  # type: ignore[attr-defined]

    def least_epsilon(self, delta: float) -> float:
        return max(p.epsilon(delta) for p in self._profiles)  # type: ignore[attr-defined]

    def tradeoff(self, alpha: np.ndarray) -> np.ndarray:
        curves = [p.tradeoff(alpha) for p in self._profiles]  # type: ignore[attr-defined]
        return np.min(curves, axis=0)


def _sliced(p: np.ndarray, q: np.ndarray, steps: int) -> Profile:
    """The lower law of the pair's slices, composed. A slice without P mass, or whose Q mass has
    underflowed, is left out: that lowers δ."""
    seen = (p > 1e-300) & (q > 1e-300)
    loss = np.log(p[seen] / q[seen])
    order = np.argsort(loss)
    loss, mass = loss[order], p[seen][order]
    deviation = math.sqrt(float(mass @ loss**2) - float(mass @ loss) ** 2)
    kept = np.abs(loss) < 60 * deviation + 5
    step = max(deviation / 100, float(np.ptp(loss[kept])) / _MOST_POINTS)
    total = power(on_losses(loss[kept], mass[kept], step, "lower", 0.0, 0.0), steps)
    return Profile(total, "lower", *tails(total))


def fixed_size_slices(rate: float, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """P and Q mass of slices of one fixed-size step under zero-out, all other gradients -C.

    If the record isn't drawn another takes its place: (1-p) N(0, σ²) + p N(2, σ²) against
    (1-p) N(0, σ²) + p N(1, σ²), σ = noise std / C. The pair is attained, so slices of it are a
    lower bound; that it dominates isn't known (chapter 21).

    >>> p, q = fixed_size_slices(0.3, 1.0)
    >>> round(SlicedPair(p=p, q=q, steps=1).delta(0.3), 4)
    0.0805
    """
    rate, sigma = domain.rate(rate), domain.sigma(sigma)
    cuts = np.concatenate([[-np.inf], np.linspace(-9 * sigma, 2 + 9 * sigma, 8001), [np.inf]])
    base, one, two = (_interval((cuts - shift) / sigma) for shift in (0.0, 1.0, 2.0))
    return (1 - rate) * base + rate * two, (1 - rate) * base + rate * one


# --- truncated Poisson


def truncation(n: int, rate: float, largest: int) -> tuple[float, float, float]:
    """(π, q', Ψ): what a largest batch size changes in Poisson batches of n records.

    π = P(Bin(n-1, q) ≥ M) is the probability that the others alone fill the batch; the record then
    enters with probability q' = M·Ψ/(nπ), by pushing another out. Ψ = P(Bin(n, q) > M) is the
    probability that anything is cut. Exact, from the incomplete beta function.

    >>> pi, rate, cut = truncation(60000, 256 / 60000, 300)
    >>> round(pi, 6), round(rate, 6), round(3516 * cut, 2)
    (0.003872, 0.004188, 11.4)
    """
    n = domain.whole_number("n", n, "[1, 1e9]")
    rate = domain.rate(rate)
    largest = domain.whole_number("largest", largest, f"[1, {n}]", "the largest batch size")
    if largest == n:
        return 0.0, rate, 0.0
    cut = float(bdtrc(largest, n, rate))
    full = float(bdtrc(largest - 1, n - 1, rate))
    return full, largest * cut / (n * full) if full > 0 else rate, cut


@dataclass(frozen=True)
class TruncatedLaw(Law):
    """One truncated Poisson step of at most `largest` of n records, add-remove: an upper bound.

    With probability 1 - π the others leave room, and the step is the Poisson pair (q, σ); with
    probability π they don't, and it's the Poisson pair (q', σ/2): see `truncation`. Which of the
    two it is, is revealed, so profiles and masses are averages (chapter 21).

    >>> round(float(TruncatedLaw(5, 0.3, 2, 1.0).delta(0.2)), 6)
    0.079803
    """

    n: int
    rate: float
    largest: int
    sigma: float
    direction: Literal["remove", "add"] = "remove"

    def __post_init__(self) -> None:
        super().__post_init__()
        domain.require("rate", self.rate, self.rate < 1, "below 1", "at rate 1 all are drawn")
        pi, rate, _ = truncation(self.n, self.rate, self.largest)
        room = (1 - pi, PoissonLaw(self.rate, self.sigma, self.direction))
        full = (pi, PoissonLaw(min(max(rate, 1e-9), 1.0), self.sigma / 2, self.direction))
        kept = (room, full) if pi > _NEVER else (room,)
        domain.set_fields(self, parts=kept)

    @property
    def swapped(self) -> TruncatedLaw:
        """The other direction."""
        return replace(self, direction="add" if self.direction == "remove" else "remove")

    @property
    def limit_mu(self) -> float:
        return math.sqrt(sum(w * part.limit_mu**2 for w, part in self.parts))

    def delta(self, epsilon: ArrayLike) -> np.ndarray:
        return sum(w * part.delta(epsilon) for w, part in self.parts)

    def type_1(self, loss: ArrayLike) -> np.ndarray:
        """Q(L > ε): the type I error of the test that accuses above the loss ε."""
        return sum(w * part.type_1(loss) for w, part in self.parts)

    def nodes(self, order: float = 1.0, corner: float = math.nan) -> Nodes:
        found = [(math.log(w), part.nodes(order, corner)) for w, part in self.parts]
        return Nodes(*(
            np.concatenate([getattr(nodes, name) + (name != "loss") * w for w, nodes in found])
            for name in ("loss", "log_p", "log_q")
        ))  # fmt: skip

    def loss_range(self, tail: float) -> tuple[float, float]:
        ends = [part.loss_range(min(tail / w, 0.2)) for w, part in self.parts]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def loss_masses(self, edges: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        masses = [[w * mass for mass in part.loss_masses(edges)] for w, part in self.parts]
        p, q = np.sum(masses, axis=0)
        return p, q

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        drawn = [part.sample(size, rng) for _, part in self.parts]
        return np.where(rng.random(size) < self.parts[0][0], drawn[0], drawn[-1])


@dataclass(frozen=True, kw_only=True)
class Uncut(Guarantee):
    """What truncated batches leak at least: δ of the untruncated run, less (1 + e^ε)τ.

    τ is the probability that anything is cut in the whole run. Chapter 21, by coupling.

    >>> Uncut(poisson=revealed_order(1.0, 1), tau=0.0, kind="lower bound").kind
    'lower bound'
    """

    poisson: Guarantee
    tau: float
    name: str = "uncut"
    kind: Kind = "lower bound"
    assumptions: str = "truncated Poisson batches, add-remove neighbours"

    def profile(self, epsilon: float) -> float:
        cost = self.tau * (1 + math.exp(min(epsilon, 700.0)))
        return max(self.poisson.profile(epsilon) - cost, 0.0)


# --- putting ends together


@dataclass(frozen=True, kw_only=True)
class Strongest(Guarantee):
    """The best of several guarantees of one kind: the least upper bound, or the greatest lower one.

    >>> both = Strongest(parts=(revealed_order(1.0, 1), revealed_order(2.0, 1)))
    >>> both.epsilon(1e-5) == revealed_order(2.0, 1).epsilon(1e-5)
    True
    """

    parts: tuple[Guarantee, ...]
    name: str = "strongest"
    assumptions: str = "those of its parts"

    def __post_init__(self) -> None:
        parts = domain.instances("parts", self.parts, Guarantee, "(guarantee, guarantee)")
        kinds = {part.kind for part in parts}
        alike = kinds in ({"upper bound"}, {"lower bound"})
        domain.require("parts", kinds, alike, "of one kind, all upper or all lower bounds")
        domain.set_fields(self, parts=parts)

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        return self.parts[0].kind

    def profile(self, epsilon: float) -> float:
        return self._best([part.profile(epsilon) for part in self.parts])

    def least_epsilon(self, delta: float) -> float:
        return self._best([part.least_epsilon(delta) for part in self.parts])

    def tradeoff(self, alpha: np.ndarray) -> np.ndarray:
        choose = np.max if self.kind == "upper bound" else np.min
        return choose([part.tradeoff(alpha) for part in self.parts], axis=0)

    def _best(self, values: list[float]) -> float:
        return min(values) if self.kind == "upper bound" else max(values)


@dataclass(frozen=True, kw_only=True)
class Between(Bracket):
    """A bracket made of a lower and an upper bound that were proved apart.

    >>> low = SlicedPair(p=np.array([0.6, 0.4]), q=np.array([0.4, 0.6]), steps=1)
    >>> Between(low=low, high=revealed_order(1.0, 1)).epsilon(1e-5) > 4
    True
    """

    low: Guarantee
    high: Guarantee
    name: str = "tensor-power"
    kind: Kind = "bracket"
    assumptions: str = "those of its ends"

    def __post_init__(self) -> None:
        domain.instance("low", self.low, Guarantee, "SlicedPair(p=p, q=q, steps=1)")
        domain.instance("high", self.high, Guarantee, "revealed_order(1.3, 15)")

    @property
    def lower(self) -> Guarantee:
        return self.low

    @property
    def upper(self) -> Guarantee:
        return self.high


# --- from a run


def bracket(run: NoisySGD, relation: Relation, assumptions: str = "") -> Bracket:
    """What's proved of a run whose steps have no dominating pair of their own: two ends.

    Raises `ValueError` with the reason where nothing is.

    >>> facts = {"rate": 1 / 235, "steps": 235, "noise_multiplier": 1.3}
    >>> run = NoisySGD(**facts, sampling="random-allocation")
    >>> round(bracket(run, "zero-out").epsilon(1e-5), 3)
    0.198
    """
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE).check_covered(relation)
    if run.has_laws(relation):
        return TensorPower(laws=run.laws(relation), steps=run.steps, assumptions=assumptions)
    if run.sampling == "random-allocation":
        return _allocated(run, relation, assumptions)
    makers = {"shuffled": _shuffled, "fixed-size": _fixed_size, "truncated-poisson": _truncated}
    ends = makers[run.sampling](run, relation)
    return Between(low=ends[0], high=ends[1], assumptions=assumptions)


def _allocated(run: NoisySGD, relation: Relation, assumptions: str = "") -> RandomAllocation:
    batches = run.batches_per_epoch
    return RandomAllocation(
        sigma=run.sigma(relation), batches=batches, epochs=run.steps // batches,
        assumptions=assumptions,
    )  # fmt: skip


def _shuffled(run: NoisySGD, relation: Relation) -> tuple[Guarantee, Guarantee]:
    """Below: the leaks of three pairs of data sets. Above: the order is published."""
    batches = run.batches_per_epoch
    epochs = run.steps // batches
    p, q = shuffled_slices(run.sigma("zero-out"), batches)
    leaks = SlicedPair(p=p, q=q, steps=epochs), _allocated(run, relation).lower
    return Strongest(parts=leaks), revealed_order(run.sigma(relation), epochs)


def _fixed_size(run: NoisySGD, relation: Relation) -> tuple[Guarantee, Guarantee]:
    """Below: all other gradients are -C, or 0. Above: zeroing is a special replacement."""
    rate, sigma, steps = run.sampling_rate, run.sigma("zero-out"), run.steps
    p, q = fixed_size_slices(rate, sigma)
    pair = tuple(PoissonLaw(rate, sigma, way) for way in _DIRECTIONS)
    leaks = SlicedPair(p=p, q=q, steps=steps), TensorPower(laws=pair, steps=steps).lower
    replaced = (SubsampledLaw(rate, run.sigma("replace-one")),)
    return Strongest(parts=leaks), TensorPower(laws=replaced, steps=steps).upper


def _truncated(run: NoisySGD, relation: Relation) -> tuple[Guarantee, Guarantee]:
    """Below: nothing was cut, give or take its probability. Above: what a full batch changes."""
    assert run.n and run.largest_batch  # a truncated run has both
    n, rate, largest = run.n, run.sampling_rate, run.largest_batch
    sigma, steps = run.sigma(relation), run.steps
    pair = tuple(PoissonLaw(rate, sigma, way) for way in _DIRECTIONS)
    cut = tuple(TruncatedLaw(n, rate, largest, sigma, way) for way in _DIRECTIONS)
    tau = -math.expm1(steps * math.log1p(-truncation(n, rate, largest)[2]))
    low = Uncut(poisson=TensorPower(laws=pair, steps=steps).lower, tau=tau)
    return low, TensorPower(laws=cut, steps=steps).upper
