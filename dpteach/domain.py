"""The domain of the package, and every argument check: one place, one sentence of refusal.

==================  ==================  =======================================================
argument            domain              what it is
==================  ==================  =======================================================
sigma               [0.05, 1e3]         noise standard deviation / sensitivity
noise_multiplier    [0.05, 2e3]         noise standard deviation / clipping norm
rate                [1e-9, 1]           probability that a record enters a batch
steps               [0, 1e9], whole     noisy updates
delta               [1e-30, 1)          δ of (ε, δ)
epsilon             [0, 1e5]            ε of (ε, δ)
mu                  [1e-6, 100]         of mu-GDP
alpha               [0, 1]              type I error
==================  ==================  =======================================================

Inside, each public number has the accuracy that its docstring states. Outside, a check raises
`ValueError` with the argument's name, the value it got, the range allowed and what to do.
Functions that a user calls check their arguments once; what they call checks nothing.

A check returns the value in the plain Python or numpy type that the caller computes with. Ranges
are written as in mathematics: ``"(0, 1]"`` leaves 0 out and lets 1 in.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = [
    "ALPHA", "DELTA", "EPSILON", "MU", "NOISE", "RATE", "SIGMA", "STEPS",
    "alpha", "alphas", "delta", "epsilon", "epsilons", "instance", "instances", "mu", "number",
    "numbers", "one_of", "rate", "require", "same_shape", "set_fields", "sigma", "steps", "text",
    "whole_number",
]  # fmt: skip

SIGMA = "[0.05, 1e3]"
NOISE = "[0.05, 2e3]"  # sensitivity 2C halves it: sigma under replace-one
RATE = "[1e-9, 1]"
STEPS = "[0, 1e9]"
DELTA = "[1e-30, 1)"
EPSILON = "[0, 1e5]"
MU = "[1e-6, 100]"
ALPHA = "[0, 1]"


@functools.lru_cache
def _parse(interval: str) -> tuple[bool, float, float, bool]:
    low, high = interval[1:-1].split(",")
    return interval[0] == "[", float(low), float(high), interval[-1] == "]"


def _refuse(name: str, value: Any, allowed: str, advice: str) -> ValueError:
    try:
        shown = " ".join(repr(value).split())  # arrays print on several lines
    except ValueError:  # Python doesn't print a whole number of more than 4300 digits
        shown = f"{type(value).__name__} too long to print"
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    end = f"; {advice}" if advice else ""
    return ValueError(f"{name} = {shown} isn't allowed: it must be {allowed}{end}")


def _inside(values: np.ndarray, interval: str) -> bool:
    closed_low, low, high, closed_high = _parse(interval)
    above = values >= low if closed_low else values > low
    below = values <= high if closed_high else values < high
    return bool(np.all(above & below))


def _numbers(value: Any) -> np.ndarray | None:
    """`value` as a float64 array, or None where it isn't made of numbers alone."""
    if np.ma.is_masked(value):
        return None
    try:
        array = np.asarray(value, dtype=float if type(value) is int else None)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # ragged, huge, torch's gradients
        return None
    with np.errstate(over="ignore"):  # a long double may lie beyond a double
        return array.astype(float, copy=False) if array.dtype.kind in "iuf" else None


def number(name: str, value: Any, interval: str = "(-inf, inf)", advice: str = "") -> float:
    """One real number in `interval`, as a float.

    >>> number("miss", 0.05, "(0, 1)")
    0.05
    >>> number("miss", 1.5, "(0, 1)", "it's a probability")
    Traceback (most recent call last):
        ...
    ValueError: miss = 1.5 isn't allowed: it must be a number in (0, 1); it's a probability
    """
    found = _numbers(value)
    if found is None or found.ndim or not _inside(found, interval):
        raise _refuse(name, value, f"a number in {interval}", advice)
    return float(found)


def whole_number(name: str, value: Any, interval: str = "[0, inf)", advice: str = "") -> int:
    """One whole number in `interval`, as an int; 3.0 counts as 3, True doesn't count as 1.

    >>> whole_number("steps", 1e4)
    10000
    """
    found = _numbers(value)
    if found is None or found.ndim or not _inside(found, interval) or int(value) != value:
        raise _refuse(name, value, f"a whole number in {interval}", advice)
    return int(value)


def numbers(name: str, value: Any, interval: str = "(-inf, inf)", advice: str = "") -> np.ndarray:
    """A number or an array of numbers, each in `interval`, as a float64 array of the same shape.

    >>> numbers("alpha", [0.1, 0.5], "[0, 1]")
    array([0.1, 0.5])
    """
    values = _numbers(value)
    if values is None:
        raise _refuse(name, value, f"numbers in {interval}", advice)
    if values.size == 0 or not _inside(values, interval):
        raise _refuse(name, value, f"numbers in {interval} (at least one)", advice)
    return values


# --- the arguments of the table


def sigma(value: Any) -> float:
    """Noise standard deviation / sensitivity.

    >>> sigma(0.01)
    Traceback (most recent call last):
        ...
    ValueError: sigma = 0.01 isn't allowed: it must be a number in [0.05, 1e3]; it's noise \
standard deviation / sensitivity
    """
    return number("sigma", value, SIGMA, "it's noise standard deviation / sensitivity")


def rate(value: Any) -> float:
    """Sampling rate: m/n."""
    return number("rate", value, RATE, "it's the probability that a record enters a batch, m/n")


def steps(value: Any, least: int = 0) -> int:
    """Number of noisy updates; `least` is 1 where a formula divides by it."""
    return whole_number("steps", value, f"[{least}, 1e9]", "it's the number of noisy updates")


def delta(value: Any) -> float:
    """The δ of (ε, δ)."""
    return number("delta", value, DELTA, "it's a probability; typical values are below 1/n")


def epsilon(value: Any) -> float:
    """The ε of (ε, δ)."""
    return number("epsilon", value, EPSILON)


def epsilons(value: Any) -> np.ndarray:
    """One ε or an array of them."""
    return numbers("epsilon", value, EPSILON)


def mu(value: Any) -> float:
    """The mu of mu-GDP."""
    return number("mu", value, MU, "it's the distance of two Gaussians in standard deviations")


def alpha(value: Any) -> float:
    """A type I error."""
    return number("alpha", value, ALPHA, "it's a test's type I error")


def alphas(value: Any) -> np.ndarray:
    """One type I error or an array of them."""
    return numbers("alpha", value, ALPHA, "it's a test's type I error")


# --- other kinds of argument


def same_shape(**arrays: np.ndarray) -> None:
    """Refuse arrays that don't belong together.

    >>> same_shape(alpha=np.ones(2), beta=np.ones(3))
    Traceback (most recent call last):
        ...
    ValueError: alpha and beta have shapes (2,) and (3,): give the same number of values for each
    """
    shapes = [array.shape for array in arrays.values()]
    if len(set(shapes)) > 1:
        have = f"{' and '.join(arrays)} have shapes {' and '.join(map(str, shapes))}"
        raise ValueError(f"{have}: give the same number of values for each")


def instance(name: str, value: Any, kind: Any, example: str) -> Any:
    """One object of `kind`, which `example` shows how to make.

    >>> instance("law", 3, str, "GaussianLaw(1.0)")
    Traceback (most recent call last):
        ...
    ValueError: law = 3 isn't allowed: it must be an object of the right kind; give for example \
GaussianLaw(1.0)
    """
    advice = f"give for example {example}"
    require(name, value, isinstance(value, kind), "an object of the right kind", advice)
    return value


def require(name: str, value: Any, holds: bool, allowed: str, advice: str = "") -> None:
    """Refuse `value` unless `holds`, for what no other check says.

    >>> require("absent", [0.5], False, "at least 2 scores")
    Traceback (most recent call last):
        ...
    ValueError: absent = [0.5] isn't allowed: it must be at least 2 scores
    """
    if not holds:
        raise _refuse(name, value, allowed, advice)


def instances(name: str, values: Any, kind: Any, example: str) -> tuple:
    """A tuple of one or more objects of `kind`, which `example` shows how to make.

    >>> instances("laws", (), float, "run.laws('add-remove')")
    Traceback (most recent call last):
        ...
    ValueError: laws = () isn't allowed: it must be a tuple of at least one; give for example \
run.laws('add-remove')
    """
    found = tuple(values) if isinstance(values, (tuple, list)) else ()
    right = len(found) > 0 and all(isinstance(value, kind) for value in found)
    require(name, values, right, "a tuple of at least one", f"give for example {example}")
    return found


def set_fields(frozen: Any, **checked: Any) -> None:
    """Set fields of a frozen dataclass to their checked values, while it's made.

    >>> import types
    >>> place = types.SimpleNamespace(steps=3.0)
    >>> set_fields(place, steps=3)
    >>> place.steps
    3
    """
    for field, value in checked.items():
        object.__setattr__(frozen, field, value)


def one_of(name: str, value: Any, options: Sequence[str], advice: str = "") -> str:
    """One of a few words.

    >>> one_of("relation", "add-remove", ("add-remove", "replace-one"))
    'add-remove'
    """
    if not isinstance(value, str) or value not in options:
        raise _refuse(name, value, "one of " + ", ".join(map(repr, options)), advice)
    return value


def text(name: str, value: Any, longest: int = 60, advice: str = "") -> str:
    """A few printable letters on one line.

    >>> text("unit", "user")
    'user'
    """
    good = isinstance(value, str) and value.strip() and value.isprintable()
    if not good or len(value) > longest:
        raise _refuse(name, value, f"one line of 1 to {longest} printable letters", advice)
    return value.strip()
