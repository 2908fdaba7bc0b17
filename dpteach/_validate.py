"""Every argument check of the package: one place, one wording.

A check returns the value in the plain Python or numpy type that the caller computes with, or raises
`ValueError` with four facts: the argument's name, the value it got, the range allowed, what to do.
Ranges are written as in mathematics: ``"(0, 1]"`` leaves 0 out and lets 1 in.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["choice", "real", "reals", "whole"]


@functools.cache
def _parse(interval: str) -> tuple[bool, float, float, bool]:
    low, high = interval[1:-1].split(",")
    return interval[0] == "[", float(low), float(high), interval[-1] == "]"


def _refuse(name: str, value: Any, allowed: str, advice: str) -> ValueError:
    shown = " ".join(repr(value).split())  # arrays print on several lines
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    end = f"; {advice}" if advice else ""
    return ValueError(f"{name} = {shown} isn't allowed: it must be {allowed}{end}")


def _inside(values: np.ndarray, interval: str) -> bool:
    closed_low, low, high, closed_high = _parse(interval)
    above = values >= low if closed_low else values > low
    below = values <= high if closed_high else values < high
    return bool(np.all(above & below))


def _number_like(value: Any) -> bool:
    kind = getattr(np.asarray(value), "dtype", np.dtype(object)).kind if value is not None else "O"
    return kind in "iuf"


def real(name: str, value: Any, interval: str = "(-inf, inf)", advice: str = "") -> float:
    """One real number in `interval`, as a float.

    >>> real("q", 0.01, "(0, 1]")
    0.01
    >>> real("q", 1.5, "(0, 1]", "q is the probability that a record enters the batch")
    Traceback (most recent call last):
        ...
    ValueError: q = 1.5 isn't allowed: it must be a number in (0, 1]; q is the probability that a \
record enters the batch
    """
    allowed = f"a number in {interval}"
    if not _number_like(value) or np.ndim(value) != 0:
        raise _refuse(name, value, allowed, advice)
    number = float(value)
    if not _inside(np.asarray(number), interval):
        raise _refuse(name, value, allowed, advice)
    return number


def whole(name: str, value: Any, interval: str = "[0, inf)", advice: str = "") -> int:
    """One whole number in `interval`, as an int; 3.0 counts as 3, True doesn't count as 1.

    >>> whole("steps", 1e4)
    10000
    """
    allowed = f"a whole number in {interval}"
    if not _number_like(value) or np.ndim(value) != 0:
        raise _refuse(name, value, allowed, advice)
    number = float(value)
    if not math.isfinite(number) or int(value) != value or not _inside(np.asarray(number), interval):
        raise _refuse(name, value, allowed, advice)
    return int(value)


def reals(name: str, value: Any, interval: str = "(-inf, inf)", advice: str = "") -> np.ndarray:
    """A number or an array of numbers, each in `interval`, as a float64 array of the same shape.

    >>> reals("alpha", [0.1, 0.5], "[0, 1]")
    array([0.1, 0.5])
    """
    allowed = f"numbers in {interval}"
    try:
        numeric = _number_like(value)
    except ValueError:  # a ragged list
        numeric = False
    if not numeric:
        raise _refuse(name, value, allowed, advice)
    values = np.asarray(value, dtype=float)
    if values.size == 0 or not _inside(values, interval):
        raise _refuse(name, value, allowed + " (at least one)", advice)
    return values


def choice(name: str, value: Any, options: Sequence[str], advice: str = "") -> str:
    """One of a few words.

    >>> choice("relation", "add-remove", ("add-remove", "replace-one"))
    'add-remove'
    """
    if not isinstance(value, str) or value not in options:
        raise _refuse(name, value, "one of " + ", ".join(map(repr, options)), advice)
    return value
