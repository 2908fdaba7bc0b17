"""Laws on a lattice of likelihood ratios, from one side: the machinery under `batches`.

Where the ratio of a pair is an average of independent ratios (chapter 21), its law is a power on a
lattice of *ratios*. Both replacements of `lattice` work there as well, since the profile is the mean
of a convex function of the average:

* `split_cells`: the mass of a cell goes to the cell's two ends, keeping mass and mean;
* `contract_cells`: the mass around a point goes to the point, keeping mass and mean. Parts of the
  neighbouring cells are merged in until the mean lies on the point. What can't be balanced is moved
  by one point, `down` for increasing functions, `up` for decreasing ones. Moving keeps the mass,
  and it must: a base measure of mass above 1 isn't a lower law here.

`on_losses` puts the atoms log(ratio) on a lattice of losses, for the epochs.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpteach.numerics.lattice import Lattice

__all__ = ["contract_cells", "on_losses", "split_cells", "tilted"]

_ROUNDS = 30  # of balancing neighbouring cells
_HAIR = 1e-6  # share by which a cell's mean is kept on the right side of its point
_UNIT = 2.0**-53


def split_cells(mass: np.ndarray, moment: np.ndarray, step: float) -> np.ndarray:
    """Masses at 0, h, …, Kh from those of the K cells between them; moment is ∫ r over each cell.

    >>> split_cells(np.array([0.5, 0.5]), np.array([0.25, 0.75]), step=1.0)
    array([0.25, 0.5 , 0.25])
    """
    left = step * np.arange(mass.size)
    up = np.clip((moment - mass * left) / step, 0.0, mass)
    return np.append(mass - up, 0.0) + np.append(0.0, up)


def contract_cells(mass: np.ndarray, moment: np.ndarray, step: float, rest: str) -> np.ndarray:
    """Masses at 0, h, …, Kh from those of the K+1 cells around them; moment is ∫ r over each cell.

    >>> contract_cells(np.array([0.5, 0.5]), np.array([0.1, 0.4]), step=1.0, rest="down").round(9)
    array([1., 0.])
    """
    y = step * np.arange(mass.size)
    gain, loss = np.zeros_like(mass), np.zeros_like(mass)
    gain[:-1] = moment[1:] - mass[1:] * y[:-1]
    loss[1:] = mass[:-1] * y[1:] - moment[:-1]
    return _balance(mass, moment - mass * y, gain, loss, rest, 1.0)


def on_losses(
    loss: np.ndarray, p: np.ndarray, step: float, side: str, infinite: float, error: float
) -> Lattice:
    """Atoms of P mass p at the given losses (increasing) on a lattice, from above or from below.

    `infinite` is P mass at an infinite loss, `error` the total variation that may be wrong in p.

    >>> lattice = on_losses(np.array([0.3]), np.array([1.0]), 1.0, "upper", 0.0, 0.0)
    >>> round(float(lattice.weights @ np.exp(-lattice.points) / np.exp(-0.3)), 9)
    1.0
    """
    offset = float(loss[np.argmax(p)])
    place = (loss - offset) / step
    k = np.floor(place) if side == "upper" else np.rint(place)
    first, away = int(k[0]), loss - offset - k * step
    index = (k - first).astype(int)
    if side == "upper":  # each atom between its two neighbours, keeping P mass and Q mass
        up = p * (np.expm1(-away) / math.expm1(-step))
        mass = np.bincount(index, p - up, index[-1] + 2)
        mass[1:] += np.bincount(index, up, index[-1] + 1)
    else:  # Q mass in units of e^{-z}
        mass, q = np.bincount(index, p), np.bincount(index, p * np.exp(-away))
        gain, less = np.zeros_like(mass), np.zeros_like(mass)
        gain[:-1] = mass[1:] - q[1:] * math.exp(-step)
        less[1:] = q[:-1] * math.exp(step) - mass[:-1]
        mass = _balance(mass, mass - q, gain, less, "down", 0.0)
    points = offset + (first + np.arange(mass.size)) * step
    lattice = tilted(mass, points, first, step, 0.0)
    return replace(lattice, infinite=infinite, error=lattice.error + error)


def tilted(
    mass: np.ndarray, points: np.ndarray, first: int, step: float, tilt: float
) -> Lattice:
    """A `Lattice` whose weights are mass·e^{tilt·z}, normalised in logarithms. Any sign of tilt.

    >>> tilted(np.array([0.5, 0.5]), np.array([0.0, 1.0]), 0, 1.0, np.log(3)).weights.round(9)
    array([0.25, 0.75])
    """
    with np.errstate(divide="ignore"):
        exponent = np.log(mass) + tilt * points
    peak = float(exponent.max())
    weights = np.exp(exponent - peak)
    total = float(weights.sum())
    return Lattice(
        weights=weights / total, first=first, step=step, offset=float(points[0]) - first * step,
        tilt=tilt, log_mass=peak + math.log(total), error=4 * _UNIT,
    )  # fmt: skip


def _balance(
    mass: np.ndarray, surplus: np.ndarray, gain: np.ndarray, loss: np.ndarray, rest: str,
    floor: float,
) -> np.ndarray:  # fmt: skip
    """Cells after taking shares of their neighbours; those still on the wrong side are moved.

    surplus is a cell's moment above its point's, gain what all of the right neighbour would add to
    it, loss what all of the left one would take away. A share that's given away leaves the giver's
    mean where it was, so its own needs shrink with what it keeps: a few rounds settle that.
    `floor` is the share of the first cell that has a place when it's moved down.
    """
    hair = _HAIR if rest == "down" else -_HAIR
    lacking = _share(np.maximum(-surplus, 0.0), gain) * (1 + hair)
    exceeding = _share(np.maximum(surplus, 0.0), loss) * (1 - hair)
    kept = np.ones_like(mass)
    for _ in range(_ROUNDS):
        from_right = np.minimum(lacking * kept, 1.0)
        from_left = np.minimum(exceeding * kept, 1.0)
        given = np.append(0.0, from_right[:-1]) + np.append(from_left[1:], 0.0)
        fair = 1 / np.maximum(given, 1.0)
        from_right[:-1] *= fair[1:]
        from_left[1:] *= fair[:-1]
        kept = np.maximum(1 - given, 0.0)
    result = mass * kept
    result[:-1] += from_right[:-1] * mass[1:]
    result[1:] += from_left[1:] * mass[:-1]
    left = surplus * kept + from_right * gain - from_left * loss
    if rest == "down":
        wrong = np.where(left < 0, result, 0.0)
        moved = np.append(wrong[1:], 0.0)
        moved[0] += floor * wrong[0]
    else:
        wrong = np.where(left > 0, result, 0.0)
        moved = np.append(0.0, wrong[:-1])
    return result - wrong + moved


def _share(need: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.where(need > 0, need / np.maximum(whole, 1e-300), 0.0)
