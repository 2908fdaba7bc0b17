"""Runs that another library has recorded: Opacus' history, dp-accounting's events (the register).

Neither library is needed: an object is read by its name and its fields, a file by its text. Each
entry becomes one way to make a step and a number of steps; equal ways are counted together, and
several ways become phases. What has no translation is refused by name, with the reason and what
to do instead.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dpteach import domain
from dpteach.run import RELATIONS, SENSITIVITY, NoisySGD, Phases, Relation, Sampling

__all__ = ["MOST_PHASES", "NOISE_PER", "from_dp_event", "from_opacus", "read_dp_event",
           "read_opacus"]  # fmt: skip

NOISE_PER = ("clip", "sensitivity")
MOST_PHASES = 100  # each costs about a tenth of a second
_MECHANISMS = ("rdp", "gdp", "prv")  # Opacus' names of its accountants
_HISTORY = "a list of [noise multiplier, sample rate, steps], Opacus' accountant.history"
_NUMPY = ("float64", "float32", "int64", "int32")  # numpy numbers print as np.float64(1.3)

_FIELDS: dict[str, tuple[str, ...]] = {
    "NoOpDpEvent": (),
    "GaussianDpEvent": ("noise_multiplier",),
    "SelfComposedDpEvent": ("event", "count"),
    "ComposedDpEvent": ("events",),
    "PoissonSampledDpEvent": ("sampling_probability", "event"),
    "SampledWithoutReplacementDpEvent": ("source_dataset_size", "sample_size", "event"),
}
_ALONE = "account for it alone, and add its ε and δ to the rest's"
_REFUSED = {
    "NonPrivateDpEvent": "what it stands for has no guarantee, so the whole has none",
    "UnsupportedDpEvent": "it says itself that its mechanism isn't known",
    "LaplaceDpEvent": f"only Gaussian noise is analysed here; {_ALONE}",
    "DiscreteLaplaceDpEvent": f"only Gaussian noise is analysed here; {_ALONE}",
    "RandomizedResponseDpEvent": f"only Gaussian noise is analysed here; {_ALONE}",
    "ZCDpEvent": "a bound (rho, xi) doesn't say which mechanism was run; give its event",
    "SingleEpochTreeAggregationDpEvent": "the noise of its steps is correlated, so they don't "
    "compose step by step; see dpteach.correlated",
    "RepeatAndSelectDpEvent": "it's a random number of trainings, not one; import its inner event "
    "and see dpteach.tuning",
    "MixtureOfGaussiansDpEvent": "a mixture of shifts is the pair of several records at once; "
    "import the event of one record",
    "SampledWithReplacementDpEvent": "nothing is proved here of batches that may hold a record "
    "twice; draw without replacement, or Poisson batches",
    "TruncatedSubsampledGaussianDpEvent": "dp-accounting's relation for it isn't the one proved "
    "here; say the run itself, with --sampling truncated-poisson and --largest-batch",
}
_TWICE = "a batch is drawn from a batch; give one sampling with the product of both rates"


class _Step(NamedTuple):
    """One way to make a noisy step; the rate, or n and the exact batch size."""

    sampling: Sampling
    rate: float | None
    n: int | None
    batch_size: int | None
    noise: float  # as recorded


_Counts = dict[_Step, int]  # in the order in which the ways first appear


def from_opacus(history: Any) -> NoisySGD | Phases:
    """The run that an Opacus accountant has recorded, as Poisson batches.

    `history` is an accountant or a `PrivacyEngine` of Opacus, the accountant's state_dict, or its
    history: a list of (noise multiplier, sample rate, steps). The noise multiplier is noise / C.
    Opacus doesn't record how batches were drawn. Its accountants mean Poisson batches, and so does
    this; for a run with poisson_sampling=False the number isn't a guarantee.

    Raises `ValueError` for anything else, for steps that aren't whole, and for noise outside the
    domain; more than 100 different entries are too many.

    >>> from_opacus([(1.3, 0.01, 2000), (1.3, 0.01, 1500)]).steps
    3500
    >>> len(from_opacus({"history": [(1.3, 0.01, 10), (1.1, 0.01, 5)], "mechanism": "prv"}).runs)
    2
    """
    found = getattr(history, "accountant", history)
    found = getattr(found, "history", found)
    if isinstance(found, Mapping):
        mechanism = found.get("mechanism", "rdp")
        domain.one_of("mechanism", mechanism, _MECHANISMS, "it's one of Opacus' accountants")
        found = found.get("history")
    domain.require("history", found, isinstance(found, list | tuple), _HISTORY)
    domain.require("history", found, len(found) > 0, "at least one entry", "no step was recorded")
    counts: _Counts = {}
    for entry in found:
        right = isinstance(entry, list | tuple) and len(entry) == 3
        domain.require("history entry", entry, right, "[noise multiplier, sample rate, steps]")
        noise, rate, steps = entry
        step = _Step("poisson", domain.rate(rate), None, None, _noise(noise))
        counts[step] = counts.get(step, 0) + domain.steps(steps)
    return _run(counts, 1)


def from_dp_event(
    event: Any, relation: Relation = "add-remove", noise_per: str | None = None
) -> NoisySGD | Phases:
    """The run that an event of dp-accounting describes.

    Parameters
    ----------
    event : the event itself, its `to_named_tuple()`, its repr as a string, or a dictionary
        {"class_name": "GaussianDpEvent", "noise_multiplier": 1.3} with events inside events.
        Gaussian noise, alone, in Poisson batches or in batches without replacement; composed and
        self-composed. Several releases from one batch count as one, of which the noise's inverse
        squares add up.
    relation : add-remove as in dp-accounting's accountants, unless you say otherwise.
    noise_per : asked for under replace-one, and without effect under the other relations.
        dp-accounting's documentation defines the noise multiplier as noise / C ("clip"); its RDP
        accountant computes with noise / sensitivity, which is 2C there ("sensitivity").

    Raises `ValueError` for every other event, with the reason.

    >>> from_dp_event("SelfComposedDpEvent(PoissonSampledDpEvent(0.01, GaussianDpEvent(4.0)), 50)")
    NoisySGD(n=None, batch_size=None, rate=0.01, steps=50, noise_multiplier=4.0, \
clip_norm=1.0, sampling='poisson', largest_batch=None)
    >>> from_dp_event("LaplaceDpEvent(1.0)")
    Traceback (most recent call last):
        ...
    ValueError: LaplaceDpEvent isn't imported: only Gaussian noise is analysed here; account for \
it alone, and add its ε and δ to the rest's
    """
    domain.one_of("relation", relation, RELATIONS)
    if noise_per is not None or relation == "replace-one":
        advice = (
            "dp-accounting's documentation means noise / clipping norm, its RDP accountant noise / "
            "sensitivity, which is half as much noise under replace-one"
        )
        domain.one_of("noise_per", noise_per, NOISE_PER, advice)
    counts: _Counts = {}
    try:
        _count(_parsed(event) if isinstance(event, str) else event, 1, counts)
    except RecursionError:
        raise ValueError("the event isn't imported: it's nested too deeply") from None
    domain.require("event", event, bool(counts), "an event with a release", "nothing was released")
    found = _run(counts, SENSITIVITY[relation] if noise_per == "sensitivity" else 1)
    for run in found.runs if isinstance(found, Phases) else (found,):
        run.check_covered(relation)
    return found


def read_opacus(path: str | Path) -> NoisySGD | Phases:
    """`from_opacus` of a JSON file, written by json.dump(accountant.history, file).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "history.json")
    ...     _ = path.write_text("[[1.3, 0.01, 500]]")
    ...     read_opacus(path).steps
    500
    """
    text = _text("opacus", path)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        advice = "write one by json.dump(engine.accountant.history, file)"
        raise ValueError(f"{path} isn't JSON ({error}): {advice}") from None
    return from_opacus(found)


def read_dp_event(
    path: str | Path, relation: Relation = "add-remove", noise_per: str | None = None
) -> NoisySGD | Phases:
    """`from_dp_event` of a file with the event's repr, or with JSON.

    JSON is the dictionary with class_name, or what json.dump(event.to_named_tuple(), file) writes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "event.txt")
    ...     _ = path.write_text("GaussianDpEvent(noise_multiplier=2.0)")
    ...     read_dp_event(path).sampling_rate
    1.0
    """
    text = _text("dp_event", path).strip()
    if not text.startswith(("{", "[")):
        return from_dp_event(text, relation, noise_per)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} isn't JSON ({error}): write repr(event) into it") from None
    return from_dp_event(found, relation, noise_per)


def _text(name: str, path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{name} = {str(path)!r} can't be read: {error.strerror}") from None
    except ValueError:  # not UTF-8, or a name that no file has
        raise ValueError(f"{name} = {str(path)!r} can't be read: it isn't text") from None


def _noise(value: Any) -> float:
    """A recorded noise multiplier, above 0."""
    found = domain.number("noise multiplier", value)
    advice = "without noise nothing is protected"
    domain.require("noise multiplier", value, found > 0, "above 0", advice)
    return domain.number("noise multiplier", found, domain.NOISE)


def _run(counts: _Counts, unit: int) -> NoisySGD | Phases:
    """The counted steps as one run or as phases; the noise is a multiple of `unit` times C."""
    samplings = {(step.sampling, step.n) for step in counts}
    if len(samplings) > 1:
        ways = " and ".join(sorted(_way(*sampling) for sampling in samplings))
        raise ValueError(
            f"steps with {ways} aren't imported together: no relation here covers both; account "
            "for each by itself, and add up ε and δ"
        )
    if len(counts) > MOST_PHASES:
        raise ValueError(
            f"{len(counts)} different entries aren't imported: at most {MOST_PHASES} phases are; "
            "round the noise down and the rates up to fewer values, which stays an upper bound"
        )
    runs = tuple(
        NoisySGD(
            n=step.n, batch_size=step.batch_size, rate=step.rate, steps=steps,
            noise_multiplier=unit * step.noise, sampling=step.sampling,
        )
        for step, steps in counts.items()
    )  # fmt: skip
    return runs[0] if len(runs) == 1 else Phases(runs)


def _way(sampling: str, n: int | None) -> str:
    return f"{sampling} batches" if n is None else f"{sampling} batches from {n} records"


# --- events: each is read as a name and its fields


def _parsed(text: str) -> Any:
    """The repr of an event as a dictionary with class_name. Nothing in it is executed."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError) as error:
        raise ValueError(f"the event isn't imported: it's no repr of an event ({error})") from None
    return _value(tree.body)


def _value(node: ast.expr) -> Any:
    """A number, a list, or a call that names an event's class."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        if isinstance(node.operand, ast.Constant):
            return -_value(node.operand)
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(one) for one in node.elts]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        given = [_value(one) for one in node.args]
        if name in _NUMPY and len(given) == 1:
            return given[0]
        named = {str(word.arg): _value(word.value) for word in node.keywords}
        return {"class_name": name} | _named(name, given) | named
    written = ast.unparse(node)[:60]
    raise ValueError(f"{written!r} isn't imported: an event's repr holds numbers and events only")


def _named(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """Values without names, by the names of the class's fields."""
    names = _FIELDS.get(name, ())
    if name in _FIELDS and len(values) > len(names):
        raise ValueError(f"{name} isn't imported: it has {len(names)} fields, not {len(values)}")
    return dict(zip(names, values, strict=False))


def _event(value: Any) -> tuple[str, tuple[Any, ...]]:
    """An event's class and its fields in order, of an object, a named tuple or a dictionary."""
    if isinstance(value, Mapping):
        fields: Any = value
        name = value.get("class_name")
        domain.require("class_name", name, isinstance(name, str), "an event's class in each event")
    elif isinstance(value, list | tuple):  # a named tuple: module, class, fields
        known = len(value) >= 2 and isinstance(value[1], str)
        domain.require("event", value, known, "one event", "several go into ComposedDpEvent")
        name, fields = value[1], _named(value[1], value[2:])
    else:
        name = type(value).__name__
        fields = {field: getattr(value, field, None) for field in _FIELDS.get(name, ())}
    if name in _REFUSED:
        raise ValueError(f"{name} isn't imported: {_REFUSED[name]}")
    if name not in _FIELDS:
        known_names = ", ".join(_FIELDS)
        raise ValueError(f"{str(name)[:60]} isn't imported: it's none of {known_names}")
    unknown = sorted(map(str, fields.keys() - {"class_name", "module_name", *_FIELDS[name]}))
    if unknown:
        raise ValueError(f"{name} isn't imported: it has no field {unknown[0][:60]}")
    missing = [field for field in _FIELDS[name] if fields.get(field) is None]
    if missing:
        raise ValueError(f"{name} isn't imported: its {missing[0]} isn't given")
    return name, tuple(fields[field] for field in _FIELDS[name])


def _count(value: Any, times: int, counts: _Counts) -> None:
    """Add the steps that `times` repetitions of an event make."""
    name, fields = _event(value)
    if name == "ComposedDpEvent":
        for one in _events(fields[0]):
            _count(one, times, counts)
    elif name == "SelfComposedDpEvent":
        _count(fields[0], times * domain.whole_number("count", fields[1], "[0, 1e9]"), counts)
    elif (step := _step(name, fields)) is not None:
        counts[step] = counts.get(step, 0) + times


def _events(value: Any) -> list[Any]:
    domain.require("events", value, isinstance(value, list | tuple), "a list of events")
    return list(value)


def _step(name: str, fields: tuple[Any, ...]) -> _Step | None:
    """The step of one release or of one batch, or None where nothing is released."""
    if name == "NoOpDpEvent":
        return None
    if name == "GaussianDpEvent":  # all records at once: a Poisson batch of rate 1
        return _Step("poisson", 1.0, None, None, _noise(fields[0]))
    precision = _precision(fields[-1], name)
    if precision == 0:
        return None
    inner, values = _event(fields[-1])
    noise = _noise(values[0] if inner == "GaussianDpEvent" else 1 / math.sqrt(precision))
    if name == "PoissonSampledDpEvent":
        return _Step("poisson", domain.rate(fields[0]), None, None, noise)
    n, size = fields[:2]
    n = domain.whole_number("source_dataset_size", n, "[1, 1e15]")
    size = domain.whole_number("sample_size", size, f"[1, {n}]")
    return _Step("fixed-size", None, n, size, noise)


def _precision(value: Any, outer: str) -> float:
    """Σ 1/σ² of all Gaussian releases from one batch: together they're one release."""
    name, fields = _event(value)
    if name == "NoOpDpEvent":
        return 0.0
    if name == "GaussianDpEvent":
        return 1 / _noise(fields[0]) ** 2
    if name == "ComposedDpEvent":
        return math.fsum(_precision(one, outer) for one in _events(fields[0]))
    if name == "SelfComposedDpEvent":
        return domain.whole_number("count", fields[1], "[0, 1e9]") * _precision(fields[0], outer)
    raise ValueError(f"{name} in {outer} isn't imported: {_TWICE}")
