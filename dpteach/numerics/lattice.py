"""Privacy-loss distributions on a lattice, from one side: the machinery under `tensor_power`.

A lattice holds the distribution of a loss under P on the points offset + k·h. It replaces a continuous law in one of
two ways, and because the privacy profile is convex in the likelihood ratio, each errs on a known side:

* upper: the mass of a cell is *split* between the cell's ends, keeping its P mass and its Q mass. The profile becomes
  its chords in e^ε ("connect the dots", Doroshenko et al. 2022): it lies above the true one, also after composition.
* lower: the mass of a cell is *contracted* to one point, keeping both masses; the profile becomes tangents, below the
  true one. Contracted points miss the lattice by O(h²). Small parts of the neighbouring cells are merged in until the
  mean lies on the lattice point, and what can't be balanced is rounded down.

Weights are tilted: w_k ∝ P(z_k)·e^{tilt·z_k}, with the logarithm of the normaliser kept beside them. Errors of the FFT
are relative to the largest weight, so tilting moves the digits to where they're needed. Every error that isn't on the
right side by construction (what wraps around, what rounding adds) is added up in `error`, as total variation of the
tilted law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from dpteach import domain
from dpteach.laws import LAW_EXAMPLE, Law, loss_masses
from dpteach.numerics.filters import decaying_sum

__all__ = ["Lattice", "Side", "convolve", "discretise", "power", "regrid", "tails"]

Side = Literal["upper", "lower"]
_UNIT = 2.0**-53
_WRAPPED = 1e-11  # tilted mass that may fall outside the window of one FFT
_MAX_POINTS = 2**22
_JOININGS = 4  # rounds of joining cells that can't be balanced
_ANCHORINGS = 4  # rounds of moving the lattice under the heaviest cell
_HAIR = 1e-8  # steps that the heaviest cell's mean is kept above its point: below, the cell would fall by a step
_BALANCING = 12  # rounds of balancing neighbouring cells


@dataclass(frozen=True)
class Lattice:
    """Tilted weights at offset + (first + k)·step. P(z_k) = weights[k]·exp(log_mass - tilt·z_k).

    `infinite` is P mass at an infinite loss (untilted), `error` the tilted total variation that may be wrong.

    >>> coin = Lattice(np.array([0.25, 0.75]), first=-1, step=2.0, offset=1.0, tilt=0.0, log_mass=0.0)
    >>> coin.points.tolist(), coin.moments()[0]  # the mean in steps from the offset
    ([-1.0, 1.0], -0.25)
    """

    weights: np.ndarray
    first: int
    step: float
    offset: float
    tilt: float
    log_mass: float
    infinite: float = 0.0
    error: float = 0.0

    @property
    def points(self) -> np.ndarray:
        return self.offset + (self.first + np.arange(self.weights.size)) * self.step

    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation of the tilted law, in steps from `offset`."""
        index = np.arange(self.weights.size)
        mean = float(self.weights @ index)
        return self.first + mean, math.sqrt(max(float(self.weights @ (index - mean) ** 2), 0.0))


def _lattice(name: str, value: Lattice) -> Lattice:
    return domain.instance(name, value, Lattice, "discretise(law, step, tilt, low, high, side)")


def _normalised(weights: np.ndarray, **rest: Any) -> Lattice:
    """A lattice with weights scaled to sum 1; log_mass is corrected accordingly."""
    total = float(weights.sum())
    rest["log_mass"] += math.log(total)
    return Lattice(weights=weights / total, **rest)


def discretise(law: Law, step: float, tilt: float, low: float, high: float, side: Side) -> Lattice:
    """One step's law on a lattice, from above or from below. Losses outside [low, high] go to the safe side.

    step > 0 is the distance of the points, tilt ≥ 0 the exponential tilt of their weights. Raises `ValueError` for more
    than 2^22 points.

    >>> from dpteach.laws import GaussianLaw
    >>> float(discretise(GaussianLaw(1.0), 0.01, 0.0, -8.0, 9.0, "upper").weights.sum()).__round__(12)
    1.0
    """
    domain.instance("law", law, Law, LAW_EXAMPLE)
    step, tilt = domain.number("step", step, "[1e-100, 100]"), domain.number("tilt", tilt, "[0, 1e10]")
    low = domain.number("low", low, "[-1e100, 1e100]", "the least loss kept")
    high = domain.number("high", high, f"({low!r}, {low + step * _MAX_POINTS!r}]", "the largest loss kept, by small steps")
    domain.one_of("side", side, ("upper", "lower"))
    offset = _anchor(law, step, low, high) - _HAIR * step
    for _ in range(_ANCHORINGS):
        first, z, p, q = _half_cells(law, step, offset, low, high)
        below, above, p, q = p[0], p[-1], p[1:-1], q[1:-1]
        if side == "upper":
            mass, infinite = _split_halves(p, q, step), float(above)
            mass[0] += below
            break
        mass, shift = _contract(p[0::2] + p[1::2], q[0::2] + q[1::2], step, 0.0)
        mass[np.argmax(mass)] += above  # at the upper end it would weigh too much once tilted
        infinite = 0.0
        if abs(shift) < 10 * _HAIR * step:
            break
        offset += shift - _HAIR * step
    exponent = tilt * step * np.arange(mass.size)
    with np.errstate(divide="ignore"):
        log_weights = np.log(mass) + exponent
    peak = float(log_weights.max())
    return _normalised(
        np.exp(log_weights - peak), first=first, step=step, offset=float(z[0]) - first * step, tilt=tilt,
        log_mass=peak + tilt * z[0], infinite=infinite, error=4 * _UNIT,
    )  # fmt: skip


def _half_cells(
    law: Law, step: float, offset: float, low: float, high: float
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """First index, lattice points over [low, high], P and Q mass of the half cells around them and of the two ends.

    Q mass is in units of e^{-z}, z the lattice point in the middle of both half cells.
    """
    first, last = math.floor((low - offset) / step), math.ceil((high - offset) / step)
    z = offset + (first + np.arange(last - first + 1)) * step
    edges = np.append(np.column_stack([z - step / 2, z]).ravel(), z[-1] + step / 2)
    p, q = loss_masses(law, np.concatenate([[-np.inf], edges, [np.inf]]))
    q[1:-1] *= np.exp(np.repeat(z, 2))
    return first, z, p, q


def _anchor(law: Law, step: float, low: float, high: float) -> float:
    """Offset that puts the heaviest cell's mean on the lattice: a cluster narrower than a cell then costs nothing."""
    edges = low + step * np.arange(math.ceil((high - low) / step) + 1)
    heaviest = int(np.argmax(loss_masses(law, edges)[0]))
    start = edges[heaviest] + step / 2
    for _ in range(6):
        p, q = loss_masses(law, np.array([start - step / 2, start + step / 2]))
        start = math.log(p[0] / q[0])
    return float(start)


def _split_halves(p: np.ndarray, q: np.ndarray, step: float) -> np.ndarray:
    """Split each half cell between the two points around it. Left halves lie below their point, right ones above."""
    size = p.size // 2
    mass = np.zeros(size + 2)  # one point more at either end
    left_up = np.clip((p[0::2] - q[0::2] * math.exp(-step)) / -math.expm1(-step), 0.0, p[0::2])
    right_up = np.clip((p[1::2] - q[1::2]) / -math.expm1(-step), 0.0, p[1::2])
    mass[1:-1] += left_up + (p[1::2] - right_up)
    mass[:-2] += p[0::2] - left_up
    mass[2:] += right_up
    mass[1] += mass[0]
    return mass[1:]  # the top point lies half a cell above `high`


def _contract(p: np.ndarray, q: np.ndarray, step: float, tilt: float) -> tuple[np.ndarray, float]:
    """Cells around lattice points, contracted to the points. p: P mass; q: Q mass times e^z; both times e^{tilt·z}.

    Also returns how far the heaviest cell's mean still lies from its point: so far the lattice should be moved.

    Where a cell's mean ratio p/q is too low it takes a share of the cell on its right, where it's too high of the cell
    on its left, so that the mean comes to lie on the point, or a hair above it. A cell whose neighbour can't make up
    for the difference is joined to the other neighbour. What still can't be balanced is rounded down, which lowers the
    profile.
    """
    for attempt in range(_JOININGS + 1):
        mass, rest = _balance(p, q, step, tilt)
        fallen = np.where(rest < 0, mass, 0.0)
        to_left, to_right = fallen > 1e-15, rest > 0.02 * step * mass + 1e-15 * step
        if attempt == _JOININGS or not (to_left.any() or to_right.any()):
            break
        p, q = _join(p, to_left, to_right, tilt * step), _join(q, to_left, to_right, (tilt + 1) * step)
    heaviest = int(np.argmax(mass))
    shift = float(rest[heaviest] / mass[heaviest])
    mass -= fallen
    mass[:-1] += fallen[1:] * math.exp(-tilt * step)
    return mass, shift


def _join(cells: np.ndarray, to_left: np.ndarray, to_right: np.ndarray, rate: float) -> np.ndarray:
    result = np.where(to_left | to_right, 0.0, cells)
    result[:-1] += np.where(to_left, cells, 0.0)[1:] * math.exp(-rate)
    result[1:] += np.where(to_right, cells, 0.0)[:-1] * math.exp(rate)
    return result


def _balance(p: np.ndarray, q: np.ndarray, step: float, tilt: float) -> tuple[np.ndarray, np.ndarray]:
    """Mass of each cell after balancing, and its surplus p - q that's left (negative: the mean is too low)."""
    left, right = math.exp(-tilt * step), math.exp(tilt * step)  # tilting factors for mass that moves left or right
    surplus = p - q
    gain, loss = np.zeros_like(p), np.zeros_like(p)  # what all of the right, of the left cell would change in surplus
    gain[:-1] = left * (p[1:] - q[1:] * math.exp(-step))
    loss[1:] = right * (q[:-1] * math.exp(step) - p[:-1])
    lacking = np.maximum(-surplus, 0.0) / np.maximum(gain, 1e-300)
    exceeding = np.maximum(surplus, 0.0) / np.maximum(loss, 1e-300)
    kept = np.ones_like(p)
    for _ in range(_BALANCING):
        take_right = np.minimum(lacking * kept * (1 + 1e-6), 1.0)
        take_left = np.minimum(exceeding * kept * (1 - 1e-6), 1.0)
        given = np.zeros_like(p)
        given[1:] += take_right[:-1]
        given[:-1] += take_left[1:]
        fair = 1 / np.maximum(given, 1.0)
        take_right[:-1] *= fair[1:]
        take_left[1:] *= fair[:-1]
        kept = np.maximum(1 - given, 0.0)
    mass, ratio = p * kept, surplus * kept
    mass[:-1] += take_right[:-1] * p[1:] * left
    mass[1:] += take_left[1:] * p[:-1] * right
    ratio += take_right * gain - take_left * loss
    return mass, ratio


def _reach(lattice: Lattice, n: int) -> tuple[int, int]:
    """Lattice range that the sum of n draws leaves with tilted probability at most `_WRAPPED` (Chernoff's bound)."""
    filled = np.flatnonzero(lattice.weights)
    log_weights = np.log(lattice.weights[filled])
    mean, deviation = lattice.moments()
    away = filled + (lattice.first - mean)
    scale = math.log(max(deviation * math.sqrt(n), 1e-9))
    ends = []
    for sign in (-1.0, 1.0):

        def distance(log_theta: float, sign: float = sign) -> float:  # exceeded with probability at most _WRAPPED / 2
            cumulant = float(logsumexp(log_weights + sign * math.exp(log_theta) * away))
            return (max(n * cumulant, 0.0) + math.log(2 / _WRAPPED)) / math.exp(log_theta)

        best = minimize_scalar(distance, bounds=(-6 - scale, 4 - scale), method="bounded", options={"maxiter": 14})
        ends.append(n * mean + sign * best.fun)
    low, high = n * (lattice.first + int(filled[0])), n * (lattice.first + int(filled[-1]))
    return max(low, math.floor(ends[0])), min(high, math.ceil(ends[1]))


def power(lattice: Lattice, n: int) -> Lattice:
    """The sum of n independent losses, by one FFT over a window; what wraps around and rounding is counted.

    >>> from dpteach.laws import GaussianLaw
    >>> one = discretise(GaussianLaw(1.0), 0.01, 0.0, -8.0, 9.0, "upper")
    >>> total = power(one, 4)  # of mean 1/2 and deviation 1 each
    >>> round(float(total.weights @ total.points), 2), round(total.moments()[1] * 0.01, 2)
    (2.0, 2.0)
    """
    _lattice("lattice", lattice)
    n = domain.whole_number("n", n, "[1, 1e15]")
    if n == 1:
        return lattice
    low, high = _reach(lattice, n)
    size = next_fast_len(max(high - low + 1, lattice.weights.size), real=True)
    if size > _MAX_POINTS:
        raise ValueError(
            f"steps = {n} needs {size} lattice points (at most {_MAX_POINTS}): "
            "ask a larger delta, or fewer steps, or a larger sigma"
        )
    spectrum = rfft(lattice.weights, size) ** n
    weights = np.maximum(np.roll(irfft(spectrum, size), (n * lattice.first - low) % size)[: high - low + 1], 0.0)
    start, stop = _support(weights)
    # each |φ^n| is off by some units times n; Σ_j |e_j| is at most √size times the norm of e: that of its spectrum
    rounding = 4 * n * _UNIT * math.log2(size) * math.sqrt(2 * float(np.sum(np.abs(spectrum) ** 2)))
    return _normalised(
        weights[start:stop], first=low + start, step=lattice.step, offset=n * lattice.offset, tilt=lattice.tilt,
        log_mass=n * lattice.log_mass, infinite=-math.expm1(n * math.log1p(-lattice.infinite)),
        error=n * lattice.error + 2 * _WRAPPED + rounding,
    )  # fmt: skip


def _support(weights: np.ndarray) -> tuple[int, int]:
    """Where the weights are, without ends that hold less than half of `_WRAPPED` each: the FFT's noise lives there."""
    mass = np.cumsum(weights)
    return int(np.searchsorted(mass, _WRAPPED / 2)), int(np.searchsorted(mass, mass[-1] - _WRAPPED / 2)) + 1


def convolve(a: Lattice, b: Lattice) -> Lattice:
    """The sum of one draw from each of two lattices with the same step and tilt, by a full FFT (nothing wraps).

    >>> from dpteach.laws import GaussianLaw
    >>> one = discretise(GaussianLaw(1.0), 0.01, 0.0, -8.0, 9.0, "upper")
    >>> round(convolve(one, one).moments()[1] * 0.01, 2) == round(math.sqrt(2), 2)
    True
    """
    _lattice("a", a)
    if (_lattice("b", b).step, b.tilt) != (a.step, a.tilt):
        raise ValueError(f"b has step {b.step} and tilt {b.tilt}, a has {a.step} and {a.tilt}: they must be the same")
    count = a.weights.size + b.weights.size - 1
    size = next_fast_len(count, real=True)
    weights = irfft(rfft(a.weights, size) * rfft(b.weights, size), size)[:count]
    return _normalised(
        np.maximum(weights, 0.0), first=a.first + b.first, step=a.step, offset=a.offset + b.offset, tilt=a.tilt,
        log_mass=a.log_mass + b.log_mass, infinite=a.infinite + b.infinite - a.infinite * b.infinite,
        error=a.error + b.error + 8 * _UNIT * math.log2(size) * math.sqrt(size),
    )  # fmt: skip


def regrid(lattice: Lattice, factor: int, side: Side) -> Lattice:
    """The same law on a lattice `factor` (odd) times coarser, from above or from below.

    >>> from dpteach.laws import GaussianLaw
    >>> fine = discretise(GaussianLaw(1.0), 0.01, 0.0, -8.0, 9.0, "lower")
    >>> regrid(fine, 3, "lower").step
    0.03
    """
    _lattice("lattice", lattice)
    factor = domain.whole_number("factor", factor, "[1, 1e6]")
    if factor % 2 == 0:
        raise ValueError(f"factor = {factor} isn't allowed: it must be odd")
    domain.one_of("side", side, ("upper", "lower"))
    step = factor * lattice.step
    domain.number("tilt · step", lattice.tilt * step, "[0, 600]", "regrid by a smaller factor")
    centre = float(lattice.points[np.argmax(lattice.weights)])
    for attempt in range(_ANCHORINGS):
        left, p, q, away = _coarse_cells(lattice, factor, centre)
        if attempt == 0:  # the heaviest cell's mean goes on the lattice
            shift = math.log(p[left].sum() / q[left].sum())
        elif side == "upper":
            mass = _split_fine(p, away, step, lattice.tilt)
            break
        else:
            p_cells, q_cells = (np.append(0.0, cell.sum(axis=1)) for cell in (p, q))
            mass, shift = _contract(p_cells, q_cells, step, lattice.tilt)
        if attempt == _ANCHORINGS - 1 or (attempt > 0 and abs(shift) < 10 * _HAIR * step):
            break
        centre += shift - _HAIR * step
    return _normalised(
        mass, first=-left - 1, step=step, offset=centre, tilt=lattice.tilt,
        log_mass=lattice.log_mass, infinite=lattice.infinite, error=lattice.error,
    )  # fmt: skip


def _coarse_cells(lattice: Lattice, factor: int, centre: float) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Fine points in rows of `factor` around coarse points, the row `left` around `centre`; p, q, distances from there.

    p is P mass, q is Q mass times e^z, both times e^{tilt·z} with z the coarse point.
    """
    middle = round((centre - lattice.points[0]) / lattice.step)  # the fine point nearest to the centre
    left = max(0, -((factor // 2 - middle) // factor))
    start = left * factor + factor // 2 - middle
    count = -(-(start + lattice.weights.size) // factor)
    cells = np.zeros(count * factor)
    cells[start : start + lattice.weights.size] = lattice.weights
    away = (np.arange(factor) - factor // 2) * lattice.step + (lattice.points[0] + middle * lattice.step - centre)
    p = cells.reshape(count, factor) * np.exp(-lattice.tilt * away)
    return left, p, p * np.exp(-away), away


def _split_fine(p: np.ndarray, away: np.ndarray, step: float, tilt: float) -> np.ndarray:
    """Split fine points (count, factor) between the coarse points around them; one point more at either end."""
    scale = -math.expm1(-step)
    above = away >= 0
    up = np.where(above, -np.expm1(-away), -np.expm1(-(away + step))) / scale  # share of P mass for the upper end
    right, middle, left = (up * above), np.where(above, 1 - up, up), (1 - up) * ~above
    mass = np.zeros(p.shape[0] + 2)
    mass[1:-1] += p @ middle
    mass[2:] += (p @ right) * math.exp(tilt * step)
    mass[:-2] += (p @ left) * math.exp(-tilt * step)
    return mass


def tails(lattice: Lattice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points z, and scaled tails A_k = Σ_{j>=k} P(z_j), B_k = Σ_{j>=k} P(z_j)e^{-(z_j - z_k)} at each.

    Both are in units of exp(log_mass - tilt·z_k), so that they neither over- nor underflow; with that unit u_k,
    δ(ε) = u_k·(A_k - e^{ε - z_k} B_k) for z_{k-1} <= ε <= z_k.

    >>> from dpteach.laws import GaussianLaw
    >>> z, a, b = tails(discretise(GaussianLaw(1.0), 0.01, 0.0, -8.0, 9.0, "upper"))
    >>> round(float(a[0]), 9), bool(np.all(b <= a))
    (1.0, True)
    """
    _lattice("lattice", lattice)
    rate = lattice.tilt * lattice.step
    return lattice.points, _tails(lattice.weights, rate), _tails(lattice.weights, rate + lattice.step)


def _tails(weights: np.ndarray, rate: float) -> np.ndarray:
    """S_k = Σ_{j>=k} w_j e^{-rate (j-k)}, without under- or overflow: a first-order recursion from the right."""
    return decaying_sum(weights[::-1], math.exp(-rate))[::-1]
