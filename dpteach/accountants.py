"""From a run and a neighbouring relation to every guarantee that the package can give for it.

`account` is the one place that says which accountants exist. Each returns a `Guarantee`; add/remove is the
worse of the two directions of the Poisson pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpteach import domain
from dpteach.composition import OptimalComposition, StrongComposition
from dpteach.guarantees import Bracket, Guarantee, Kind
from dpteach.limits import BerryEsseenGuarantee, EdgeworthGuarantee, clt_guarantee
from dpteach.moments import ORDERS, MomentsGuarantee, Orders
from dpteach.run import RUN_EXAMPLE, NoisySGD, Relation
from dpteach.tensor_power import TensorPower

__all__ = [
    "NAMES", "Unavailable", "account", "answer", "convention", "epsilon_or_reason", "run_under", "summary",
    "warnings_for",
]  # fmt: skip

NAMES = (
    "tensor-power", "moments", "rdp", "optimal-composition", "strong-composition", "berry-esseen", "edgeworth", "clt",
)  # fmt: skip
_FACTS = ("sigma", "n", "batch_size", "steps", "epochs", "sampling_rate", "clip_norm")
_FACTS_ADVICE = (
    f"the facts are {', '.join(_FACTS)}: here sigma is noise std / sensitivity, as in the two papers, and the relation "
    "decides the sampling"
)
_SMALL_DELTA = 1e-6
_DELTA_ADVICE = "δ is a probability; typical values are below 1/n"


@dataclass(frozen=True)
class Unavailable:
    """A guarantee that can't be given for this run, and why. Has the name and kind of the one it stands for.

    >>> Unavailable("berry-esseen", "upper bound", "the law isn't symmetric").details(1e-5)
    {'reason': "the law isn't symmetric"}
    """

    name: str
    kind: Kind
    reason: str
    convention: str = ""

    def epsilon(self, delta: float) -> None:
        return None

    def delta(self, epsilon: float) -> None:
        return None

    def f(self, alpha: Any) -> None:
        return None

    def details(self, delta: float) -> dict[str, Any]:
        return {"reason": self.reason}


def convention(run: NoisySGD, relation: Relation) -> str:
    """The sentence part that every number needs: relation, sampling, what sigma is.

    >>> convention(NoisySGD.at_rate(0.01, steps=1, noise_multiplier=4.0), "add-remove")
    'add-remove neighbours, poisson batches, noise std 4 × clip_norm on the sum (sigma = 4)'
    """
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    return (
        f"{relation} neighbours, {run.sampling} batches, noise std {run.noise_multiplier:g} × clip_norm on the sum "
        f"(sigma = {run.sigma(relation):g})"
    )


def account(run: NoisySGD, relation: Relation, orders: Orders = "integer") -> tuple[Guarantee | Unavailable, ...]:
    """Every guarantee for `run` under `relation`, in a fixed order: ask each for `epsilon(delta)`, `f`, ….

    ====================  ===========  ==========================================================================
    name                  kind         where from
    ====================  ===========  ==========================================================================
    tensor-power          bracket      the T-fold tensor power of the one-step law (DRS22, Theorem 5.1)
    moments               upper bound  the moments accountant (Abadi16, Theorem 2)
    rdp                   upper bound  the same moments, converted as Rényi divergences (Canonne et al. 2020)
    optimal-composition   upper bound  each step as one (ε, δ) pair, composed optimally (Kairouz et al. 2015)
    strong-composition    upper bound  each step as one (ε, δ) pair, by strong composition (Dwork et al. 2010)
    berry-esseen          upper bound  the central limit with its error (DRS22, Theorem 3.4)
    edgeworth             asymptotic   the limit with two correction terms (Zheng et al. 2020)
    clt                   asymptotic   the limit itself (DRS22, Corollary 5.4; Poisson: Bu et al. 2020)
    ====================  ===========  ==========================================================================

    `orders` says which λ the two accountants of moments try: 'integer' as in Abadi16, or all 'real' λ > 0.

    Raises `ValueError` with the reason where no analysis covers the combination of sampling and relation.

    >>> run = NoisySGD.abadi16(sampling_rate=0.01, sigma=4.0, steps=10000)
    >>> for guarantee in account(run, "add-remove")[1:3]:
    ...     print(guarantee.name, guarantee.kind, round(guarantee.epsilon(1e-5), 4))
    moments upper bound 1.2586
    rdp upper bound 1.0355
    """
    domain.one_of("orders", orders, ORDERS)
    laws = domain.instance("run", run, NoisySGD, RUN_EXAMPLE).laws(relation)
    worst = laws[0]  # 'remove' carries the larger log moment: E2 ≥ E1 (chapter 3)
    steps, where = run.steps, convention(run, relation)
    moments = partial(MomentsGuarantee, law=worst, steps=steps, orders=orders, assumptions=where)
    makers: tuple[tuple[str, Kind, Callable[[], Guarantee]], ...] = (
        ("tensor-power", "bracket", lambda: TensorPower(laws=laws, steps=steps, assumptions=where)),
        ("moments", "upper bound", moments),
        ("rdp", "upper bound", partial(moments, conversion="renyi", name="rdp")),
        ("optimal-composition", "upper bound", lambda: OptimalComposition(laws=laws, steps=steps, assumptions=where)),
        ("strong-composition", "upper bound", lambda: StrongComposition(laws=laws, steps=steps, assumptions=where)),
        ("berry-esseen", "upper bound", lambda: BerryEsseenGuarantee(law=worst, steps=steps, assumptions=where)),
        ("edgeworth", "asymptotic", lambda: EdgeworthGuarantee(laws=laws, steps=steps, assumptions=where)),
        ("clt", "asymptotic", lambda: clt_guarantee(worst, steps, assumptions=where)),
    )
    return tuple(_or_reason(*maker, where) for maker in makers)


def run_under(relation: Relation, **facts: Any) -> NoisySGD:
    """The run as the relation's paper makes it: Poisson batches for add-remove, exactly m records for replace-one.

    `facts` are those of `NoisySGD`, with sigma (noise std / sensitivity) in place of the noise multiplier, and without
    the sampling. Raises `ValueError` for any other.

    >>> run_under("replace-one", sampling_rate=0.01, sigma=1.3, steps=1).noise_multiplier
    2.6
    """
    paper = {"add-remove": NoisySGD.abadi16, "replace-one": NoisySGD.drs22}
    make = paper[domain.one_of("relation", relation, tuple(paper))]
    for name, value in facts.items():
        domain.require(name, value, name in _FACTS, "left out", _FACTS_ADVICE)
    return make(**{"sigma": None} | facts)  # None is refused by name


def epsilon_or_reason(guarantee: Guarantee | Unavailable, delta: float) -> tuple[float, str]:
    """ε as one number, a bracket's upper end; infinity and the reason where the guarantee says nothing at δ.

    >>> epsilon_or_reason(Unavailable("berry-esseen", "upper bound", "the law isn't symmetric"), 1e-5)
    (inf, "the law isn't symmetric")
    """
    row = answer(guarantee, delta)
    if row["epsilon"] is None:
        return math.inf, row["reason"]
    return float(np.max(row["epsilon"])), ""


def answer(guarantee: Guarantee | Unavailable, delta: float) -> dict[str, Any]:
    """One row of an account at δ: name, kind, epsilon (a number, (lower, upper), or None with a reason), details.

    >>> answer(Unavailable("berry-esseen", "upper bound", "the law isn't symmetric"), 1e-5)["epsilon"] is None
    True
    """
    delta = domain.number("delta", delta, domain.DELTA, _DELTA_ADVICE)
    domain.instance("guarantee", guarantee, Guarantee | Unavailable, "GaussianGuarantee(mu=1.0)")
    row: dict[str, Any] = {"name": guarantee.name, "kind": guarantee.kind}
    epsilon: Any = guarantee.epsilon(delta)
    if epsilon is None or math.isinf(epsilon):
        reason = guarantee.details(delta)["reason"] if isinstance(guarantee, Unavailable) else guarantee.reason
        return row | {"epsilon": None, "reason": reason}
    if isinstance(guarantee, Bracket):
        epsilon = (guarantee.lower.epsilon(delta), epsilon)
    return row | {"epsilon": epsilon, **guarantee.details(delta)}


def _or_reason(name: str, kind: Kind, make: Callable[[], Guarantee], where: str) -> Guarantee | Unavailable:
    try:
        return make()
    except ValueError as error:
        return Unavailable(name, kind, str(error), where)


def warnings_for(run: NoisySGD, delta: float) -> list[str]:
    """What a reader of the numbers must be told: δ against 1/n, asymptotic numbers at small δ.

    >>> warnings_for(NoisySGD(n=1000, batch_size=10, steps=1, noise_multiplier=1.0), 0.01)[0][:32]
    'delta = 0.01 is at least 1/n = 0'
    """
    delta = domain.number("delta", delta, domain.DELTA, _DELTA_ADVICE)
    told = []
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    if run.n is None:
        told.append("n isn't known, so nothing can be said of delta against 1/n")
    elif delta >= 1 / run.n:
        told.append(f"delta = {delta:g} is at least 1/n = {1 / run.n:g}: such a delta allows publishing a whole record")
    if delta < _SMALL_DELTA:
        told.append(f"delta = {delta:g} is small: an asymptotic epsilon can be too low there")
    return told


def summary(run: NoisySGD, relation: Relation, delta: float, orders: Orders = "integer") -> dict[str, Any]:
    """The answer of `account` at δ as one dictionary for JSON: facts, warnings, one row for each guarantee.

    >>> found = summary(NoisySGD.at_rate(0.01, steps=10, noise_multiplier=4.0), "add-remove", 1e-5)
    >>> found["sampling"], found["steps"], [row["name"] for row in found["guarantees"]][:2]
    ('poisson', 10, ['tensor-power', 'moments'])
    """
    warnings = warnings_for(run, delta)
    return {
        "convention": relation,
        "sampling": run.sampling,
        "steps": run.steps,
        "delta": delta,
        "noise_multiplier": run.noise_multiplier,
        "sampling_rate": run.sampling_rate,
        "warnings": warnings,
        "guarantees": [answer(guarantee, delta) for guarantee in account(run, relation, orders)],
        "assumptions": convention(run, relation),
    }
