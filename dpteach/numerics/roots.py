"""A root search that ends on the safe side. Skip on first reading."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from scipy.optimize import brentq

__all__ = ["safe_root"]


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
