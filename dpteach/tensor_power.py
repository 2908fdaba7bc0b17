"""The T-fold tensor power, computed: a two-sided bracket of δ(ε), ε(δ) and f for a whole run (DRS22, Theorem 5.1).

One step's law is put on a lattice from above and from below (`lattice`), its T-fold sum is taken by FFT, and what the
arithmetic may have added is counted. Both ends hold for real-valued noise and up to the rounding of double precision
outside the FFT, which is counted by its order of magnitude, not by interval arithmetic.

Under replace-one the law is C_p(G): the bracket is of the *guarantee* C_p(G_{1/σ})^{⊗T}, which for T ≥ 2 no data set
attains (chapter 11). Under add/remove the Poisson pair is attained, and the bracket is of the run's exact privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from dpteach import domain
from dpteach.guarantees import Bracket, Guarantee, Kind, epsilon_from_delta, gaussian_tradeoff
from dpteach.laws import LAW_EXAMPLE, LAWS_EXAMPLE, Law, gaussian_profile, loss_range
from dpteach.numerics.lattice import Lattice, Side, convolve, discretise, power, regrid, tails

__all__ = ["Profile", "TensorPower", "TensorPowerEnd", "compose"]

_RESOLUTION = 24  # lattice points in one standard deviation of one step
_COARSEST = 0.1  # where losses are rare and huge, a standard deviation is no measure: coarser lattices are tried
_ONE_STAGE = 2**17  # points that one FFT may take before the power is done in two stages
_TOLERANCE = 4e-4  # relative width of ε asked for
_FINEST = 2**20  # lattice steps in one step's range of losses, at most
_MOST_POINTS = 2**17  # beyond, the lattice isn't refined any more


def _log_gain(tilt: np.ndarray) -> np.ndarray:
    """log of the largest e^{-tilt·x}(1 - e^{-x}) over x ≥ 0; 0 at tilt 0."""
    return -tilt * np.log1p(1 / np.maximum(tilt, 1e-300)) - np.log1p(tilt)


@dataclass(frozen=True)
class Profile:
    """δ(ε) of a lattice's law: e^scale(A_k - e^{ε - z_k}B_k) for z_{k-1} < ε <= z_k, give or take the error.

    >>> from dpteach.laws import GaussianLaw
    >>> lattice = compose(GaussianLaw(10.0), 100, 0.0, 1e-12, 24, "upper")
    >>> upper = Profile(lattice, "upper", *tails(lattice))
    >>> exact = float(GaussianLaw(1.0).delta(1.0))
    >>> exact <= float(upper.delta(1.0)) < exact + 1e-4
    True
    """

    lattice: Lattice
    side: Side
    z: np.ndarray
    a: np.ndarray
    b: np.ndarray

    def _slack(self, epsilon: ArrayLike) -> np.ndarray:
        """What `error` and `infinite` can do to δ: error times the largest e^{log_mass - tilt·z}(1 - e^{ε-z})."""
        lattice, tilt = self.lattice, self.lattice.tilt
        exponent = lattice.log_mass - tilt * np.asarray(epsilon, dtype=float) + math.log(lattice.error)
        exponent += _log_gain(np.array(tilt))
        return np.exp(np.minimum(exponent, 0.0)) + lattice.infinite

    def _bounded(self, value: np.ndarray, epsilon: ArrayLike) -> np.ndarray:
        sign = 1.0 if self.side == "upper" else -1.0
        return np.clip(value + sign * self._slack(epsilon), 0.0, 1.0)

    def delta(self, epsilon: ArrayLike) -> np.ndarray:
        """Bound on δ at each ε, from the profile's side."""
        epsilon = np.asarray(epsilon, dtype=float)
        k = np.minimum(np.searchsorted(self.z, epsilon), self.z.size - 1)
        scale = self.lattice.log_mass - self.lattice.tilt * self.z[k]
        gap = np.minimum(epsilon - self.z[k], 0.0)
        inner = np.maximum((self.a[k] - self.b[k]) - np.expm1(gap) * self.b[k], 0.0)
        value = np.exp(np.minimum(scale, 700.0)) * inner
        return self._bounded(np.where(epsilon > self.z[-1], 0.0, np.minimum(value, 1.0)), epsilon)

    def epsilon(self, delta: float) -> float:
        """Bound on ε at δ, at least 0: the last ε at which the bound on δ exceeds δ. inf if there's none."""
        points = np.concatenate([[0.0], self.z[self.z > 0]])
        exceeding = np.flatnonzero(self.delta(points) > delta)
        if exceeding.size == 0:
            return 0.0
        if exceeding[-1] == points.size - 1:
            return math.inf
        left, right = points[exceeding[-1]], points[exceeding[-1] + 1]
        while left < (middle := (left + right) / 2) < right:  # bisection in one cell, to the last bit
            left, right = (left, middle) if self.delta(middle) <= delta else (middle, right)
        return float(right if self.side == "upper" else left)

    def tradeoff(self, alpha: np.ndarray) -> np.ndarray:
        """Bound on the symmetric trade-off function, from the other side than δ's."""
        return _polygon(self, alpha)


def _profile(lattice: Lattice, side: Side) -> Profile:
    return Profile(lattice, side, *tails(lattice))


def _range(law: Law, tail: float) -> tuple[float, float]:
    """Losses beyond which P has mass at most `tail`, never nearer to each other than their digits allow: added, with
    little noise, a record leaves one loss in practice, -log(1-q)."""
    low, high = loss_range(law, tail)
    least = 1e-8 * max(abs(low), abs(high))
    return (low, high) if high - low > least else (low - least, high + least)


def _tilted(law: Law, low: float, high: float, tilt: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cumulant K, mean K' and variance K'' of one step's loss inside [low, high], tilted by e^{tilt·L}, one per tilt.

    What the choice of tilt and step size is based on.
    """
    nodes = law.nodes(2.0)
    kept = (nodes.loss >= low) & (nodes.loss <= high)
    loss = nodes.loss[kept]
    exponent = nodes.log_p[kept] + np.multiply.outer(tilt, loss)
    cumulant = logsumexp(exponent, axis=-1)
    weights = np.exp(exponent - cumulant[:, None])
    mean = weights @ loss
    return cumulant, mean, np.maximum(weights @ loss**2 - mean**2, 1e-300)


_TILTS = np.geomspace(1e-6, 1e9, 91)


def _log_deltas(law: Law, steps: int, tail: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Saddle-point guesses at each tilt: ε = T·K' and log δ(ε), and T·K. Only the choice of a tilt rests on them."""
    cumulant, mean, variance = _tilted(law, *_range(law, tail), _TILTS)
    spread = np.log(_TILTS) + np.log1p(_TILTS) + np.log(np.maximum(2 * math.pi * steps * variance, 1e-300)) / 2
    log_delta = steps * (cumulant - _TILTS * mean) - np.maximum(spread, 0.0)
    return np.maximum.accumulate(steps * mean), np.minimum.accumulate(log_delta), steps * cumulant


def _grid(law: Law, tilt: float, tail: float, resolution: float) -> tuple[float, float, float]:
    """Range of one step's losses, and the lattice's step."""
    low, high = _range(law, tail)
    variance = _tilted(law, low, high, np.array([tilt]))[2][0]
    finest = max((high - low) / _FINEST, 1e-9 * max(abs(low), abs(high))) * max(1.0, _RESOLUTION / resolution)
    return low, high, max(math.sqrt(variance) / resolution, finest)


def compose(law: Law, steps: int, tilt: float, tail: float, resolution: float, side: Side) -> Lattice:
    """The loss of `steps` steps on a lattice, from one side.

    tilt ≥ 0 is the exponential tilt, tail the P mass per step that may be rounded away, resolution the number of
    lattice points in one (tilted) standard deviation of one step.

    >>> from dpteach.laws import GaussianLaw
    >>> mean, deviation = compose(GaussianLaw(10.0), 100, 0.0, 1e-12, 24, "upper").moments()
    >>> round(deviation / 24 / 10, 3)  # √100 times one step's deviation, which 24 lattice points make
    1.0
    """
    domain.instance("law", law, Law, LAW_EXAMPLE)
    steps, tilt = domain.whole_number("steps", steps, "[1, 1e9]"), domain.number("tilt", tilt, "[0, 1e10]")
    resolution = domain.number("resolution", resolution, "[1e-3, 1e5]", "points in a standard deviation")
    low, high, step = _grid(law, tilt, tail, resolution)
    one = discretise(law, step, tilt, low, high, side)
    if 18 * resolution * math.sqrt(steps) <= _ONE_STAGE:
        return power(one, steps)
    inner = math.isqrt(steps)
    outer, rest = divmod(steps, inner)
    factor = 2 * (math.isqrt(inner) // 2) + 1
    total = power(regrid(power(one, inner), factor, side), outer)
    return convolve(total, regrid(power(one, rest), factor, side)) if rest else total


def _closed_form(law: Law, steps: int) -> Callable[[float], float] | None:
    """δ(ε) of all steps where it's known: a Gaussian's power is Gaussian, one step is one step."""
    if law.rate == 1:
        return lambda e: float(gaussian_profile(law.mu * math.sqrt(steps), np.asarray(e)))
    return (lambda e: float(law.delta(e))) if steps == 1 else None


@lru_cache(maxsize=64)
def _bracket(law: Law, steps: int, tilt: float, tail: float, resolution: float) -> tuple[Profile, Profile]:
    advice = "the tensor power is computed in this range only"
    domain.number("sigma", 1 / law.mu, "[0.05, inf)", advice)
    domain.number("sampling rate / sigma", law.rate * law.mu, "[1e-15, inf)", advice)
    lower, upper = (_profile(compose(law, steps, tilt, tail, resolution, side), side) for side in ("lower", "upper"))
    return lower, upper


def _ask(law: Law, steps: int, delta: float) -> tuple[float, float]:
    """Tilt and tail for a question at δ; 1e-5 of δ may be rounded away."""
    tail = min(0.1, 1e-5 * delta / steps)
    epsilons, log_deltas, cumulants = _log_deltas(law, steps, tail)
    epsilon = np.interp(-math.log(delta), -log_deltas, epsilons)
    return _tilt(law, steps, tail, cumulants - _TILTS * epsilon, math.log(delta)), tail


def _tilt(law: Law, steps: int, tail: float, tail_bound: np.ndarray, log_delta: float) -> float:
    """The least tilt that puts the FFT's floor (`Profile._slack`) ten thousand times below δ, or the best there is."""
    floor = tail_bound + _log_gain(_TILTS) + math.log(1e-10 + 1e-13 * steps)
    floor = floor[_TILTS * np.diff(_range(law, tail)) <= _FINEST]  # a tilt that the finest lattice can hold
    low_enough = np.flatnonzero(floor <= log_delta - math.log(1e4))
    return float(f"{_TILTS[low_enough[0] if low_enough.size else np.argmin(floor)]:.3g}")


@lru_cache(maxsize=64)
def _epsilon_bracket(law: Law, steps: int, delta: float) -> tuple[float, float]:
    tilt, tail = _ask(law, steps, delta)
    resolution, low, high = float(_RESOLUTION), 0.0, math.inf
    while True:
        try:
            lower, upper = _bracket(law, steps, tilt, tail, resolution)
        except ValueError:
            if math.isfinite(high):
                break  # a finer lattice has too many points: the bracket so far stands
            if resolution < _COARSEST:
                raise
            resolution /= 4
            continue
        low, high = max(low, lower.epsilon(delta)), min(high, upper.epsilon(delta))  # each end holds by itself
        excess = (high - low) / (_TOLERANCE * high) if high > 0 else 0.0
        left, right, step = _grid(law, tilt, tail, resolution)
        points = max(lower.lattice.weights.size, (right - left) / step)
        if not 1 < excess < math.inf or points > _MOST_POINTS or step <= (right - left) / _FINEST:
            break
        resolution *= min(max(1.2 * math.sqrt(excess), 2.0), 8.0, max(2.0, 2 * _MOST_POINTS / points))
    return min(low, high), high


@dataclass(frozen=True, kw_only=True)
class TensorPower(Bracket):
    """`steps` steps of the worst of `laws`: two guarantees, `lower` and `upper`, between which the truth lies.

    f is the symmetric trade-off function that δ(ε), ε ≥ 0, is equivalent to. The relative width of ε is below 1e-3 for
    the runs of practice; it isn't promised where losses are rare and very large, or at most a few steps' worth.

    >>> from dpteach.laws import SubsampledLaw
    >>> run = TensorPower(laws=(SubsampledLaw(256 / 60000, 1.3),), steps=3516)
    >>> low, high = run.lower.epsilon(1e-5), run.upper.epsilon(1e-5)
    >>> low <= 1.067030 <= high and high - low < 1e-3 * high
    True
    """

    laws: tuple[Law, ...]
    steps: int
    name: str = "tensor-power"
    kind: Kind = "bracket"
    assumptions: str = "of the laws given"
    reason = "double precision resolves no such delta for so many steps, or the lattice would be too large"

    def __post_init__(self) -> None:
        domain.set_fields(self, laws=domain.instances("laws", self.laws, Law, LAWS_EXAMPLE))
        advice = "the bracket is computed for at most 1e9 steps"
        domain.set_fields(self, steps=domain.whole_number("steps", self.steps, "[1, 1e9]", advice))

    def _one_epsilon(self, law: Law, delta: float) -> tuple[float, float]:
        known = _closed_form(law, self.steps)
        if known is None:
            return _epsilon_bracket(law, self.steps, delta)
        exact = epsilon_from_delta(known, delta)
        return exact, exact

    @property
    def lower(self) -> Guarantee:
        return TensorPowerEnd(power=self, kind="lower bound")

    @property
    def upper(self) -> Guarantee:
        return TensorPowerEnd(power=self, kind="upper bound")

    def epsilon_ends(self, delta: float) -> tuple[float, float]:
        """Both ends of ε at δ."""
        low, high = zip(*(self._one_epsilon(law, delta) for law in self.laws), strict=True)
        return max(low), max(high)

    def details(self, delta: float) -> dict[str, Any]:
        if len(self.laws) == 1:
            return {}
        return {"directions": {law.direction: list(self._one_epsilon(law, delta)) for law in self.laws}}

    def delta_ends(self, epsilon: float) -> tuple[float, float]:
        """Both ends of δ at ε."""
        low, high = zip(*(self._one_delta(law, epsilon) for law in self.laws), strict=True)
        return max(low), max(high)

    def _one_delta(self, law: Law, epsilon: float) -> tuple[float, float]:
        known = _closed_form(law, self.steps)
        if known is not None:
            return known(epsilon), known(epsilon)
        guess, low, high = float(np.interp(epsilon, *_log_deltas(law, self.steps, 1e-24 / self.steps)[:2])), 0.0, 1.0
        for _ in range(4):  # a guess that was too large cuts off too much
            guess = min(max(guess, -500.0), -0.7)
            tail = min(1e-3, 1e-7 * math.exp(guess) / self.steps)
            cumulants = _log_deltas(law, self.steps, tail)[2]
            tilt = _tilt(law, self.steps, tail, cumulants - _TILTS * epsilon, guess)
            lower, upper = _bracket(law, self.steps, tilt, tail, 2 * _RESOLUTION)
            before = high
            low, high = max(low, float(lower.delta(epsilon))), min(high, float(upper.delta(epsilon)))
            if 2 * low >= high or 2 * high >= before:
                break
            guess = math.log(high)
        return min(low, high), high

    def tradeoff_ends(self, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of f: the upper end of δ gives the lower one of f, which comes first."""
        curves = [self._one_f(law, alpha) for law in self.laws]
        return np.min([c[0] for c in curves], axis=0), np.min([c[1] for c in curves], axis=0)

    def _one_f(self, law: Law, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both polygons through (Q(L ≥ z), P(L < z)), z ≥ 0, completed by reflection."""
        if law.rate == 1:
            exact = gaussian_tradeoff(law.mu * math.sqrt(self.steps), alpha)
            return exact, exact
        tail = 1e-14 / self.steps
        lower, upper = _bracket(law, self.steps, 0.0, tail, 2 * _RESOLUTION)
        return _polygon(upper, alpha), _polygon(lower, alpha)


@dataclass(frozen=True, kw_only=True)
class TensorPowerEnd(Guarantee):
    """One end of a `TensorPower`: a lower or an upper bound on ε and δ.

    >>> from dpteach.laws import GaussianLaw
    >>> TensorPower(laws=(GaussianLaw(1.0),), steps=1).lower.kind
    'lower bound'
    """

    power: TensorPower
    kind: Kind

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.power.name

    @property
    def assumptions(self) -> str:  # type: ignore[override]
        return self.power.assumptions

    @property
    def reason(self) -> str:  # type: ignore[override]
        return "" if self.kind == "lower bound" else self.power.reason

    def profile(self, epsilon: float) -> float:
        return self.power.delta_ends(epsilon)[self.kind == "upper bound"]

    def least_epsilon(self, delta: float) -> float:
        return self.power.epsilon_ends(delta)[self.kind == "upper bound"]

    def tradeoff(self, alpha: np.ndarray) -> np.ndarray:
        return self.power.tradeoff_ends(alpha)[self.kind == "lower bound"]


def _polygon(bound: Profile, alpha: np.ndarray) -> np.ndarray:
    keep = bound.z >= 0
    error = bound.lattice.error + bound.lattice.infinite
    sign = -1.0 if bound.side == "upper" else 1.0  # an upper profile gives a lower trade-off function
    scale = np.exp(bound.lattice.log_mass)
    type_1 = np.clip(scale * bound.b[keep] * np.exp(-bound.z[keep]), 0, 1)[::-1]
    type_2 = np.clip(1 - scale * bound.a[keep], 0, 1)[::-1]
    if bound.side == "lower":  # an error that underflowed isn't 0; the chord from (0, 1) lies above f
        type_1, type_2 = type_1[type_1 > 1e-300], type_2[type_1 > 1e-300]
    x, y = np.append(0.0, type_1), np.append(1.0, type_2)  # slopes down to -1; then the line of ε = 0
    line = x[-1] + y[-1] - alpha
    steep = np.where(alpha <= x[-1], np.interp(alpha, x, y), line)
    flat = np.where(alpha >= y[-1], np.interp(alpha, y[::-1], x[::-1]), line)  # the mirror image
    return np.clip(np.maximum(steep, flat) + sign * 2 * error, 0.0, 1.0 - alpha)
