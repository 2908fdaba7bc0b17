"""From a run and a neighbouring relation to every guarantee that the package gives (chapter 20).

`account` is the one place that says which accountants exist: each is one line of its table.
Add/remove is the worse of the two directions of the Poisson pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpteach import batches, domain
from dpteach.composition import OptimalComposition, StrongComposition
from dpteach.guarantees import (
    Bracket,
    GaussianGuarantee,
    Guarantee,
    Kind,
    NothingProved,
    NothingReleased,
)
from dpteach.laws import Law
from dpteach.limits import BerryEsseenGuarantee, EdgeworthGuarantee, clt_guarantee
from dpteach.moments import ORDERS, MomentsGuarantee, Orders, PhasedMoments
from dpteach.phases import JoinedPower
from dpteach.run import (
    BY_EPOCHS,
    RUN_EXAMPLE,
    SAMPLINGS,
    SENSITIVITY,
    NoisySGD,
    Phases,
    Relation,
    Sampling,
)
from dpteach.tensor_power import TensorPower

__all__ = [
    "NAMES", "Account", "account", "answer", "assumptions", "phases_under", "proved", "run_under",
    "summary", "warnings_for",
]  # fmt: skip

_FACTS = (
    "sigma", "n", "batch_size", "steps", "epochs", "rate", "clip_norm", "sampling", "largest_batch",
    "batches_per_epoch",
)  # fmt: skip
_FACTS_ADVICE = (
    f"the facts are {', '.join(_FACTS)}: here sigma is noise std / sensitivity, as in the two "
    "papers, and the relation decides the sampling unless it's named"
)
_BEYOND = "epsilon is above 1e5, the end of its domain"
_SMALL_DELTA = 1e-6
_LARGE_EPSILON = 10.0
Later = tuple[tuple[tuple[Law, ...], int], ...]


def assumptions(run: NoisySGD | Phases, relation: Relation) -> str:
    """The sentence part that every number needs: relation, sampling, what sigma is.

    >>> assumptions(NoisySGD.at_rate(0.01, steps=1, noise_multiplier=4.0), "add-remove")
    'add-remove neighbours, poisson batches, noise std 4 × clip_norm on the sum (sigma = 4)'
    """
    if isinstance(run, Phases):
        each = "; ".join(f"{one.steps} steps of {_batches(one, relation)}" for one in run.runs)
        return f"{relation} neighbours, {len(run.runs)} phases fixed in advance: {each}"
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    return f"{relation} neighbours, {_batches(run, relation)}"


def _batches(run: NoisySGD, relation: Relation) -> str:
    return (
        f"{run.sampling} batches, noise std {run.noise_multiplier:g} × clip_norm on the sum "
        f"(sigma = {run.sigma(relation):g})"
    )


@dataclass(frozen=True)
class _Question:
    """What a maker of a guarantee may use."""

    laws: tuple[Law, ...]
    orders: Orders
    same: dict[str, Any]  # steps and assumptions, which every guarantee takes
    later: Later = ()  # laws and steps of the phases after the first

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


def _joined_moments(ask: _Question, **conversion: Any) -> Guarantee:
    more = tuple((laws[0], steps) for laws, steps in ask.later)
    return PhasedMoments(law=ask.worst, orders=ask.orders, more=more, **conversion, **ask.same)


def _joined_limit(ask: _Question) -> Guarantee:
    """Theorem 3.4 is about unequal steps: mu² adds up."""
    parts = ((ask.laws, ask.same["steps"]), *ask.later)
    mu = math.sqrt(sum(steps * laws[0].limit_mu**2 for laws, steps in parts))
    sentence = ask.same["assumptions"]
    return GaussianGuarantee(mu=mu, name="clt", kind="asymptotic", assumptions=sentence)


_JOINED: dict[str, Callable[[_Question], Guarantee]] = {
    "tensor-power": lambda ask: JoinedPower(laws=ask.laws, more=ask.later, **ask.same),
    "moments": _joined_moments,
    "rdp": lambda ask: _joined_moments(ask, conversion="renyi", name="rdp"),
    "clt": _joined_limit,
}


class Account(Mapping[str, Guarantee]):
    """The guarantees for one run by name, each made when it's first asked for."""

    def __init__(self, run: NoisySGD | Phases, relation: Relation, orders: Orders) -> None:
        whole = run.runs if isinstance(run, Phases) else (run,)
        for one in whole:
            one.check_covered(relation)
        runs = [one for one in whole if one.steps] or [whole[0]]
        covered = all(one.has_laws(relation) for one in runs)
        parts = [(one.laws(relation) if covered else (), one.steps) for one in runs]
        same = {"steps": runs[0].steps, "assumptions": assumptions(run, relation)}
        self._runs, self._relation = runs, relation
        self._question = _Question(parts[0][0], orders, same, tuple(parts[1:]))
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
        try:
            if not self._question.laws:
                return self._by_batches(name, sentence)
            if self._question.later:
                make = _JOINED.get(name, _not_joined)
            return make(self._question)
        except ValueError as error:
            return NothingProved(name=name, kind=kind, reason=str(error), assumptions=sentence)

    def _by_batches(self, name: str, sentence: str) -> Guarantee:
        """Batches without a law of one step have the two ends of chapter 21, and nothing else."""
        if len(self._runs) > 1:
            reason = "phases are joined only where one step has a law"
            raise ValueError(f"{reason}: draw Poisson batches")
        run = self._runs[0]
        if name != "tensor-power":
            raise ValueError(f"{run.sampling} batches have no law of one step: see tensor-power")
        return batches.bracket(run, self._relation, sentence)


def _not_joined(ask: _Question) -> Guarantee:
    raise ValueError("it isn't computed for phases: see tensor-power, moments, rdp and clt")


def account(
    run: NoisySGD | Phases | Sequence[NoisySGD], relation: Relation, orders: Orders = "integer"
) -> Account:
    """Every guarantee for `run` under `relation`, by name and in a fixed order.

    A list of runs is a run in `Phases`: it has tensor-power, moments, rdp and clt.

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
    return Account(_whole(run), relation, orders)


def _whole(run: NoisySGD | Phases | Sequence[NoisySGD]) -> NoisySGD | Phases:
    if isinstance(run, list | tuple):
        return Phases(tuple(run))
    return domain.instance("run", run, NoisySGD | Phases, RUN_EXAMPLE)


def run_under(relation: Relation, **facts: Any) -> NoisySGD:
    """The run as the relation's paper makes it: fixed-size for replace-one, else Poisson batches.

    `facts` are those of `NoisySGD` with sigma (noise std / sensitivity) in place of the noise
    multiplier, and with epochs where steps aren't given. With a sampling it's a run of that
    sampling, which the relation needn't have; B batches in an epoch (batches_per_epoch) stand for
    the rate 1/B where batches come by epochs.

    >>> run_under("replace-one", rate=0.01, sigma=1.3, steps=1).noise_multiplier
    2.6
    """
    paper = {"add-remove": NoisySGD.abadi16, "replace-one": NoisySGD.drs22}
    paper["zero-out"] = NoisySGD.abadi16
    make = paper[domain.one_of("relation", relation, tuple(paper))]
    for name, value in facts.items():
        domain.require(name, value, name in _FACTS, "left out", _FACTS_ADVICE)
    facts = {"sigma": None} | facts  # None is refused by name
    return _drawn(relation, **facts) if "sampling" in facts else make(**facts)


def _drawn(
    relation: Relation, *, sampling: Sampling, sigma: float, epochs: float | None = None,
    batches_per_epoch: int | None = None, **facts: Any,
) -> NoisySGD:  # fmt: skip
    """A run of the named sampling; sigma in the relation's unit."""
    facts |= {"sampling": sampling, "noise_multiplier": domain.sigma(sigma) * SENSITIVITY[relation]}
    if batches_per_epoch is not None:
        advice = f"epochs have a number of batches under {' and '.join(BY_EPOCHS)}"
        named = domain.one_of("sampling", sampling, SAMPLINGS) in BY_EPOCHS
        domain.require("batches_per_epoch", batches_per_epoch, named, "left out", advice)
        count = domain.whole_number("batches_per_epoch", batches_per_epoch, "[1, 1e7]")
        facts["rate"] = 1 / count
        if epochs is not None:
            whole = domain.whole_number("epochs", epochs, "[0, 1e6]", "whole passes")
            facts["steps"], epochs = count * whole, None
    if epochs is not None:
        return NoisySGD.for_epochs(**{"n": None, "batch_size": None} | facts, epochs=epochs)
    return NoisySGD(**{"steps": None} | facts)


def phases_under(relation: Relation, plan: Sequence[tuple[float, float, int]]) -> Phases:
    """A run in phases from (sigma, rate, steps) of each, drawn as the relation's paper draws.

    >>> plan = phases_under("add-remove", [(1.3, 0.01, 100), (1.0, 0.02, 50)])
    >>> plan.steps, plan.runs[1].sampling
    (150, 'poisson')
    """
    phases = [run_under(relation, sigma=s, rate=q, steps=t) for s, q, t in plan]
    return Phases(tuple(phases))


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


def warnings_for(run: NoisySGD | Phases, delta: float) -> list[str]:
    """What a reader of the numbers must be told of δ: against 1/n, and for asymptotic numbers.

    >>> warnings_for(NoisySGD(n=1000, batch_size=10, steps=1, noise_multiplier=1.0), 0.01)[0][:32]
    'delta = 0.01 is at least 1/n = 0'
    """
    delta, found = domain.delta(delta), []
    domain.instance("run", run, NoisySGD | Phases, RUN_EXAMPLE)
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
    run: NoisySGD | Phases | Sequence[NoisySGD], relation: Relation, delta: float,
    orders: Orders = "integer",
) -> dict[str, Any]:  # fmt: skip
    """The answer of `account` at δ as one dictionary for JSON: facts, warnings, a row for each.

    >>> run = NoisySGD.at_rate(0.01, steps=10, noise_multiplier=4.0)
    >>> found = summary(run, "add-remove", 1e-5)
    >>> found["sampling"], found["steps"], [row["name"] for row in found["guarantees"]][:2]
    ('poisson', 10, ['tensor-power', 'moments'])
    """
    run = _whole(run)
    rows = [answer(guarantee, delta) for guarantee in account(run, relation, orders).values()]
    return {
        "convention": relation,
        **_facts_of(run),
        "delta": delta,
        "warnings": warnings_for(run, delta) + _warnings_of_rows(rows),
        "guarantees": rows,
        "assumptions": assumptions(run, relation),
    }


def _facts_of(run: NoisySGD | Phases) -> dict[str, Any]:
    """How batches were drawn, how often, with how much noise; of phases one after the other."""
    if isinstance(run, NoisySGD):
        names = ("sampling", "steps", "noise_multiplier", "sampling_rate")
        return {name: getattr(run, name) for name in names}
    parts = [_facts_of(one) | {"clip_norm": one.clip_norm} for one in run.runs]
    sampling = " and ".join(sorted({part["sampling"] for part in parts}))
    together = {"sampling": sampling, "steps": run.steps, "phases": parts}
    return together | {"noise_multiplier": None, "sampling_rate": None}
