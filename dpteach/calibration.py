"""The other way round: the noise, steps or batch that an (ε, δ) leaves room for (chapter 20).

`calibrate` asks `account` again and again, so what it promises is what `account` says of the run
that it returns. ε falls with σ and rises with the steps T and the batch size m: more noise is
post-processing of less, a longer run contains a shorter one, and each guarantee's formula follows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from scipy.optimize import brentq

from dpteach import domain
from dpteach.accountants import NAMES, account, run_under
from dpteach.guarantees import Guarantee, Kind
from dpteach.moments import Orders
from dpteach.numerics.roots import safe_root
from dpteach.risk import advantage as advantage_of
from dpteach.risk import true_positive_rate
from dpteach.run import NoisySGD, Relation

__all__ = ["SOUGHT", "Calibrated", "CalibratedRisk", "Sought", "calibrate", "calibrate_risk"]

Sought = Literal["sigma", "steps", "batch_size"]
SOUGHT = ("sigma", "steps", "batch_size")
_LOG_SIGMA = math.log(0.05), math.log(1e3)  # the domain of sigma
_MOST_STEPS = 10**9  # and of steps
_CLASH = {
    "sigma": ("sigma",),
    "steps": ("steps", "epochs"),
    "batch_size": ("batch_size", "epochs", "rate"),
}


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What `calibrate` found: `value` of `sought`, the `run`, its `epsilon` at `delta`.

    >>> target = dict(epsilon=1.0, delta=1e-5)
    >>> found = calibrate("sigma", "clt", "add-remove", **target, rate=0.01, steps=10000)
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
    """The least σ, the most steps or the largest batch with at most `epsilon` at `delta`.

    Parameters
    ----------
    sought : 'sigma', 'steps' or 'batch_size'.
    guarantee : a name that `account` uses; of the bracket its upper end counts. The result is worth
        what the guarantee's kind says: calibrated to an asymptotic one, a run has no proved ε.
    relation : decides sampling and what σ means, as in the two papers (`run_under`).
    epsilon, delta : the target, in (0, 1e5] and [1e-30, 1).
    facts : the run's other parameters: sigma, n, batch_size, rate, steps, epochs. A batch size is
        sought for given steps, since with epochs the number of steps would change with it.

    For σ: ε ≤ target, and within 1e-3 of it (relatively within 1e-3, for targets below 1). Only
    where the computed upper end of a bracket jumps can it be farther off, by the bracket's width.
    For steps and batch size: ε ≤ target, and > target with one more; the largest batch is n.

    Raises `ValueError` for a target that the guarantee can't reach in the domain, with the reason.

    >>> facts = dict(n=60000, batch_size=256, sigma=1.3)
    >>> calibrate("steps", "moments", "add-remove", epsilon=2.0, delta=1e-5, **facts).value
    10359
    """
    domain.one_of("sought", sought, SOUGHT)
    domain.one_of("guarantee", guarantee, NAMES)
    advice = "a guarantee at epsilon = 0 isn't calibrated to"
    target, delta = domain.number("epsilon", epsilon, "(0, 1e5]", advice), domain.delta(delta)
    for name in _CLASH[sought]:
        given = facts.get(name)
        domain.require(name, given, given is None, "left out", f"{sought} is sought, steps given")

    @functools.cache
    def made(value: float) -> tuple[NoisySGD, Guarantee]:
        run = run_under(relation, **{**facts, sought: value})
        return run, account(run, relation, orders)[guarantee]

    @functools.cache
    def ask(value: float) -> float:
        return made(value)[1].epsilon(delta)

    def refuse(value: float, what: str) -> ValueError:
        start = f"epsilon = {target:g} isn't reached at delta = {delta:g} by {guarantee}"
        at = f"with {sought} = {value:.4g} it's {what} {ask(value):.4g}"
        return ValueError(f"{start}: {made(value)[1].reason if math.isinf(ask(value)) else at}")

    if sought == "sigma":
        value = _least_sigma(ask, target, refuse)
    else:
        most = _MOST_STEPS
        if sought == "batch_size":
            advice = "a batch size is sought among 1, …, n"
            most = domain.whole_number("n", facts.get("n"), "[1, 1e9]", advice)
        value = _largest(ask, target, most, refuse)
        if sought == "steps" and value == most:
            raise refuse(value, "still only")
    run, found = made(value)
    return Calibrated(
        sought=sought, value=value, run=run, relation=relation, guarantee=guarantee,
        kind=found.kind, epsilon=ask(value), delta=delta,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CalibratedRisk:
    """What `calibrate_risk` found: the least `sigma`, the `run`, and the `reached` risk.

    >>> found = calibrate_risk("add-remove", advantage=0.3, guarantee="clt", rate=1.0, steps=1)
    >>> 0.299 <= found.reached <= found.target
    True
    """

    sigma: float
    run: NoisySGD
    relation: Relation
    guarantee: str
    kind: Kind
    target: float
    reached: float


def calibrate_risk(
    relation: Relation, *, advantage: float | None = None, tpr: float | None = None,
    fpr: float | None = None, guarantee: str = "tensor-power", orders: Orders = "integer",
    **facts: Any,
) -> CalibratedRisk:  # fmt: skip
    """The least σ for which every attack's success is at most what's given.

    Parameters
    ----------
    relation, guarantee, orders, facts : as for `calibrate`, whose least σ this is, with its
        tolerance of 1e-3 (relative).
    advantage : largest advantage δ(0), in (0, 1). Or instead of it:
    tpr, fpr : largest true positive rate at the false positive rate `fpr`; 0 < fpr < tpr < 1.

    A promise about one α says little about smaller ones: say first which α matters (chapter 20).

    Raises `ValueError` for a risk that no σ in the domain reaches, with the reason.

    >>> facts = dict(n=60000, batch_size=256, epochs=15)
    >>> round(calibrate_risk("add-remove", advantage=0.1, **facts).sigma, 2)
    1.2
    """
    domain.one_of("guarantee", guarantee, NAMES)
    if advantage is not None:
        one_of_them = tpr is None and fpr is None
        domain.require("tpr", tpr, one_of_them, "left out", "the advantage is given")
        target, what = domain.number("advantage", advantage, "(0, 1)"), "advantage"
        risk: Callable[[Guarantee], float] = advantage_of
    else:
        alpha = domain.number("fpr", fpr, "(0, 1)", "it's the test's false positive rate")
        advice = "a blind guess has a true positive rate equal to fpr"
        target, what = domain.number("tpr", tpr, f"({alpha!r}, 1)", advice), f"tpr at fpr {alpha:g}"
        risk = lambda found: float(true_positive_rate(found, alpha))  # noqa: E731
    given = facts.get("sigma")
    domain.require("sigma", given, given is None, "left out", "it's what is sought")

    @functools.cache
    def made(sigma: float) -> tuple[NoisySGD, Guarantee]:
        run = run_under(relation, **{**facts, "sigma": sigma})
        return run, account(run, relation, orders)[guarantee]

    @functools.cache
    def ask(sigma: float) -> float:
        return risk(made(sigma)[1])

    def refuse(sigma: float, what_is: str) -> ValueError:
        start = f"{what} = {target:g} isn't reached by {guarantee}"
        return ValueError(f"{start}: with sigma = {sigma:.4g} it's {what_is} {ask(sigma):.4g}")

    sigma = _least_sigma(ask, target, refuse)
    run, found = made(sigma)
    return CalibratedRisk(
        sigma=sigma, run=run, relation=relation, guarantee=guarantee, kind=found.kind,
        target=target, reached=ask(sigma),
    )  # fmt: skip


Ask = Callable[[float], float]
Refuse = Callable[[float, str], ValueError]


def _log_ratio(epsilon: float, target: float) -> float:
    """log(ε/target), finite for every ε ≥ 0."""
    return math.log(min(max(epsilon, 1e-300), 1e300) / target)


def _least_sigma(ask: Ask, target: float, refuse: Refuse) -> float:
    def rounded(log_sigma: float) -> float:  # what's printed is what was asked
        return float(f"{math.exp(log_sigma):.10g}")

    def excess(log_sigma: float) -> float:
        return _log_ratio(ask(rounded(log_sigma)), target)

    least, most = _LOG_SIGMA
    low = high = 0.0  # from sigma = 1 outwards: far out the accountants take longer
    while excess(high) > 0:
        if high == most:
            raise refuse(rounded(high), "still")
        low, high = high, min(high + 1, most)
    while low == high or excess(low) <= 0:
        if low == least:
            raise refuse(rounded(low), "already")
        low = max(low - 1, least)
    tolerance = 1e-3 * min(1, 1 / target)
    log_sigma = safe_root(excess, infeasible=low, feasible=high, tolerance=tolerance)
    if math.isinf(ask(rounded(log_sigma - 1e-8))) and excess(log_sigma) < -tolerance:
        raise refuse(rounded(log_sigma), "the largest, with less noise it proves nothing:")
    return rounded(log_sigma)


def _largest(ask: Ask, target: float, most: int, refuse: Refuse) -> int:
    """The whole number in [1, most] that is allowed while the next one isn't, or `most`."""
    high, factor = 1, 2
    while math.isinf(ask(high)) and high < most:  # limits say nothing of the first few steps
        high = min(2 * high, most)
    if ask(high) > target:
        raise refuse(high, "already")
    while ask(high) <= target:
        if high == most:
            return most
        low, high, factor = high, min(high * factor, most), factor**2
    excess = lambda log_k: _log_ratio(ask(round(math.exp(log_k))), target)  # noqa: E731
    k = round(math.exp(brentq(excess, math.log(low), math.log(high), xtol=0.1 / high)))
    while ask(k) > target:
        k -= 1
    while ask(k + 1) <= target:
        k += 1
    return k
