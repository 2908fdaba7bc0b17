"""The tensor power of a run in phases: one lattice, a power for each phase (chapter 21).

The loss of the run is the sum of all steps' losses, and steps needn't be alike. All phases' laws go
on lattices with one step and one tilt; each is raised to its own power, and the powers are joined.
Upper laws give an upper law, lower laws a lower one. Phases are fixed in advance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import logsumexp

from dpteach import domain
from dpteach.guarantees import Bracket, Guarantee, Kind
from dpteach.laws import LAWS_EXAMPLE, Law
from dpteach.numerics.lattice import Side, convolve, discretise, power, tails
from dpteach.tensor_power import Profile, TensorPowerEnd

__all__ = ["JoinedPower"]

_RESOLUTION = 24.0  # lattice points in one standard deviation of one step
_TOLERANCE = 4e-4  # relative width asked for
_MANY = 2**16  # points beyond which a lattice isn't refined any more
_FINEST = 2**19  # lattice steps in one step's range of losses, at most
_TILTS = np.geomspace(1e-3, 1e4, 141)
Plan = tuple[tuple[Law, int], ...]  # a law for each phase, and its number of steps


@lru_cache(maxsize=64)
def _tilted(law: Law, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """log E e^{tL} and the tilted variance of one step's loss, at each tilt t."""
    nodes, (low, high) = law.nodes(2.0), law.loss_range(tail)
    kept = (nodes.loss >= low) & (nodes.loss <= high)
    loss, log_p = nodes.loss[kept], nodes.log_p[kept]
    exponent = log_p + np.multiply.outer(_TILTS, loss)
    cumulant = logsumexp(exponent, axis=1)
    weights = np.exp(exponent - cumulant[:, None])
    return cumulant, np.maximum(weights @ loss**2 - (weights @ loss) ** 2, 1e-300)


def _cumulant(plan: Plan, tail: float) -> np.ndarray:
    return sum(steps * _tilted(law, tail)[0] for law, steps in plan)


def _saddle(plan: Plan, tail: float, epsilon: float) -> int:
    """Index of the tilt with the least Chernoff bound on δ(ε): the transform's error is near it."""
    bound = _cumulant(plan, tail) - _TILTS * epsilon - np.log1p(_TILTS) - np.log(_TILTS)
    return int(np.argmin(bound))


def _rough_epsilon(plan: Plan, tail: float, delta: float) -> float:
    """Chernoff's ε at δ."""
    return max(float(np.min((_cumulant(plan, tail) - math.log(delta)) / _TILTS)), 0.0)


@lru_cache(maxsize=16)
def _profile(plan: Plan, at: int, tail: float, resolution: float, side: Side) -> Profile:
    """δ(ε) of the whole plan from one side."""
    steps = sum(count for _, count in plan)
    variance = sum(count * _tilted(law, tail)[1][at] for law, count in plan) / steps
    ranges = [law.loss_range(tail) for law, _ in plan]
    widest = max(high - low for low, high in ranges)
    step = max(math.sqrt(variance) / resolution, widest / _FINEST)
    total = None
    for (law, count), (low, high) in zip(plan, ranges, strict=True):
        part = power(discretise(law, step, float(_TILTS[at]), low, high, side), count)
        total = part if total is None else convolve(total, part)
    return Profile(total, side, *tails(total))


def _ends(plan: Plan, at: int, tail: float, ask: Any) -> tuple[float, float]:
    """Both ends of an answer, on finer lattices until they're near each other."""
    resolution, low, high = _RESOLUTION, 0.0, math.inf
    for _ in range(3):
        try:
            lower, upper = (_profile(plan, at, tail, resolution, s) for s in ("lower", "upper"))
        except ValueError:  # too many points
            if math.isfinite(high) or resolution < 1:
                break
            resolution /= 4
            continue
        low, high = max(low, ask(lower)), min(high, ask(upper))
        if high - low <= _TOLERANCE * high or upper.lattice.weights.size > _MANY:
            break
        resolution *= 4
    return min(low, high), high


@dataclass(frozen=True, kw_only=True)
class JoinedPower(Bracket):
    """`steps` steps of the worst of `laws`, then those of `more`: a bracket of the whole.

    laws : of one step of the first phase; of each direction one, in the same order in all phases.
    more : (laws, steps) of each later phase. All must belong to one neighbouring relation.

    The directions are composed apart, and the worse one is reported. Relative width below 1e-3 for
    the runs of practice.

    >>> from dpteach.laws import GaussianLaw
    >>> plan = JoinedPower(laws=(GaussianLaw(2.0),), steps=2, more=(((GaussianLaw(4.0),), 8),))
    >>> low, high = plan.lower.epsilon(1e-5), plan.upper.epsilon(1e-5)
    >>> low < 4.377178 < high < 1.001 * low  # 2/4 + 8/16 = 1: the Gaussian with mu = 1
    True
    """

    laws: tuple[Law, ...]
    steps: int
    more: tuple[tuple[tuple[Law, ...], int], ...]
    name: str = "tensor-power"
    kind: Kind = "bracket"
    assumptions: str = "of the laws given"
    reason = "double precision resolves no such delta for so many steps"

    def __post_init__(self) -> None:
        for laws, steps in ((self.laws, self.steps), *self.more):
            domain.instances("laws", laws, Law, LAWS_EXAMPLE)
            domain.steps(steps, least=1)
            count = len(self.laws)
            advice = "each phase has the same directions"
            domain.require("laws", laws, len(laws) == count, f"{count} laws", advice)

    @property
    def _plans(self) -> dict[str, Plan]:
        """For each direction its laws and steps."""
        phases = ((self.laws, self.steps), *self.more)
        return {
            law.direction: tuple((laws[k], steps) for laws, steps in phases)
            for k, law in enumerate(self.laws)
        }

    @property
    def lower(self) -> Guarantee:
        return TensorPowerEnd(power=self, kind="lower bound")

    @property
    def upper(self) -> Guarantee:
        return TensorPowerEnd(power=self, kind="upper bound")

    def _one_epsilon(self, plan: Plan, delta: float) -> tuple[float, float]:
        tail = min(0.1, 1e-5 * delta / sum(steps for _, steps in plan))
        at = _saddle(plan, tail, _rough_epsilon(plan, tail, delta))
        return _ends(plan, at, tail, lambda profile: profile.epsilon(delta))

    def epsilon_ends(self, delta: float) -> tuple[float, float]:
        """Both ends of ε at δ: the worse direction's."""
        ends = [self._one_epsilon(plan, delta) for plan in self._plans.values()]
        return max(low for low, _ in ends), max(high for _, high in ends)

    def details(self, delta: float) -> dict[str, Any]:
        if len(self.laws) == 1:
            return {}
        ends = {way: list(self._one_epsilon(plan, delta)) for way, plan in self._plans.items()}
        return {"directions": ends}

    def delta_ends(self, epsilon: float) -> tuple[float, float]:
        """Both ends of δ at ε: the worse direction's."""
        ends = [self._one_delta(plan, epsilon) for plan in self._plans.values()]
        return max(low for low, _ in ends), max(high for _, high in ends)

    def _one_delta(self, plan: Plan, epsilon: float) -> tuple[float, float]:
        steps, guess = sum(count for _, count in plan), 1e-3
        for _ in range(4):  # what may be rounded away depends on δ
            tail = min(0.1, 1e-5 * guess / steps)
            at = _saddle(plan, tail, epsilon)
            low, high = _ends(plan, at, tail, lambda profile: float(profile.delta(epsilon)))
            if 3 * low > guess or high < 1e-30:
                break
            guess = max(low, guess * 1e-8, 1e-35)
        return low, min(high, 1.0)

    def tradeoff_ends(self, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of f, the lower one first."""
        curves = []
        for plan in self._plans.values():
            tail = 1e-14 / sum(steps for _, steps in plan)
            sides = ("upper", "lower")
            ends = (_profile(plan, 0, tail, 2 * _RESOLUTION, side) for side in sides)
            curves.append([end.tradeoff(alpha) for end in ends])
        return np.min([c[0] for c in curves], axis=0), np.min([c[1] for c in curves], axis=0)
