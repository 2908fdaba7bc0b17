"""Checks that tell a student whether their function is right, and if not what is wrong.

`check` runs the student's own function on many inputs and compares it with reference values, or
with properties that any right answer has. It names the first input that fails and the kind of
mistake; it never prints the right value.
"""

import copy

import numpy as np

from dpteach import _validate

__all__ = ["ExerciseFailed", "check"]


class ExerciseFailed(AssertionError):
    """The check of an exercise found something wrong, or nothing to check.

    It's an AssertionError, so nbval, nbgrader and pytest count it as a failure; a notebook shows
    its message alone, without a traceback.
    """

    def _render_traceback_(self):
        return [str(self)]


def check(
    student,
    *,
    on=None,
    like=None,
    expected=None,
    properties=None,
    rtol=1e-9,
    atol=0.0,
    hints=None,
    mistakes=None,
    name=None,
):
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
    dpteach.exercises.ExerciseFailed: square: wrong by the same factor on every input.
      First at input 1 of 3: square(1.0) gave 2.0.
    """
    rtol, atol = _validate.real("rtol", rtol, "[0, inf)"), _validate.real("atol", atol, "[0, inf)")
    hints = hints or {}
    if not callable(student):  # a value: the same as a function without arguments
        value, name = student, name or "the answer"
        student, on = (lambda: value), [()]
        expected = None if expected is None else [expected]
    name = name or getattr(student, "__name__", "your function")
    inputs = list(on) if on is not None else []
    if not inputs:
        raise ValueError("on must hold at least one input: the check would pass without looking")
    if like is None and expected is None and not properties:
        raise ValueError("give like, expected or properties: there's nothing to compare with")
    if like is not None and expected is not None:
        raise ValueError("give like or expected, not both")
    if expected is not None and len(expected) != len(inputs):
        raise ValueError(f"expected has {len(expected)} values for {len(inputs)} inputs")

    calls = [_Call(name, i, len(inputs), *_arguments(x)) for i, x in enumerate(inputs, 1)]
    results = [_run(student, call, hints) for call in calls]
    wanted = expected if like is None else [like(*c.args(), **c.kwargs()) for c in calls]
    if wanted is not None:
        for call, result, want in zip(calls, results, wanted, strict=True):
            _check_kind(call, result, want, hints)
        _compare(calls, results, wanted, rtol, atol, hints, mistakes or {})
    for text, holds in (properties or {}).items():
        for call, result in zip(calls, results, strict=True):
            if not _holds(holds, call, result):
                _fail(f"{name}: the result {text}: not so here.", call, result, hints, "property")
    count = len(inputs)
    print(f"{name}: right on all {count} inputs." if count > 1 else f"{name}: right.")


class _Call:
    """One input: its arguments (fresh copies each time) and how to show them."""

    def __init__(self, name, index, count, args, kwargs):
        self.name, self.index, self.count = name, index, count
        self._args, self._kwargs = args, kwargs
        self.is_value = not args and not kwargs

    def args(self):
        return copy.deepcopy(self._args)

    def kwargs(self):
        return copy.deepcopy(self._kwargs)

    def __str__(self):
        shown = [_show(a) for a in self._args]
        shown += [f"{key}={_show(a)}" for key, a in self._kwargs.items()]
        return f"{self.name}({', '.join(shown)})"


def _arguments(entry):
    if isinstance(entry, tuple):
        return entry, {}
    if isinstance(entry, dict):
        return (), entry
    return (entry,), {}


def _show(value):
    """Short text of a value: numbers to 6 digits, arrays by their first entries."""
    if isinstance(value, (float, np.floating)):
        short = f"{value:.6g}"
        return short if any(c in short for c in ".en") else short + ".0"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return np.array2string(value, precision=4, threshold=8, edgeitems=3, separator=", ")
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _fail(problem, call, result, hints, kind, told=True):
    message = problem
    if call is not None and call.is_value:
        message += f"\n  Yours: {_show(result)}." if told else ""
    elif call is not None:
        told = f" gave {_show(result)}." if told else "."
        message += f"\n  First at input {call.index} of {call.count}: {call}{told}"
    if hints.get(kind):
        message += f"\n  Hint: {hints[kind]}"
    raise ExerciseFailed(message) from None


def _not_written(name, hints):
    _fail(
        f"{name}: not written yet. Write it in the cell above, run that, then run this again.",
        None,
        None,
        hints,
        "none",
    )


def _run(student, call, hints):
    """The student's result for one input; what goes wrong on the way is said in plain words."""
    try:
        result = student(*call.args(), **call.kwargs())
    except NotImplementedError:
        _not_written(call.name, hints)
    except ExerciseFailed:
        raise
    except Exception as error:
        _fail(f"{call.name}: stops with {type(error).__name__}: {error}", call, None, hints, "exception", told=False)
    if result is Ellipsis:
        _not_written(call.name, hints)
    if result is None and call.is_value:
        _not_written(call.name, hints)
    if result is None:
        _fail(
            f"{call.name}: gives nothing (None). Not written yet, or is a return missing?",
            call,
            None,
            hints,
            "none",
            told=False,
        )
    return result


def _numeric(value):
    """The value as an array of numbers, or None when it isn't one (tuples of numbers are)."""
    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except (TypeError, ValueError):  # torch's bfloat16; a ragged list
        return None
    return array if array.dtype.kind in "biufc" else None


def _check_kind(call, result, want, hints):
    """Type, shape and NaN: what can be said before comparing values."""
    right, given = _numeric(want), _numeric(result)
    if right is None:
        if not isinstance(result, type(want)):
            _fail(
                f"{call.name}: the result should be a {type(want).__name__}, not a {type(result).__name__}.",
                call,
                result,
                hints,
                "type",
            )
        return
    kind = "True or False" if right.dtype.kind == "b" else "a number"
    if right.ndim:
        kind = "an array of numbers"
    if given is None or (right.dtype.kind == "b") != (given.dtype.kind == "b"):
        _fail(f"{call.name}: the result should be {kind}, not a {type(result).__name__}.", call, result, hints, "type")
    if given.shape != right.shape:
        _fail(
            f"{call.name}: the result should be {kind} of shape {right.shape}, not {given.shape}.",
            call,
            result,
            hints,
            "shape",
        )
    if np.isnan(given).any() and not np.isnan(right).any():
        _fail(f"{call.name}: the result isn't a number (NaN).", call, result, hints, "nan")


def _equal(result, want, rtol, atol):
    right, given = _numeric(want), _numeric(result)
    if right is None or given is None:
        return bool(result == want)
    if right.shape != given.shape:
        return False
    return bool(np.allclose(given, right, rtol=rtol, atol=atol, equal_nan=True))


def _compare(calls, results, wanted, rtol, atol, hints, mistakes):
    """Compare all results; when some are wrong, find what the wrong ones have in common."""
    good = [_equal(r, w, rtol, atol) for r, w in zip(results, wanted, strict=True)]
    if all(good):
        return
    first = good.index(False)
    call, result, name = calls[first], results[first], calls[0].name
    for text, wrong in mistakes.items():
        if _same_mistake(wrong, calls, results, rtol, atol):
            _fail(f"{name}: a well-known slip. {text}", call, result, {}, "")
    kind, words = _diagnose(results, wanted, good, first, rtol, atol)
    _fail(f"{name}: {words}", call, result, hints, kind if kind in hints else "value")


def _same_mistake(wrong, calls, results, rtol, atol):
    try:
        return all(_equal(r, wrong(*c.args(), **c.kwargs()), rtol, atol) for r, c in zip(results, calls, strict=True))
    except Exception:  # a wrong formula may break where the right one doesn't
        return False


def _diagnose(results, wanted, good, first, rtol, atol):
    """The kind of a mistake and the sentence that describes it."""
    right, given = [_numeric(w) for w in wanted], [_numeric(r) for r in results]
    if any(x is None or x.dtype.kind in "bc" for x in right + given):
        return _where(good, first)
    right = np.concatenate([x.ravel() for x in right]).astype(float)
    given = np.concatenate([x.ravel() for x in given]).astype(float)
    if np.allclose(given, -right, rtol=rtol, atol=atol):
        return "sign", "the sign is wrong, the size is right."
    if not np.isfinite(given).all():
        return _where(good, first, "a result is infinite. ")
    if right.size > 1:
        use = right != 0
        ratio = given[use] / right[use]
        tight = max(rtol, 1e-9) * 10
        if (
            use.sum() > 1
            and (given[~use] == 0).all()
            and ratio[0] != 0
            and np.allclose(ratio, ratio[0], rtol=tight, atol=0)
        ):
            return "factor", "wrong by the same factor on every input."
        gap = given - right
        if np.allclose(gap, gap[0], rtol=1e-6, atol=0) and np.ptp(right) > abs(gap[0]) * 1e-6:
            return "shift", "wrong by the same amount on every input."
    return _where(good, first)


def _where(good, first, extra=""):
    if first > 0 and not any(good[first:]):
        which = "the first input" if first == 1 else f"the first {first} inputs"
        return "first", f"{extra}right on {which} only."
    if not any(good):
        return "value", extra + ("wrong on every input." if len(good) > 1 else "wrong.")
    return "value", f"{extra}right on {sum(good)} of {len(good)} inputs."


def _holds(holds, call, result):
    try:
        return bool(np.all(holds(result, *call.args(), **call.kwargs())))
    except (TypeError, ValueError, AttributeError):  # the result isn't of a kind that has it
        return False
