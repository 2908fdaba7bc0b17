"""Engine room, skip on first reading: searches for a root or a minimum in one variable."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar

__all__ = ["bisect", "least_real", "least_whole", "refine", "safe_root"]

_LEAST = 2.0**-20
_Objective = Callable[[Any], float]


def bisect(holds: Callable[[np.ndarray], np.ndarray], low: Any, high: Any) -> np.ndarray:
    """Where `holds` changes from False to True between `low` and `high`, to their last bits.

    Arrays element by element. At the result it holds.

    >>> float(bisect(lambda x: x * x >= 2, 1.0, 2.0)) == math.sqrt(2)
    True
    """
    low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    for _ in range(64):
        middle = (low + high) / 2
        found = holds(middle)
        low, high = np.where(found, low, middle), np.where(found, middle, high)
    return high


def safe_root(
    excess: Callable[[float], float], *, infeasible: float, feasible: float, tolerance: float
) -> float:
    """A point with excess ≤ 0, and ≥ -tolerance if the function is continuous.

    `infeasible` and `feasible` are points where excess > 0 and ≤ 0; either may be the larger.

    >>> x = safe_root(lambda x: x**3 - 2, infeasible=3.0, feasible=0.0, tolerance=1e-6)
    >>> -1e-6 <= x**3 - 2 <= 0
    True
    """
    value_at = functools.cache(excess)

    def aimed(x: float) -> float:
        value = value_at(x)
        return 0.0 if -tolerance <= value <= 0 else value + tolerance / 2

    point, step = brentq(aimed, infeasible, feasible, xtol=1e-11, maxiter=10_000), 1e-11
    while value_at(point) > 0:  # at a jump the search may end on the wrong side
        gap = feasible - point
        point, step = point + math.copysign(min(step, abs(gap)), gap), 2 * step
    return point


def refine(objective: Callable[[np.ndarray], np.ndarray], low: float, high: float,
           extra: list[float]) -> tuple[float, float]:  # fmt: skip
    """Least value of `objective` and where, by ever finer geometric grids over [low, high].

    For objectives with steps, which have no derivative; `extra`: points tried as well.

    >>> round(refine(lambda x: (x - 2) ** 2, 0.1, 10.0, [])[1], 3)
    2.0
    """
    for _ in range(5):
        grid = np.unique(np.concatenate([np.geomspace(low, high, 33), extra]))
        value = objective(grid)
        best = int(np.argmin(value))
        extra = [grid[best]]
        low, high = max(grid[max(best - 1, 0)], low * 1e-3), grid[min(best + 1, grid.size - 1)]
    return float(value[best]), float(grid[best])


def least_whole(objective: _Objective, largest: int) -> int:
    """The whole number in [1, largest] with the least value of a quasi-convex objective.

    >>> least_whole(lambda x: (x - 77.4) ** 2, 1000), least_whole(lambda x: -x, 1000)
    (77, 1000)
    """
    low, high = _bracket(objective, 1, 1, largest)
    while high - low > 2:  # thirds
        left, right = low + (high - low) // 3, high - (high - low) // 3
        low, high = (low, right) if objective(left) <= objective(right) else (left, high)
    return min(range(low, high + 1), key=objective)


def least_real(objective: _Objective, largest: float) -> float:
    """The x in [2^-20, largest] with the least value of a quasi-convex objective, 1e-7 relative.

    >>> round(least_real(lambda x: (x - 77.4) ** 2, 1000.0), 4)
    77.4
    """
    bounds = tuple(map(math.log, _bracket(objective, 1.0, _LEAST, largest)))
    scaled = lambda log_x: objective(math.exp(log_x))  # noqa: E731
    found = minimize_scalar(scaled, bounds=bounds, method="bounded", options={"xatol": 1e-7})
    return min((math.exp(found.x), largest), key=objective)


def _bracket(objective: _Objective, start: Any, least: Any, largest: Any) -> tuple[Any, Any]:
    """An interval that holds the minimum: doubling, or halving where 2·start is no better."""
    middle, best = start, objective(start)
    while 2 * middle <= largest and (higher := objective(2 * middle)) < best:
        middle, best = 2 * middle, higher
    half = type(start)(middle / 2)
    while middle <= start and half >= least and (lower := objective(half)) < best:
        middle, half, best = half, half / 2, lower
    return max(least, half), min(2 * middle, largest)
