"""From a run and a neighbouring relation to every guarantee that the package gives (chapter 20).

`account` is the one place that says which accountants exist: each is one line of its table.
Add/remove is the worse of the two directions of the Poisson pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpteach import batches, domain
from dpteach.composition import OptimalComposition, StrongComposition
from dpteach.guarantees import Bracket, Guarantee, Kind, NothingProved, NothingReleased
from dpteach.laws import Law
from dpteach.limits import BerryEsseenGuarantee, EdgeworthGuarantee, clt_guarantee
from dpteach.moments import ORDERS, MomentsGuarantee, Orders
from dpteach.run import RUN_EXAMPLE, NoisySGD, Relation
from dpteach.tensor_power import TensorPower

__all__ = [
    "NAMES", "Account", "account", "answer", "assumptions", "proved", "run_under", "summary",
    "warnings_for",
]  # fmt: skip

_FACTS = ("sigma", "n", "batch_size", "steps", "epochs", "rate", "clip_norm")
_FACTS_ADVICE = (
    f"the facts are {', '.join(_FACTS)}: here sigma is noise std / sensitivity, as in the two "
    "papers, and the relation decides the sampling"
)
_BEYOND = "epsilon is above 1e5, the end of its domain"
_SMALL_DELTA = 1e-6
_LARGE_EPSILON = 10.0


def assumptions(run: NoisySGD, relation: Relation) -> str:
    """The sentence part that every number needs: relation, sampling, what sigma is.

    >>> assumptions(NoisySGD.at_rate(0.01, steps=1, noise_multiplier=4.0), "add-remove")
    'add-remove neighbours, poisson batches, noise std 4 × clip_norm on the sum (sigma = 4)'
    """
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    return (
        f"{relation} neighbours, {run.sampling} batches, noise std {run.noise_multiplier:g} × "
        f"clip_norm on the sum (sigma = {run.sigma(relation):g})"
    )


@dataclass(frozen=True)
class _Question:
    """What a maker of a guarantee may use."""

    laws: tuple[Law, ...]
    orders: Orders
    same: dict[str, Any]  # steps and assumptions, which every guarantee takes

    @property
    def worst(self) -> Law:
        """'remove' carries the larger log moment: E2 ≥ E1 (chapter 3)."""
        return self.laws[0]


_ACCOUNTANTS: dict[str, tuple[Kind, Callable[[_Question], Guarantee]]] = {
    "tensor-power": ("bracket", lambda ask: TensorPower(laws=ask.laws, **ask.same)),
    "moments": (
        "upper bound", lambda ask: MomentsGuarantee(law=ask.worst, orders=ask.orders, **ask.same)
    ),
    "rdp": ("upper bound", lambda ask: MomentsGuarantee(
        law=ask.worst, orders=ask.orders, conversion="renyi", name="rdp", **ask.same
    )),
    "optimal-composition": (
        "upper bound", lambda ask: OptimalComposition(laws=ask.laws, **ask.same)
    ),
    "strong-composition": ("upper bound", lambda ask: StrongComposition(laws=ask.laws, **ask.same)),
    "berry-esseen": ("upper bound", lambda ask: BerryEsseenGuarantee(law=ask.worst, **ask.same)),
    "edgeworth": ("asymptotic", lambda ask: EdgeworthGuarantee(laws=ask.laws, **ask.same)),
    "clt": ("asymptotic", lambda ask: clt_guarantee(ask.worst, **ask.same)),
}  # fmt: skip
NAMES = tuple(_ACCOUNTANTS)


class Account(Mapping[str, Guarantee]):
    """The guarantees for one run by name, each made when it's first asked for."""

    def __init__(self, run: NoisySGD, relation: Relation, orders: Orders) -> None:
        run.check_covered(relation)
        same = {"steps": run.steps, "assumptions": assumptions(run, relation)}
        laws = run.laws(relation) if run.has_laws(relation) else ()
        self._run, self._relation = run, relation
        self._question = _Question(laws, orders, same)
        self._made: dict[str, Guarantee] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    def __getitem__(self, name: str) -> Guarantee:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Guarantee:
        kind, make = _ACCOUNTANTS[name]
        steps, sentence = self._question.same.values()
        if steps == 0:
            return NothingReleased(name=name, assumptions=sentence)
        if not self._question.laws:
            return self._by_batches(name, kind, sentence)
        try:
            return make(self._question)
        except ValueError as error:
            return NothingProved(name=name, kind=kind, reason=str(error), assumptions=sentence)

    def _by_batches(self, name: str, kind: Kind, sentence: str) -> Guarantee:
        """Batches without a law of one step have the two ends of chapter 21, and nothing else."""
        if name == "tensor-power":
            return batches.bracket(self._run, self._relation, sentence)
        reason = f"{self._run.sampling} batches have no law of one step: see tensor-power"
        return NothingProved(name=name, kind=kind, reason=reason, assumptions=sentence)


def account(run: NoisySGD, relation: Relation, orders: Orders = "integer") -> Account:
    """Every guarantee for `run` under `relation`, by name and in a fixed order.

    ====================  ===========  =============================================================
    name                  kind         where from
    ====================  ===========  =============================================================
    tensor-power          bracket      tensor power of the one-step law (DRS22, Theorem 5.1): the
                                       privacy loss distribution (PLD), composed numerically
    moments               upper bound  the moments accountant (Abadi16, Theorem 2)
    rdp                   upper bound  the same moments as Rényi divergences (Canonne et al. 2020)
    optimal-composition   upper bound  each step as one (ε, δ) pair, composed optimally
                                       (Kairouz et al. 2015)
    strong-composition    upper bound  each step as one (ε, δ) pair, by strong, also called advanced
                                       composition (Dwork et al. 2010)
    berry-esseen          upper bound  the central limit with its error (DRS22, Theorem 3.4)
    edgeworth             asymptotic   the limit with two correction terms (Zheng et al. 2020)
    clt                   asymptotic   the limit itself (DRS22, Corollary 5.4; Poisson: Bu et al.
                                       2020); at rate 1, where every step is Gaussian, exact
    ====================  ===========  =============================================================

    `orders` says which λ the two accountants of moments try: 'integer' as in Abadi16, or all 'real'
    λ > 0. A run of 0 steps has ε = 0 under every name.

    Raises `ValueError` with the reason where no analysis covers the sampling under the relation.

    >>> run = NoisySGD.abadi16(rate=0.01, sigma=4.0, steps=10000)
    >>> round(account(run, "add-remove")["moments"].epsilon(1e-5), 4)
    1.2586
    >>> [name for name, g in account(run, "add-remove").items() if g.epsilon(1e-5) < 1.04]
    ['tensor-power', 'rdp', 'edgeworth', 'clt']
    """
    domain.one_of("orders", orders, ORDERS)
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    return Account(run, relation, orders)


def run_under(relation: Relation, **facts: Any) -> NoisySGD:
    """The run as the relation's paper makes it: fixed-size for replace-one, else Poisson batches.

    `facts` are those of `NoisySGD` with sigma (noise std / sensitivity) in place of the noise
    multiplier, without the sampling, and with epochs where steps aren't given.

    >>> run_under("replace-one", rate=0.01, sigma=1.3, steps=1).noise_multiplier
    2.6
    """
    paper = {"add-remove": NoisySGD.abadi16, "replace-one": NoisySGD.drs22}
    paper["zero-out"] = NoisySGD.abadi16
    make = paper[domain.one_of("relation", relation, tuple(paper))]
    for name, value in facts.items():
        domain.require(name, value, name in _FACTS, "left out", _FACTS_ADVICE)
    return make(**{"sigma": None} | facts)  # None is refused by name


def answer(guarantee: Guarantee, delta: float) -> dict[str, Any]:
    """One row of an account for JSON: name, kind, epsilon, and the details or the reason.

    epsilon is a number, [lower, upper] for a bracket, or None with the reason.

    >>> answer(NothingProved(name="berry-esseen", reason="the law isn't symmetric"), 1e-5)["reason"]
    "the law isn't symmetric"
    """
    domain.instance("guarantee", guarantee, Guarantee, "GaussianGuarantee(mu=1.0)")
    row: dict[str, Any] = {"name": guarantee.name, "kind": guarantee.kind}
    epsilon = guarantee.epsilon(delta)
    if math.isinf(epsilon):
        return row | {"epsilon": None, "reason": guarantee.reason or _BEYOND}
    if isinstance(guarantee, Bracket):
        row["epsilon"] = [guarantee.lower.epsilon(delta), epsilon]
    else:
        row["epsilon"] = epsilon
    return row | guarantee.details(delta)


def warnings_for(run: NoisySGD, delta: float) -> list[str]:
    """What a reader of the numbers must be told of δ: against 1/n, and for asymptotic numbers.

    >>> warnings_for(NoisySGD(n=1000, batch_size=10, steps=1, noise_multiplier=1.0), 0.01)[0][:32]
    'delta = 0.01 is at least 1/n = 0'
    """
    delta, found = domain.delta(delta), []
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    if run.n is None:
        found.append("n isn't known, so nothing can be said of delta against 1/n")
    elif delta >= 1 / run.n:
        found.append(
            f"delta = {delta:g} is at least 1/n = {1 / run.n:g}: such a delta allows publishing a "
            "whole record"
        )
    if delta < _SMALL_DELTA:
        found.append(f"delta = {delta:g} is small: an asymptotic epsilon can be too low there")
    return found


def _warnings_of_rows(rows: list[dict[str, Any]]) -> list[str]:
    """What must be told of the numbers themselves: an order at the grid's end, ε of no use."""
    found = []
    for row in rows:
        least = 2 if row["name"] == "rdp" else 1  # an RDP order is λ + 1
        if row.get("orders") == "integer" and row.get("order") == least:
            found.append(
                f"{row['name']}: the best order, {least}, is at the end of the grid of whole "
                "orders; real orders may give far less (orders 'real')"
            )
    least_epsilon = min((row["epsilon"] for row in proved(rows)), default=0.0)
    if least_epsilon > _LARGE_EPSILON:
        found.append(
            f"epsilon = {least_epsilon:.4g} protects next to nothing: who guesses whether a record "
            f"was used may be wrong only once in e^{least_epsilon:.4g} times"
        )
    return found


def proved(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Name, kind and ε (a bracket's upper end) of the rows that prove something, least ε first.

    >>> proved([{"name": "clt", "kind": "asymptotic", "epsilon": 0.8}])
    []
    """
    kept = [r for r in rows if r["kind"] != "asymptotic" and r["epsilon"] is not None]
    found = [{key: row[key] for key in ("name", "kind", "epsilon")} for row in kept]
    for row in found:
        if isinstance(row["epsilon"], list):
            row["epsilon"] = row["epsilon"][-1]
    return sorted(found, key=lambda row: row["epsilon"])


def summary(
    run: NoisySGD, relation: Relation, delta: float, orders: Orders = "integer"
) -> dict[str, Any]:
    """The answer of `account` at δ as one dictionary for JSON: facts, warnings, a row for each.

    >>> run = NoisySGD.at_rate(0.01, steps=10, noise_multiplier=4.0)
    >>> found = summary(run, "add-remove", 1e-5)
    >>> found["sampling"], found["steps"], [row["name"] for row in found["guarantees"]][:2]
    ('poisson', 10, ['tensor-power', 'moments'])
    """
    rows = [answer(guarantee, delta) for guarantee in account(run, relation, orders).values()]
    return {
        "convention": relation,
        "sampling": run.sampling,
        "steps": run.steps,
        "delta": delta,
        "noise_multiplier": run.noise_multiplier,
        "sampling_rate": run.sampling_rate,
        "warnings": warnings_for(run, delta) + _warnings_of_rows(rows),
        "guarantees": rows,
        "assumptions": assumptions(run, relation),
    }
