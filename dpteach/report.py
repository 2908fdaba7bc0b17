"""The privacy statement of one run: what was done, what it guarantees and to whom (chapter 20).

`statement` collects everything in one dictionary that JSON can hold; `to_markdown` and `to_html`
write the same page from it. The HTML page is one file: its style and its trade-off curve are
inside.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from dpteach import domain
from dpteach.accountants import account, answer, assumptions, proved, summary
from dpteach.guarantees import GaussianGuarantee, Guarantee, f_epsilon_delta, shown
from dpteach.moments import Orders
from dpteach.numerics.roots import safe_root
from dpteach.risk import risk
from dpteach.run import BY_EPOCHS, NoisySGD, Phases, Relation
from dpteach.tensor_power import TensorPower
from dpteach.tuning import BestOfRandom, Trials
from dpteach.users import user_laws

__all__ = [
    "as_text", "epsilon_text", "group_epsilon", "percent", "risk_of", "statement", "to_html",
    "to_markdown",
]  # fmt: skip

_BATCHES = {
    "poisson": "Poisson batches of {} records expected",
    "fixed-size": "uniform batches of exactly {} records",
    "truncated-poisson": "Poisson batches of {} records expected, cut at a largest size",
    "random-allocation": "each record in one random batch of each epoch, {} records expected",
    "shuffled": "batches of {} records from a new random order for each epoch",
}
_CHANGE = {
    "add-remove": "is added or removed",
    "replace-one": "is replaced",
    "zero-out": "is made blank",
}
_GROUP = _CHANGE | {"replace-one": "is replaced by one with as many"}
_QUICK = ("tensor-power", "moments", "rdp", "clt")
_LEAST_LOG_DELTA = math.log(1e-30)


def group_epsilon(guarantee: Guarantee, records: int, delta: float) -> float:
    """ε at δ for a group of `records` records, from the guarantee for one; inf if none follows.

    μ-GDP for one record is kμ-GDP for k (DRS22, Theorem 2.14). From any other guarantee,
    (ε', δ')-DP for one record is (kε', δ'(e^{kε'} - 1)/(e^{ε'} - 1))-DP for k, by induction
    (chapter 20), and the best δ' ≥ 1e-30 is taken. Of the guarantee's kind.

    >>> round(group_epsilon(GaussianGuarantee(mu=0.5), 2, 1e-5), 5)  # 1-GDP
    4.37718
    """
    k = domain.whole_number("records", records, "[1, 1e6]", "it's the most records of one unit")
    delta = domain.delta(delta)
    if k == 1:
        return guarantee.epsilon(delta)
    if isinstance(guarantee, GaussianGuarantee):
        mu = k * guarantee.mu
        return GaussianGuarantee(mu=mu).epsilon(delta) if mu <= 100 else math.inf

    def excess(log_delta: float) -> float:  # log of the group's δ over the δ wanted
        epsilon = guarantee.least_epsilon(math.exp(log_delta))
        if math.isinf(epsilon):
            return math.inf
        small = epsilon < 1e-9
        terms = k if small else math.expm1(-k * epsilon) / math.expm1(-epsilon)
        return log_delta + (k - 1) * epsilon + math.log(terms) - math.log(delta)

    high = math.log(delta / k)  # at ε' = 0 the group's δ is kδ'
    if high < _LEAST_LOG_DELTA or 0 < excess(_LEAST_LOG_DELTA) < math.inf:
        return math.inf
    if excess(high) <= 1e-9:
        return k * guarantee.least_epsilon(math.exp(high))
    low, step = high, 1.0
    while excess(low) > 0:
        high, low, step = low, low - step, 2 * step
        if math.isinf(excess(high)) or high == _LEAST_LOG_DELTA:
            return math.inf
        low = max(low, _LEAST_LOG_DELTA)
    best = safe_root(excess, infeasible=high, feasible=low, tolerance=1e-3)
    return k * guarantee.least_epsilon(math.exp(best))


def statement(
    run: NoisySGD | Phases | Sequence[NoisySGD], relation: Relation, delta: float,
    *, orders: Orders = "integer", unit: str = "record", records_per_unit: int = 1,
    tuning_runs: int | None = None, tuning: str | Trials | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Everything that a reader needs to check a privacy claim, ready for JSON.

    Parameters
    ----------
    run, relation, delta, orders : as for `account`, whose rows are under "guarantees".
    unit : whom the claim protects: 'record', 'user', 'device', …
    records_per_unit : k, the most records that one unit has in the data. Beyond 1, "claimed" has
        the group bounds, and the unit must be named: it isn't a record.
    tuning_runs : trainings on the same data besides this one, with the same parameters at most as
        revealing. They're counted by composition: T·(tuning_runs + 1) steps. None says that they
        weren't counted.
    tuning : instead of it, the distribution of a random number of trainings of which the best one
        was published, as `Trials` or in words such as "geometric 0.1" (chapter 22).

    Raises `ValueError` as `account` does, and for the other arguments.

    >>> run = NoisySGD(n=60000, batch_size=256, steps=3516, noise_multiplier=1.3)
    >>> found = statement(run, "add-remove", 1e-5)
    >>> found["quoted"]["name"], found["quoted"]["at_most"]
    ('tensor-power', '0.865')
    """
    unit = domain.text("unit", unit, 40)
    k = domain.whole_number("records_per_unit", records_per_unit, "[1, 1e6]")
    named, advice = k == 1 or unit != "record", "name whose they are: unit 'user'"
    domain.require("records_per_unit", k, named, "1 for a record", advice)
    if tuning_runs is not None:
        tuning_runs = domain.whole_number("tuning_runs", tuning_runs, "[0, 1e6]")
        advice = "trainings are counted one way"
        domain.require("tuning", tuning, tuning is None, "left out", advice)
    trials = Trials.parse(tuning) if isinstance(tuning, str) else tuning
    trainings = (tuning_runs or 0) + 1
    facts = summary(run, relation, delta, orders)
    rows = facts["guarantees"]
    one = run if isinstance(run, NoisySGD | Phases) else Phases(tuple(run))
    alone = account(run, relation, orders)
    whole: Mapping[str, Guarantee] = alone
    claimed = rows
    if trials is not None:
        whole = {"best-of-random": _best(one, relation, trials)}
        claimed = [_claimed_row(whole["best-of-random"], k, delta)]
    elif k > 1 or trainings > 1:
        whole = account(_repeated(one, trainings), relation, orders)
        claimed = _claimed(_repeated(one, trainings), relation, delta, orders, k)
    facts |= {
        "n": one.n,
        **_physical(one),
        "unit": unit,
        "records_per_unit": k,
        "tuning_runs": tuning_runs,
        "tuning": None if trials is None else str(trials),
        "claimed": claimed,
        "quoted": _quoted(claimed),
        "risk": risk_of(whole, claimed) if k == 1 else None,
        "curve": _curve(alone, rows, delta),
    }
    facts["warnings"].extend(_more_warnings(facts))
    return facts | {"sentence": _sentence(facts), "not_to_claim": _not_to_claim(facts)}


def _best(run: NoisySGD | Phases, relation: Relation, trials: Trials) -> Guarantee:
    """The best of a random number of runs."""
    has_law = isinstance(run, NoisySGD) and run.has_laws(relation)
    advice = "the bound is proved for one training whose step has a law: count by tuning_runs"
    domain.require("tuning", str(trials), has_law, "left out for this run", advice)
    assert isinstance(run, NoisySGD)
    law, sentence = run.laws(relation)[0], assumptions(run, relation)
    return BestOfRandom(law=law, steps=run.steps, trials=trials, assumptions=sentence)


def risk_of(
    guarantees: Mapping[str, Guarantee], rows: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """The risk by the guarantee with the least proved ε, or by the next one where it says nothing.

    >>> run = NoisySGD.abadi16(rate=0.01, sigma=4.0, steps=1000)
    >>> rows = summary(run, "add-remove", 1e-5)["guarantees"]
    >>> risk_of(account(run, "add-remove"), rows)["of"]
    'tensor-power'
    """
    found = None
    for row in proved(rows):
        found = risk(guarantees[row["name"]])
        if found["true_positive_rate"][-1]["at_most"] < 1:
            break
    return found


def _repeated(run: NoisySGD | Phases, trainings: int) -> NoisySGD | Phases:
    """The run made so many times."""
    if isinstance(run, Phases):
        return Phases(tuple(replace(one, steps=one.steps * trainings) for one in run.runs))
    return replace(run, steps=run.steps * trainings)


def _physical(run: NoisySGD | Phases) -> dict[str, Any]:
    """Batch size, clipping norm and σ; of phases each has its own."""
    if isinstance(run, Phases):
        every = [_physical(one) for one in run.runs]
        return {name: [one[name] for one in every] for name in ("batch_size", "clip_norm", "sigma")}
    sigma = {relation: run.sigma(relation) for relation in ("add-remove", "replace-one")}
    return {"batch_size": run.batch_size, "clip_norm": run.clip_norm, "sigma": sigma}


def _parts(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The facts of each phase; of one run, itself."""
    if "phases" not in facts:
        return [facts]
    own = zip(facts["phases"], facts["batch_size"], facts["sigma"], strict=True)
    return [phase | {"batch_size": size, "sigma": sigma} for phase, size, sigma in own]


def _claimed(
    run: NoisySGD | Phases, relation: Relation, delta: float, orders: Orders, k: int
) -> list[dict[str, Any]]:
    """Rows for a unit with k records, from the accountants that are quick enough."""
    loud = isinstance(run, NoisySGD) and run.noise_multiplier / k >= 0.05
    if isinstance(run, NoisySGD) and loud and run.sampling_rate == 1:
        # every step sees all k records: their sum moves by at most k times as much
        run, k = replace(run, noise_multiplier=run.noise_multiplier / k), 1
    every = account(run, relation, orders)
    rows = [_claimed_row(every[name], k, delta) for name in _QUICK]
    if k > 1 and isinstance(run, NoisySGD) and run.sampling == "poisson" and run.steps:
        if relation != "replace-one" and k <= 1000:  # then the k records have a law of their own
            laws, sentence = user_laws(run, relation, k), assumptions(run, relation)
            exact = TensorPower(laws=laws, steps=run.steps, assumptions=sentence)
            rows[0] = answer(exact, delta)
    return rows


def _claimed_row(guarantee: Guarantee, k: int, delta: float) -> dict[str, Any]:
    row = {"name": guarantee.name, "kind": guarantee.kind}
    epsilon = group_epsilon(guarantee, k, delta)
    if not math.isinf(epsilon):
        return row | {"epsilon": epsilon}
    reason = (
        f"no epsilon for {k} records follows from one record's at any delta from 1e-30 on: lower "
        "the most records of one unit, or draw units instead of records (chapter 20)"
    )
    return row | {"epsilon": None, "reason": guarantee.reason if k == 1 else reason}


def _quoted(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The least proved ε, its upper end, rounded up to three digits."""
    for row in proved(rows):
        return row | {"at_most": shown(row["kind"], row["epsilon"], 3)}
    return None


def _curve(
    guarantees: Mapping[str, Guarantee], rows: list[dict[str, Any]], delta: float
) -> dict[str, Any] | None:
    """Trade-off function for one record, by the guarantee with the least proved ε."""
    alpha = np.concatenate([np.geomspace(1e-4, 0.01, 9)[:-1], np.linspace(0.01, 1, 67)])
    for best in proved(rows):
        low = guarantees[best["name"]].f(alpha)
        if not np.any(low):  # a curve asks more than ε at one δ does
            continue
        pair = f_epsilon_delta(best["epsilon"], delta, alpha)
        named = {"of": best["name"], "alpha": alpha.tolist()}
        return named | {"beta": low.tolist(), "pair": pair.tolist()}
    return None


def _more_warnings(facts: dict[str, Any]) -> list[str]:
    rows, unit, found = facts["guarantees"], facts["unit"], []
    if any(row["kind"] == "asymptotic" and row["epsilon"] is not None for row in rows):
        found.append(
            "rows of kind asymptotic are limits for many steps, not bounds: don't report them as "
            "guarantees"
        )
    found.append(
        f"all numbers are for {facts['sampling']} batches; other ways to draw them, such as passes "
        "over a list in one order, are other mechanisms, and none of these numbers holds for them "
        "(chapter 21)"
    )
    if facts["sampling"] == "shuffled":
        found.append(
            "shuffled passes: the epsilon claimed is the one that holds even if the order is "
            "published; no better bound is proved here (chapter 21)"
        )
    elif facts["sampling"] in BY_EPOCHS:
        found.append("who is in which batch, and how many are, counts as secret (chapter 21)")
    if "phases" in facts:
        found.append(
            "the phases count as fixed in advance: a phase that was chosen by looking at what the "
            "earlier ones put out isn't covered (chapter 22)"
        )
    if facts["convention"] == "add-remove" and facts["n"]:
        found.append(
            "n, and q and T with it, count as public numbers fixed beforehand: if they were "
            "computed from the number of records, adding or removing a record changes them, and "
            "the guarantee doesn't cover that"
        )
    if facts["curve"] and facts["curve"]["of"] != (least := proved(rows)[0]["name"]):
        of = facts["curve"]["of"]
        found.append(f"the curve and its pair are by {of}: {least} can't draw its own for this run")
    if facts["quoted"] is None:
        found += [f"{row['name']} proves nothing: {row['reason']}" for row in facts["claimed"][:1]]
    if facts["risk"]:
        found += facts["risk"]["warnings"]
    if facts["tuning"] is not None:
        found.append(
            "the number of trials, the other trials and their scores count as secret, and so does "
            "how long the tuning took; the score itself is part of the trial (chapter 22)"
        )
    elif facts["tuning_runs"] is None:
        found.append("trainings made on the same data to choose parameters aren't counted")
    if facts["records_per_unit"] == 1:
        whose = "person" if unit == "record" else unit
        found.append(
            f"a {whose} with several records is protected less than one record is (group privacy)"
        )
    return found


def _sentence(facts: dict[str, Any]) -> str:
    """The sentence for a paper, on what's claimed."""
    data = f"{facts['n']} records" if facts["n"] else "the data"
    steps = ", then ".join(map(_made, _parts(facts)))
    made = f"The model was trained on {data} by noisy SGD: {steps}. "
    quoted, delta = facts["quoted"], facts["delta"]
    if quoted is None:
        return made + f"No accountant used here proves a finite epsilon at delta = {delta:g}."
    return made + (
        f"It is ({quoted['at_most']}, {delta:g})-differentially private when {_whose(facts)}"
        f"{_counted(facts)} (epsilon: upper bound, {quoted['name']}, rounded up)."
    )


def _made(part: dict[str, Any]) -> str:
    """What was done in one run or phase."""
    size = part["batch_size"] or f"{part['sampling_rate']:.6g}·n"
    return (
        f"{part['steps']} updates, {_BATCHES[part['sampling']].format(size)}, each record's "
        f"gradient clipped to norm {part['clip_norm']:g}, Gaussian noise of standard deviation "
        f"{part['noise_multiplier']:g} times that norm on the sum"
    )


def _whose(facts: dict[str, Any]) -> str:
    """Whom the claim compares: 'one user with up to 3 records is added or removed'."""
    k, unit, relation = facts["records_per_unit"], facts["unit"], facts["convention"]
    if k == 1:
        up_to = "" if unit == "record" else " with up to 1 record"
        return f"one {unit}{up_to} {_CHANGE[relation]}"
    return f"one {unit} with up to {k} records {_GROUP[relation]}"


def _counted(facts: dict[str, Any]) -> str:
    others = facts["tuning_runs"]
    if facts["tuning"] is not None:
        return f", published as the best of {facts['tuning']}"
    return f", all {others + 1} trainings on these data counted" if others else ""


def _not_to_claim(facts: dict[str, Any]) -> list[str]:
    other = "add-remove" if facts["convention"] == "replace-one" else "replace-one"
    return [
        f"the same epsilon under {other}: whom the guarantee compares, and sigma with it, differ "
        "by a factor of two",
        "that nothing can be learnt about a person: what the data say about everyone isn't hidden",
        "anonymity, or compliance with a law: these are other questions",
        "protection of what else was computed from the data: preprocessing, statistics, other "
        "models, a choice made by looking at held-out records of the same people",
        "the proof's ideal noise: floating point and a generator with a seed stood in for real "
        "numbers and true randomness; whoever knows the seed can take the noise away",
    ]


def epsilon_text(row: dict[str, Any]) -> str:
    """A row's ε as a table shows it: rounded to the side on which the row's kind stays true.

    >>> epsilon_text({"kind": "bracket", "epsilon": [1.0669999, 1.0670301]})
    '[1.06699, 1.06704]'
    """
    epsilon = row["epsilon"]
    return shown(row["kind"], epsilon) if isinstance(epsilon, float) else as_text(epsilon)


def as_text(value: Any) -> str:
    """A fact as a page or table shows it; of a pair of numbers the ends are rounded outwards.

    >>> as_text({"order": 19, "share": 0.25}), as_text([1.0669999, 1.0670301])
    ('order 19; share 0.25', '[1.06699, 1.06704]')
    """
    if isinstance(value, dict):
        return "; ".join(f"{key} {as_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return f"[{shown('lower bound', value[0])}, {shown('upper bound', value[1])}]"
    return "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _facts_table(facts: dict[str, Any]) -> list[list[str]]:
    delta, n, relation = (facts[key] for key in ("delta", "n", "convention"))
    why = f"; 1/n = {1 / n:.3g}, so n·delta = {n * delta:.2g}" if n else "; n isn't known"
    parts = _parts(facts)
    counted = "not counted" if facts["tuning_runs"] is None else as_text(facts["tuning_runs"])
    table = [["fact", "value"], ["records n", as_text(n)]]
    for number, part in enumerate(parts, 1):
        of_phase = f", phase {number}" if len(parts) > 1 else ""
        table += [[name + of_phase, value] for name, value in _part_rows(part)]
    return table + [
        ["neighbours", f"{relation}: one record {_CHANGE[relation]}"],
        ["unit of privacy", f"{facts['unit']}, at most {facts['records_per_unit']} record(s) each"],
        ["delta", f"{delta:g}{why}"],
        ["other trainings on these data", facts["tuning"] or counted],
    ]


def _part_rows(part: dict[str, Any]) -> list[tuple[str, str]]:
    sigma, noise = part["sigma"], f"{part['noise_multiplier']:g} × clipping norm C"
    both = f"{sigma['add-remove']:g} under add-remove, {sigma['replace-one']:g} under replace-one"
    return [
        ("batches", _BATCHES[part["sampling"]].format(part["batch_size"] or "q·n")),
        ("sampling rate", f"{part['sampling_rate']:.6g}"),
        ("noisy updates T", as_text(part["steps"])),
        ("noise on the clipped sum", f"{noise}, C = {part['clip_norm']:g}"),
        ("sigma", both),
    ]


def _guarantees_table(facts: dict[str, Any]) -> list[list[str]]:
    table = [["guarantee", "kind", "epsilon, one record, this run"]]
    table += [[row["name"], row["kind"], epsilon_text(row)] for row in facts["guarantees"]]
    if facts["claimed"] == facts["guarantees"]:
        return table
    counted = {row["name"]: epsilon_text(row) for row in facts["claimed"]}
    table[0].append("epsilon, all counted")
    for line in table[1:]:
        line.append(counted.pop(line[0], "not computed"))
    kinds = {row["name"]: row["kind"] for row in facts["claimed"]}
    return table + [[name, kinds[name], "", epsilon] for name, epsilon in counted.items()]


def _risk_table(found: dict[str, Any]) -> list[list[str]]:
    """True positives and beliefs at each false positive rate."""
    beliefs = {(row["prior"], row["false_positive_rate"]): row for row in found["posterior"]}
    priors = sorted({prior for prior, _ in beliefs})
    heads = ["falsely accused", "found at most"]
    table = [heads + [f"sure at most, believed {prior:.0%} before" for prior in priors]]
    for row in found["true_positive_rate"]:
        rate = row["false_positive_rate"]
        shares = [row["at_most"], *(beliefs[prior, rate]["at_most"] for prior in priors)]
        table.append([f"{rate:.1%}", *(percent(share) for share in shares)])
    return table


def percent(share: float) -> str:
    """A share that's an upper bound, in per cent, rounded up.

    >>> percent(0.146281)
    '14.7 %'
    """
    return f"{shown('upper bound', 100 * share, 3)} %"


def _blocks(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    """The page as (kind, content): 'h1', 'h2', 'p', 'ul', 'table' (first row: heads) and 'svg'."""
    whole = isinstance(facts, dict) and "sentence" in facts
    domain.require("facts", facts, whole, "what `statement` returns")
    return [
        ("h1", "Privacy statement"), ("p", facts["sentence"]),
        ("h2", "What was run"), ("table", _facts_table(facts)),
        ("h2", "What it guarantees"), ("table", _guarantees_table(facts)),
        *([("p", facts["proved"])] if "proved" in facts else []), ("svg", facts["curve"]),
        *_risk_blocks(facts["risk"]),
        ("h2", "Warnings"), ("ul", facts["warnings"]),
        ("h2", "Not to claim"), ("ul", facts["not_to_claim"]),
    ]  # fmt: skip


def _risk_blocks(found: dict[str, Any] | None) -> list[tuple[str, Any]]:
    if found is None:
        return []
    sentence = f"{found['sentence']} (By {found['of']}, {found['kind']}, for one record.)"
    return [("h2", "What an attacker can do"), ("p", sentence), ("table", _risk_table(found))]


def to_markdown(facts: dict[str, Any]) -> str:
    """The page as Markdown, without the curve.

    >>> run = NoisySGD.at_rate(0.01, steps=10, noise_multiplier=4.0)
    >>> to_markdown(statement(run, "add-remove", 1e-5)).splitlines()[0]
    '# Privacy statement'
    """

    def clean(text: str) -> str:
        return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", text)

    def row(cells: list[str]) -> str:
        return "| " + " | ".join(map(clean, cells)) + " |"

    write: dict[str, Callable[[Any], str]] = {
        "h1": lambda text: f"# {text}",
        "h2": lambda text: f"## {text}",
        "p": clean,
        "ul": lambda items: "\n".join(f"- {clean(item)}" for item in items),
        "table": lambda rows: "\n".join(
            [row(rows[0]), "|" + "---|" * len(rows[0]), *map(row, rows[1:])]
        ),
    }
    return "\n\n".join(write[kind](content) for kind, content in _blocks(facts) if kind in write)


def to_html(facts: dict[str, Any]) -> str:
    """The page as one HTML file with its style and the curve as SVG inside.

    It asks for nothing from elsewhere.

    >>> run = NoisySGD.at_rate(0.01, steps=10, noise_multiplier=4.0)
    >>> page = to_html(statement(run, "add-remove", 1e-5))
    >>> page.startswith("<!DOCTYPE html>"), page.count("<svg"), "src=" in page
    (True, 1, False)
    """

    def elements(tag: str, texts: Iterable[str]) -> str:
        return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)

    def table(rows: list[list[str]]) -> str:
        lines = [elements("td" if below else "th", cells) for below, cells in enumerate(rows)]
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"

    write: dict[str, Callable[[Any], str]] = {
        "h1": lambda text: elements("h1", [text]),
        "h2": lambda text: elements("h2", [text]),
        "p": lambda text: elements("p", [text]),
        "ul": lambda items: f"<ul>{elements('li', items)}</ul>",
        "table": table,
        "svg": lambda curve: _svg(curve) if curve else "",
    }
    body = "\n".join(write[kind](content) for kind, content in _blocks(facts))
    return _template("statement.html").substitute(body=body)


def _svg(curve: dict[str, Any]) -> str:
    """The trade-off curve in a square of 200 by 200 units."""

    def points(ys: list[float]) -> str:
        pairs = zip(curve["alpha"], ys, strict=True)
        return " ".join(f"{200 * x:.2f},{200 - 200 * y:.2f}" for x, y in pairs)

    beta, pair = points(curve["beta"]), points(curve["pair"])
    return _template("curve.svg").substitute(of=curve["of"], beta=beta, pair=pair)


def _template(name: str) -> Template:
    return Template((files("dpteach") / "templates" / name).read_text("utf-8"))
