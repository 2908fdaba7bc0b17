"""The privacy statement of one run: what was done, what it guarantees and to whom, and what may not be claimed.

`statement` collects everything in one dictionary that JSON can hold; `to_markdown` and `to_html` write the same
page from it. The HTML page is one file: its style and its trade-off curve are inside.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable
from decimal import ROUND_CEILING, Context
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from dpteach import domain
from dpteach.accountants import Unavailable, account, epsilon_or_reason, summary
from dpteach.calibration import safe_root
from dpteach.guarantees import GaussianGuarantee, Guarantee, f_epsilon_delta
from dpteach.moments import Orders
from dpteach.run import NoisySGD, Relation

__all__ = ["group_epsilon", "rounded_up", "statement", "to_html", "to_markdown"]

_PROVED = ("exact", "bracket", "upper bound")
_BATCHES = {"poisson": "Poisson batches of {} records expected", "fixed-size": "uniform batches of exactly {} records"}
_CHANGE = {"add-remove": "is added or removed", "replace-one": "is replaced"}


def rounded_up(epsilon: float, digits: int = 3) -> str:
    """ε with a few significant digits, never less than it was.

    >>> rounded_up(1.0671), rounded_up(0.86467), rounded_up(2.0)
    ('1.07', '0.865', '2')
    """
    epsilon, digits = domain.number("epsilon", epsilon, "[0, inf)"), domain.whole_number("digits", digits, "[1, 100]")
    return f"{Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(epsilon).normalize():f}"


def group_epsilon(guarantee: Guarantee | Unavailable, records: int, delta: float) -> float | None:
    """ε at δ for a group of `records` records, from the guarantee for one; None where it follows from nothing.

    μ-GDP for one record is kμ-GDP for k (DRS22, Theorem 2.14). From any other guarantee, (ε', δ')-DP for one record is
    (kε', δ'(e^{kε'} - 1)/(e^{ε'} - 1))-DP for k, by induction (chapter 20), and the best δ' is taken. Of the
    guarantee's kind: an upper bound from an upper bound.

    >>> round(group_epsilon(GaussianGuarantee(mu=0.5), 2, 1e-5), 5)  # 1-GDP
    4.37718
    """
    records = domain.whole_number("records", records, "[1, 1e6]", "it's the largest number of records of one unit")
    delta = domain.number("delta", delta, domain.DELTA)
    if isinstance(guarantee, GaussianGuarantee):
        return GaussianGuarantee(mu=records * guarantee.mu).epsilon(delta)
    if records == 1:
        epsilon = epsilon_or_reason(guarantee, delta)[0]
        return None if math.isinf(epsilon) else epsilon

    def excess(log_delta: float) -> float:  # log of the group's δ over the δ wanted
        epsilon = epsilon_or_reason(guarantee, math.exp(log_delta))[0]
        if math.isinf(epsilon):
            return math.inf
        terms = records if epsilon < 1e-9 else math.expm1(-records * epsilon) / math.expm1(-epsilon)
        return log_delta + (records - 1) * epsilon + math.log(terms) - math.log(delta)

    high, step = math.log(delta / records), 1.0
    low = high
    while excess(low) > 1e-9:
        if math.isinf(excess(low)) or low - step < math.log(1e-240):
            return None
        high, low, step = low, low - step, 2 * step
    best = low if low == high else safe_root(excess, infeasible=high, feasible=low, tolerance=1e-3)
    return records * epsilon_or_reason(guarantee, math.exp(best))[0]


def statement(
    run: NoisySGD, relation: Relation, delta: float,
    *, orders: Orders = "integer", unit: str = "record", records_per_unit: int = 1, tuning_runs: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Everything that a reader needs to check a privacy claim, ready for JSON.

    Parameters
    ----------
    run, relation, delta, orders : as for `account`, whose rows are under "guarantees".
    unit : whom the claim protects: 'record', 'user', 'device', …
    records_per_unit : k, the most records that one unit has in the data. Beyond 1, "claimed" has the group bounds,
        and the unit must be named: it isn't a record.
    tuning_runs : trainings on the same data besides this one, with the same parameters at most as revealing. They're
        counted by composition: T·(tuning_runs + 1) steps. None says that they weren't counted.

    Raises `ValueError` as `account` does, and for the other arguments.

    >>> run = NoisySGD(n=60000, batch_size=256, epochs=15, noise_multiplier=1.3)
    >>> found = statement(run, "add-remove", 1e-5)
    >>> found["quoted"]["name"], found["quoted"]["at_most"]
    ('tensor-power', '0.865')
    """
    unit = domain.text("unit", unit, 40)
    k = domain.whole_number("records_per_unit", records_per_unit, "[1, 1e6]")
    domain.require("records_per_unit", k, k == 1 or unit != "record", "1 for a record", "name whose they are: unit 'user'")
    tuning_runs = None if tuning_runs is None else domain.whole_number("tuning_runs", tuning_runs, "[0, 1e6]")
    others = tuning_runs or 0
    facts = summary(run, relation, delta, orders)
    rows = facts["guarantees"]
    claimed = _claimed(run, relation, delta, orders, k, others + 1) if k > 1 or others else rows
    facts |= {
        "n": run.n,
        "batch_size": run.batch_size,
        "clip_norm": run.clip_norm,
        "sigma": {"add-remove": run.sigma("add-remove"), "replace-one": run.sigma("replace-one")},
        "unit": unit,
        "records_per_unit": k,
        "tuning_runs": tuning_runs,
        "claimed": claimed,
        "quoted": _quoted(claimed),
        "curve": _curve(account(run, relation, orders), rows, delta),
    }
    facts["warnings"].extend(_more_warnings(facts))
    return facts | {"sentence": _sentence(facts), "not_to_claim": _not_to_claim(facts)}


def _claimed(
    run: NoisySGD, relation: Relation, delta: float, orders: Orders, k: int, trainings: int
) -> list[dict[str, Any]]:
    """Rows for a unit with k records and all trainings together, from the accountants that are quick enough."""
    run = run.but(steps=run.steps * trainings)
    if run.sampling_rate == 1:  # every step sees all k records: their sum moves by at most k times as much
        run, k = run.but(noise_multiplier=run.noise_multiplier / k), 1
    kept = [g for g in account(run, relation, orders) if g.name in ("tensor-power", "moments", "rdp", "clt")]
    return [{"name": g.name, "kind": g.kind, "epsilon": group_epsilon(g, k, delta)} for g in kept]


def _proved(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Name, kind and ε (a bracket's upper end) of the rows that prove something, the least ε first."""
    kept = [row for row in rows if row["kind"] in _PROVED and row["epsilon"] is not None]
    found = [{"name": r["name"], "kind": r["kind"], "epsilon": float(np.max(r["epsilon"]))} for r in kept]
    return sorted(found, key=lambda row: row["epsilon"])


def _quoted(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The least proved ε, its upper end, rounded up."""
    return next((row | {"at_most": rounded_up(row["epsilon"])} for row in _proved(rows)), None)


def _curve(guarantees: Iterable[Any], rows: list[dict[str, Any]], delta: float) -> dict[str, Any] | None:
    """Trade-off function for one record, by the first that has one, the least proved ε first: a bracket's lower end."""
    named = {g.name: g for g in guarantees}
    alpha = np.concatenate([np.geomspace(1e-4, 0.01, 9)[:-1], np.linspace(0.01, 1, 67)])
    for best in _proved(rows):
        try:
            f = named[best["name"]].f(alpha)
        except ValueError:  # a curve asks more than ε at one δ does: the tensor power's lattice may be too small
            continue
        low = np.asarray(f)
        pair = f_epsilon_delta(best["epsilon"], delta, alpha)
        return {"of": best["name"], "alpha": alpha.tolist(), "beta": low.tolist(), "pair": pair.tolist()}
    return None


def _more_warnings(facts: dict[str, Any]) -> list[str]:
    rows, unit, told = facts["guarantees"], facts["unit"], []
    if any(row["kind"] == "asymptotic" and row["epsilon"] is not None for row in rows):
        told.append("rows of kind asymptotic are limits for many steps, not bounds: don't report them as guarantees")
    told.append(
        f"all numbers are for {facts['sampling']} batches drawn afresh for each step; passes over a shuffled list are "
        "another mechanism, and none of these numbers holds for it"
    )
    if facts["convention"] == "add-remove" and facts["n"]:
        told.append(
            "n, and q and T with it, count as public numbers fixed beforehand: if they were computed from the number "
            "of records, adding or removing a record changes them, and the guarantee doesn't cover that"
        )
    if facts["curve"] and facts["curve"]["of"] != (least := _proved(rows)[0]["name"]):
        told.append(f"the curve and its pair are by {facts['curve']['of']}: {least} can't draw its own for this run")
    if facts["tuning_runs"] is None:
        told.append("trainings made on the same data to choose parameters aren't counted")
    if facts["records_per_unit"] == 1:
        whose = "person" if unit == "record" else unit
        told.append(f"a {whose} with several records is protected less than one record is (group privacy)")
    return told


def _sentence(facts: dict[str, Any]) -> str:
    """The sentence for a paper, on what's claimed."""
    quoted, k, unit, others = (facts[key] for key in ("quoted", "records_per_unit", "unit", "tuning_runs"))
    size = facts["batch_size"] or f"{facts['sampling_rate']:.6g}·n"
    data = f"{facts['n']} records" if facts["n"] else "the data"
    made = (
        f"The model was trained on {data} by noisy SGD: {facts['steps']} updates, {_BATCHES[facts['sampling']]}, each "
        f"record's gradient clipped to norm {facts['clip_norm']:g}, Gaussian noise of standard deviation "
        f"{facts['noise_multiplier']:g} times that norm on the sum. "
    ).format(size)
    if quoted is None:
        return made + f"No accountant used here proves a finite epsilon at delta = {facts['delta']:g}."
    whose = "one record" if k == 1 and unit == "record" else f"one {unit} with up to {k} record{'s' * (k > 1)}"
    counted = f", all {others + 1} trainings on these data counted" if others else ""
    return made + (
        f"It is ({quoted['at_most']}, {facts['delta']:g})-differentially private when {whose} "
        f"{_CHANGE[facts['convention']]}{counted} (epsilon: upper bound, {quoted['name']}, rounded up)."
    )


def _not_to_claim(facts: dict[str, Any]) -> list[str]:
    other = {"add-remove": "replace-one", "replace-one": "add-remove"}[facts["convention"]]
    return [
        f"the same epsilon under {other}: whom the guarantee compares, and sigma with it, differ by a factor of two",
        "that nothing can be learnt about a person: what the data say about everyone isn't hidden",
        "anonymity, or compliance with a law: these are other questions",
        "protection of what else was computed from the data: preprocessing, statistics, other models, a choice made by "
        "looking at held-out records of the same people",
        "the proof's ideal noise: floating point and a generator with a seed stood in for real numbers and true "
        "randomness; whoever knows the seed can take the noise away",
    ]


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key} {_show(item)}" for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(_show, value)) + "]"
    return "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _blocks(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    """The page as (kind, content): 'h1', 'h2', 'p', 'ul', 'table' (first row: heads) and 'svg'."""
    domain.require("facts", facts, isinstance(facts, dict) and "sentence" in facts, "what `statement` returns")
    delta, n, sigma = facts["delta"], facts["n"], facts["sigma"]
    others = "not counted" if facts["tuning_runs"] is None else _show(facts["tuning_runs"])
    why = f"; 1/n = {1 / n:.3g}, so n·delta = {n * delta:.2g}" if n else "; n isn't known"
    claimed = {row["name"]: row["epsilon"] for row in facts["claimed"]}
    extra = facts["records_per_unit"] > 1 or bool(facts["tuning_runs"])
    heads = ["guarantee", "kind", "epsilon, one record, this run"] + ["epsilon, all counted"] * extra
    rows = [
        [row["name"], row["kind"], _show(row["epsilon"])]
        + ([_show(claimed.get(row["name"])) if row["name"] in claimed else "not computed"] if extra else [])
        for row in facts["guarantees"]
    ]
    done = [
        ["records n", _show(n)],
        ["batches", _BATCHES[facts["sampling"]].format(facts["batch_size"] or "q·n")],
        ["sampling rate", f"{facts['sampling_rate']:.6g}"],
        ["noisy updates T", _show(facts["steps"])],
        ["noise on the clipped sum", f"{facts['noise_multiplier']:g} × clipping norm C, C = {facts['clip_norm']:g}"],
        ["sigma", f"{sigma['add-remove']:g} under add-remove, {sigma['replace-one']:g} under replace-one"],
        ["neighbours", f"{facts['convention']}: one record {_CHANGE[facts['convention']]}"],
        ["unit of privacy", f"{facts['unit']}, at most {facts['records_per_unit']} record(s) each"],
        ["delta", f"{delta:g}{why}"],
        ["other trainings on these data", others],
    ]
    return [
        ("h1", "Privacy statement"), ("p", facts["sentence"]),
        ("h2", "What was run"), ("table", [["fact", "value"], *done]),
        ("h2", "What it guarantees"), ("table", [heads, *rows]), ("svg", facts["curve"]),
        ("h2", "Warnings"), ("ul", facts["warnings"]), ("h2", "Not to claim"), ("ul", facts["not_to_claim"]),
    ]  # fmt: skip


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
        "table": lambda rows: "\n".join([row(rows[0]), "|" + "---|" * len(rows[0]), *map(row, rows[1:])]),
    }
    return "\n\n".join(write[kind](content) for kind, content in _blocks(facts) if kind in write)


def to_html(facts: dict[str, Any]) -> str:
    """The page as one HTML file with its style and the curve as SVG inside. It asks for nothing from elsewhere.

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
        "ul": lambda items: f"<ul>{elements('li', items)}</ul>",
        "table": table,
        "svg": lambda curve: _svg(curve) if curve else "",
    }
    blocks = [write[kind](content) if kind in write else elements(kind, [content]) for kind, content in _blocks(facts)]
    body = "\n".join(blocks)
    return _template("statement.html").substitute(body=body)


def _svg(curve: dict[str, Any]) -> str:
    """The trade-off curve in a square of 200 by 200 units."""

    def points(ys: list[float]) -> str:
        return " ".join(f"{200 * x:.2f},{200 - 200 * y:.2f}" for x, y in zip(curve["alpha"], ys, strict=True))

    return _template("curve.svg").substitute(of=curve["of"], beta=points(curve["beta"]), pair=points(curve["pair"]))


def _template(name: str) -> Template:
    return Template((files("dpteach") / "templates" / name).read_text("utf-8"))
