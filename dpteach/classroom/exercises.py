"""Checks that tell a student whether their function is right, and if not what is wrong.

`check` runs the student's own function on many inputs and compares it with reference values, or
with properties that any right answer has. It names the first input that fails and the kind of
mistake; it never prints the right value.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from dpteach import domain

__all__ = ["ExerciseFailed", "check"]


_Function = Callable[..., Any]


class ExerciseFailed(AssertionError):
    """The check of an exercise found something wrong, or nothing to check.

    It's an AssertionError, so nbval, nbgrader and pytest count it as a failure; a notebook shows
    its message alone, without a traceback.
    """

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def check(
    student: Any, *, on: Any = None, like: _Function | None = None, expected: Any = None,
    properties: dict[str, _Function] | None = None, rtol: float = 1e-9, atol: float = 0.0,
    hints: dict[str, str] | None = None, mistakes: dict[str, _Function] | None = None,
    name: str | None = None,
) -> None:  # fmt: skip
    """Check a student's function (or value), say what is wrong, or print one line of success.

    Parameters
    ----------
    student : callable or value
        What the student wrote. A value is compared with `expected`, or judged by `properties`.
    on : sequence, optional
        Inputs: a tuple gives positional arguments, a dict named ones, anything else one argument.
    like : callable, optional
        Reference function, called on the same inputs.
    expected : sequence or value, optional
        Reference results, one for each input, instead of `like`.
    properties : dict of str to callable, optional
        ``{"is at most 1": lambda result, *args: result <= 1}``: each must hold for every input.
        The text completes the sentence "the result ...".
    rtol, atol : float
        Relative and absolute tolerance of the comparison.
    hints : dict of str to str, optional
        What to add for a kind of mistake: ``exception``, ``none``, ``type``, ``shape``, ``nan``,
        ``sign``, ``factor``, ``shift``, ``first`` (right on the first inputs only), ``value``
        (any other wrong value), ``property``.
    mistakes : dict of str to callable, optional
        Well-known wrong answers: when the student's results equal the callable's on every input,
        the text is shown. ``{"Is it λ or λ+1?": lambda q, lam: ...}``
    name : str, optional
        What to call the function; its own name by default.

    Raises
    ------
    ExerciseFailed
        With a message for the student, when anything is wrong or nothing has been written yet.
    ValueError
        When the check itself is put together wrongly (nothing to compare with, no inputs).

    Examples
    --------
    >>> check(lambda x: x * x, like=lambda x: x**2, on=[1.0, 2.0, -3.0], name="square")
    square: right on all 3 inputs.
    >>> check(lambda x: 2 * x * x, like=lambda x: x**2, on=[1.0, 2.0, -3.0], name="square")
    Traceback (most recent call last):
        ...
    dpteach.classroom.exercises.ExerciseFailed: square: wrong by the same factor on every input.
      First at input 1 of 3: square(1.0) gave 2.0.
    """
    rtol, atol = domain.number("rtol", rtol, "[0, inf)"), domain.number("atol", atol, "[0, inf)")
    hints = hints or {}
    if not callable(student):  # a value: the same as a function without arguments
        student, on, name = (lambda value=student: value), [()], name or "the answer"
        expected = None if expected is None else [expected]
    name = str(name or getattr(student, "__name__", "your function"))
    sequence = (list, tuple, np.ndarray)
    if not isinstance(on, sequence) or len(on) == 0:
        raise ValueError("on must be a list of at least one input: the check would pass without "
                         "looking")
    if (like is None) == (expected is None) and (like is not None or not properties):
        raise ValueError("give like or expected, or properties: there must be one thing to compare "
                         "with")
    if expected is not None and (not isinstance(expected, sequence) or len(expected) != len(on)):
        raise ValueError(f"expected must be a list of {len(on)} values, one for each input")

    inputs = [_Input.of(name, f"input {i} of {len(on)}", entry) for i, entry in enumerate(on, 1)]
    results = [_run(student, one, hints) for one in inputs]
    wanted = expected if like is None else [one.to(like) for one in inputs]
    if wanted is not None:
        _compare(name, inputs, results, wanted, (rtol, atol), hints, mistakes or {})
    for text, holds in (properties or {}).items():
        for one, result in zip(inputs, results, strict=True):
            if not _holds(holds, one, result):
                _fail(f"{name}: the result {text}: not so here.", hints.get("property"), one,
                      result)
    print(f"{name}: right on all {len(on)} inputs." if len(on) > 1 else f"{name}: right.")


def _compare(
    name: str, inputs: list[_Input], results: list[Any], wanted: Any, accuracy: tuple[float, float],
    hints: dict[str, str], mistakes: dict[str, _Function],
) -> None:  # fmt: skip
    """Say what's wrong with the first result that isn't the wanted one."""
    for one, result, want in zip(inputs, results, wanted, strict=True):
        _check_kind(one, result, want, hints)
    good = [_equal(*pair, *accuracy) for pair in zip(results, wanted, strict=True)]
    if all(good):
        return
    first = good.index(False)
    kind, words = _diagnose(results, wanted, good, *accuracy)
    hint = hints.get(kind, hints.get("value"))
    for slip, wrong in mistakes.items():
        if _same_mistake(wrong, inputs, results, *accuracy):
            words, hint = f"a well-known slip. {slip}", None
    _fail(f"{name}: {words}", hint, inputs[first], results[first])


@dataclass(frozen=True)
class _Input:
    """One input: what the function is called, which input it is, its arguments."""

    name: str
    place: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, name: str, place: str, entry: Any) -> _Input:
        if isinstance(entry, dict):
            return cls(name, place, (), entry)
        return cls(name, place, entry if isinstance(entry, tuple) else (entry,), {})

    def to(self, function: _Function, *before: Any) -> Any:
        """The function's result, on copies of the arguments."""
        args, kwargs = copy.deepcopy((self.args, self.kwargs))
        return function(*before, *args, **kwargs)

    def __str__(self) -> str:
        shown = [_show(a) for a in self.args] + [f"{key}={_show(a)}"
                                                 for key, a in self.kwargs.items()]
        return f"{self.name}({', '.join(shown)})"


def _show(value: Any) -> str:
    """Short text of a value: numbers to 6 digits, arrays by their first entries."""
    if isinstance(value, (float, np.floating)):
        short = f"{value:.6g}"
        return short if any(c in short for c in ".en") else short + ".0"
    if isinstance(value, np.ndarray):
        return np.array2string(value, precision=4, threshold=8, edgeitems=3, separator=", ")
    value = value.item() if isinstance(value, np.generic) else value
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


_UNTOLD = object()


def _fail(problem: str, hint: str | None = None, one: _Input | None = None,
          result: Any = _UNTOLD) -> NoReturn:
    """Raise with the problem, the input it was first seen at, the student's result there, and the
    hint."""
    told = result is not _UNTOLD
    if one is not None and (one.args or one.kwargs):
        problem += f"\n  First at {one.place}: {one}" + (f" gave {_show(result)}." if told else ".")
    elif told:
        problem += f"\n  Yours: {_show(result)}."
    raise ExerciseFailed(problem + (f"\n  Hint: {hint}" if hint else "")) from None


def _run(student: _Function, one: _Input, hints: dict[str, str]) -> Any:
    """The student's result for one input; what goes wrong on the way is said in plain words."""
    try:
        result = one.to(student)
    except NotImplementedError:
        result = ...
    except ExerciseFailed:
        raise
    except Exception as error:
        _fail(f"{one.name}: stops with {type(error).__name__}: {error}", hints.get("exception"),
              one)
    if result is ... or (result is None and not one.args and not one.kwargs):
        words = "not written yet. Write it in the cell above, run that, then this again."
        _fail(f"{one.name}: {words}", hints.get("none"))
    if result is None:
        _fail(f"{one.name}: gives nothing (None). Not written yet, or is a return missing?",
              hints.get("none"), one)
    return result


def _numeric(value: Any) -> np.ndarray | None:
    """The value as an array of numbers, or None when it isn't one (tuples of numbers are)."""
    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except (TypeError, ValueError):  # torch's bfloat16; a ragged list
        return None
    return array if array.dtype.kind in "biufc" else None


def _check_kind(one: _Input, result: Any, want: Any, hints: dict[str, str]) -> None:
    """Type, shape and NaN: what can be said before comparing values."""
    right, given = _numeric(want), _numeric(result)
    fits, kind = isinstance(result, type(want)), f"a {type(want).__name__}"
    if right is not None:
        truth = right.dtype.kind == "b"
        kind = "an array of numbers" if right.ndim else "True or False" if truth else "a number"
        fits = given is not None and (given.dtype.kind == "b") == truth
    if not fits:
        words = f"{kind}, not a {type(result).__name__}"
        _fail(f"{one.name}: the result should be {words}.", hints.get("type"), one, result)
    if right is None or given is None:
        return
    if given.shape != right.shape:
        words = f"{kind} of shape {right.shape}, not {given.shape}"
        _fail(f"{one.name}: the result should be {words}.", hints.get("shape"), one, result)
    if np.isnan(given).any() and not np.isnan(right).any():
        _fail(f"{one.name}: the result isn't a number (NaN).", hints.get("nan"), one, result)


def _equal(result: Any, want: Any, rtol: float, atol: float) -> bool:
    right, given = _numeric(want), _numeric(result)
    if right is None or given is None:
        return bool(result == want)
    return right.shape == given.shape and np.allclose(given, right, rtol=rtol, atol=atol,
                                                      equal_nan=True)


def _same_mistake(wrong: _Function, inputs: list[_Input], results: list[Any], rtol: float,
                  atol: float) -> bool:
    try:
        return all(_equal(r, one.to(wrong), rtol, atol)
                   for r, one in zip(results, inputs, strict=True))
    except Exception:  # a wrong formula may break where the right one doesn't
        return False


def _diagnose(results: list[Any], wanted: Any, good: list[bool], rtol: float,
              atol: float) -> tuple[str, str]:
    """The kind of a mistake and the sentence that describes it."""
    arrays = [_numeric(value) for value in (*wanted, *results)]
    flat = [x.ravel() for x in arrays
            if x is not None and x.dtype.kind in "iuf" and np.isfinite(x).all()]
    # zeros are right by any factor
    none_right = not any(ok and np.any(want) for ok, want in zip(good, wanted, strict=True))
    if none_right and len(flat) == len(arrays):
        right, given = (np.concatenate(part).astype(float)
                        for part in (flat[: len(wanted)], flat[len(wanted) :]))
        if np.allclose(given, -right, rtol=rtol, atol=atol):
            return "sign", "the sign is wrong, the size is right."
        used, gap = right != 0, given - right
        ratio = given[used] / right[used]
        if ratio.size > 1 and ratio[0] != 0 and not given[~used].any():
            if np.allclose(ratio, ratio[0], rtol=max(rtol, 1e-9) * 10, atol=0):
                return "factor", "wrong by the same factor on every input."
        shifted = gap.size > 1 and np.allclose(gap, gap[0], rtol=1e-6, atol=0)
        if shifted and np.ptp(right) > abs(gap[0]) * 1e-6:
            return "shift", "wrong by the same amount on every input."
    first = good.index(False)
    if first > 0 and not any(good[first:]):
        return "first", f"right on the first {f'{first} inputs' if first > 1 else 'input'} only."
    if any(good):
        return "value", f"right on {sum(good)} of {len(good)} inputs."
    return "value", "wrong on every input." if len(good) > 1 else "wrong."


def _holds(holds: _Function, one: _Input, result: Any) -> bool:
    try:
        return bool(np.all(one.to(holds, result)))
    except (TypeError, ValueError, AttributeError):  # the result isn't of a kind that has it
        return False
