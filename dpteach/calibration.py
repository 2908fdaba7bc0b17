"""The other way round: the noise, the steps or the batch that a wished-for (ε, δ) leaves room for.

`calibrate` asks `account` again and again, so what it promises is what `account` says of the run that it returns.
Nothing is promised about a search interval: it grows until it holds the answer, or the target is refused with the
reason. ε falls with σ and rises with the steps T and the batch size m: more noise is post-processing of less, a
longer run contains a shorter one, and each guarantee's formula follows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from scipy.optimize import brentq

from dpteach import domain
from dpteach.accountants import NAMES, Unavailable, account, epsilon_or_reason, run_under
from dpteach.guarantees import Guarantee, Kind
from dpteach.moments import Orders
from dpteach.run import NoisySGD, Relation

__all__ = ["SOUGHT", "Calibrated", "Sought", "calibrate", "safe_root"]

Sought = Literal["sigma", "steps", "batch_size"]
SOUGHT = ("sigma", "steps", "batch_size")
_TOLERANCE = 1e-3
_FARTHEST = 1e30  # sigma is sought in [1e-30, 1e30]
_MOST_STEPS = 10**9


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What `calibrate` found: `value` of `sought`, the whole `run`, and its `epsilon` at `delta` by `guarantee`.

    >>> found = calibrate("sigma", "clt", "add-remove", epsilon=1.0, delta=1e-5, sampling_rate=0.01, steps=10000)
    >>> found.run.sigma("add-remove") == found.value, 0.999 <= found.epsilon <= 1, found.kind
    (True, True, 'asymptotic')
    """

    sought: Sought
    value: float
    run: NoisySGD
    relation: Relation
    guarantee: str
    kind: Kind
    epsilon: float
    delta: float


def calibrate(
    sought: Sought, guarantee: str, relation: Relation,
    *, epsilon: float, delta: float, orders: Orders = "integer", **facts: Any,
) -> Calibrated:  # fmt: skip
    """The least σ, or the most steps or the largest batch, for which `guarantee` gives at most `epsilon` at `delta`.

    Parameters
    ----------
    sought : 'sigma', 'steps' or 'batch_size'.
    guarantee : a name that `account` uses; of the bracket its upper end counts. The result is worth what the
        guarantee's kind says: calibrated to an asymptotic one, a run has no proved ε.
    relation : decides sampling and what σ means, as in the two papers (`run_under`).
    epsilon, delta : the target, in (0, 1e30] and [1e-300, 1).
    facts : the run's other parameters: sigma, n, batch_size, sampling_rate, steps, epochs. A batch size is sought for
        given steps, since with epochs the number of steps would change with it.

    The value found. For σ: ε ≤ target, and within 1e-3 of it (relatively within 1e-3, for targets below 1). Only
    where the computed upper end of a bracket jumps can it be farther off, by the bracket's width. For steps and
    batch size: ε ≤ target, and > target with one more; the largest batch is n.

    Raises `ValueError` for a target that the guarantee can't reach, with the reason.

    >>> facts = dict(n=60000, batch_size=256)
    >>> calibrate("steps", "moments", "add-remove", epsilon=2.0, delta=1e-5, sigma=1.3, **facts).value
    10359
    """
    domain.one_of("sought", sought, SOUGHT)
    domain.one_of("guarantee", guarantee, NAMES)
    target = domain.number("epsilon", epsilon, "(0, 1e30]", "a guarantee at epsilon = 0 isn't calibrated to")
    delta = domain.number("delta", delta, domain.DELTA)
    _refuse_given(sought, facts)

    def given(value: float) -> tuple[NoisySGD, Guarantee | Unavailable]:
        run = run_under(relation, **{**facts, sought: value})
        return run, next(g for g in account(run, relation, orders) if g.name == guarantee)

    @functools.cache
    def ask(value: float) -> tuple[float, str]:
        return epsilon_or_reason(given(value)[1], delta)

    search = {"sigma": _sigma, "steps": _steps, "batch_size": _batch_size}[sought]
    value = search(ask, target, f"epsilon = {target:g} isn't reached at delta = {delta:g} by {guarantee}", facts)
    run, found = given(value)
    return Calibrated(
        sought=sought, value=value, run=run, relation=relation, guarantee=guarantee, kind=found.kind,
        epsilon=epsilon_or_reason(found, delta)[0], delta=delta,
    )  # fmt: skip


def _refuse_given(sought: Sought, facts: dict[str, Any]) -> None:
    clash = {"sigma": ["sigma"], "steps": ["steps", "epochs"], "batch_size": ["batch_size", "epochs", "sampling_rate"]}
    for name in clash[sought]:
        if facts.get(name) is not None:
            advice = "give steps, since with epochs they change" if sought == "batch_size" else "leave it out"
            raise ValueError(f"{name} = {facts[name]!r} isn't allowed: {sought} is sought; {advice}")


Ask = Callable[[float], tuple[float, str]]


def _sigma(ask: Ask, target: float, failure: str, facts: dict[str, Any]) -> float:
    def rounded(log_sigma: float) -> float:  # what's printed is what was asked
        return float(f"{math.exp(log_sigma):.10g}")

    def excess(log_sigma: float) -> float:
        return _log_ratio(ask(rounded(log_sigma))[0], target)

    low = high = 0.0
    step = math.log(2)
    while excess(high) > 0:
        low, high, step = high, high + step, 2 * step
        if high > math.log(_FARTHEST):
            still = f"with sigma = {rounded(low):.3g} it's still {ask(rounded(low))[0]:.4g}"
            raise ValueError(f"{failure}: {ask(1.0)[1] or still}")
    while low == high or excess(low) <= 0:
        low, step = low - step, 2 * step
        if low < -math.log(_FARTHEST):
            raise ValueError(f"{failure}: with hardly any noise it's below; choose a smaller epsilon")
    log_sigma = safe_root(excess, infeasible=low, feasible=high, tolerance=_TOLERANCE * min(1, 1 / target))
    beyond, reason = ask(rounded(log_sigma - 1e-8))
    if math.isinf(beyond) and excess(log_sigma) < -_TOLERANCE * min(1, 1 / target):
        raise ValueError(
            f"{failure}: the largest it says is {ask(rounded(log_sigma))[0]:.4g}, at sigma = "
            f"{rounded(log_sigma):.4g}; with less noise: {reason}"
        )
    return rounded(log_sigma)


def _steps(ask: Ask, target: float, failure: str, facts: dict[str, Any]) -> int:
    return _largest(ask, target, _MOST_STEPS, "steps", failure, f"it's lower still with {_MOST_STEPS:g} steps")


def _batch_size(ask: Ask, target: float, failure: str, facts: dict[str, Any]) -> int:
    n = domain.whole_number("n", facts.get("n"), "[1, 9e15]", "a batch size is sought among 1, …, n")
    return _largest(ask, target, n, "batch_size", failure, "")


def _largest(ask: Ask, target: float, most: int, name: str, failure: str, refusal: str) -> int:
    """The whole number in [1, most] that is allowed while the next one isn't; `most` itself unless that's refused."""
    high, factor = 1, 2
    while math.isinf(ask(high)[0]) and high < most:  # limits say nothing of the first few steps
        high = min(2 * high, most)
    epsilon = ask(high)[0]
    if epsilon > target:
        raise ValueError(f"{failure}: {ask(1)[1] or f'with {name} = {high} it is already {epsilon:.4g}; add noise'}")
    while ask(high)[0] <= target:
        if high == most and refusal:
            raise ValueError(f"{failure}: {refusal}")
        if high == most:
            return most
        low, high, factor = high, min(high * factor, most), factor**2
    excess = lambda log_k: _log_ratio(ask(min(round(math.exp(log_k)), high))[0], target)  # noqa: E731
    guess, step = round(math.exp(brentq(excess, math.log(low), math.log(high), xtol=0.1 / high))), 1
    while high - low > 1:  # from the guess on in growing steps, then by halves
        middle = guess if low < guess < high else (low + high) // 2
        if ask(middle)[0] <= target:
            low, guess = middle, middle + step
        else:
            high, guess = middle, middle - step
        step *= 2
    return low


def _log_ratio(epsilon: float, target: float) -> float:
    """log(ε/target), finite for every ε ≥ 0."""
    return math.log(min(max(epsilon, 1e-300), 1e300)) - math.log(target)


def safe_root(excess: Callable[[float], float], *, infeasible: float, feasible: float, tolerance: float) -> float:
    """A point with excess ≤ 0, and ≥ -tolerance if the function is continuous: the safe side of a crossing.

    `infeasible` and `feasible` are points where excess > 0 and ≤ 0; either may be the larger.

    >>> x = safe_root(lambda x: x**3 - 2, infeasible=3.0, feasible=0.0, tolerance=1e-6)
    >>> -1e-6 <= x**3 - 2 <= 0
    True
    """
    domain.instance("excess", excess, Callable, "lambda x: x - 1")
    infeasible = domain.number("infeasible", infeasible, "[-1e300, 1e300]")
    feasible = domain.number("feasible", feasible, "[-1e300, 1e300]")
    tolerance, value_at = domain.number("tolerance", tolerance, "[0, inf)"), functools.cache(excess)
    domain.number("excess(infeasible)", value_at(infeasible), "(0, inf]")
    domain.number("excess(feasible)", value_at(feasible), "[-inf, 0]")

    def aimed(x: float) -> float:
        value = value_at(x)
        return 0.0 if -tolerance <= value <= 0 else value + tolerance / 2

    point, step = brentq(aimed, infeasible, feasible, xtol=1e-11, maxiter=10_000), 1e-11
    while value_at(point) > 0:  # at a jump the search may end on the wrong side
        gap = feasible - point
        point, step = point + math.copysign(min(step, abs(gap)), gap), 2 * step
    return point
