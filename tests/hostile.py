"""What the two files of hostile arguments share: the values, a watchdog, and how a call's outcome is read."""

import datetime
import decimal
import fractions
import importlib
import inspect
import math
import signal
import warnings

import numpy as np
import pytest
import torch

__all__ = [
    "EXTREME", "NOT_A_NUMBER", "WRONG_OBJECTS", "answer_or_refusal", "names_called", "public_names", "watchdog",
]  # fmt: skip

NOT_A_NUMBER = ["0.5", b"1", None, True, 1j, [], {}, decimal.Decimal("0.5"), fractions.Fraction(1, 2), object(),
                datetime.datetime(2020, 1, 1), np.array([]), np.array([None]), [1, [2, 3]], np.ma.masked,
                torch.tensor([]), torch.tensor(0.5, requires_grad=True), torch.tensor(0.5, dtype=torch.bfloat16),
                math.nan]  # fmt: skip
EXTREME = [math.inf, -math.inf, -1, 0, -0.0, 5e-324, 1e-300, 1e300, 1.7e308, 2**63, 2**64, 10**30, 10**400, 10**5000,
           np.uint8(255), np.float16(0.5), np.array(0.5), np.longdouble("1e4000"), torch.tensor(1)]  # fmt: skip
WRONG_OBJECTS = [None, 3, math.nan, "x", b"x", [], {}, (), object(), np.array([]), torch.tensor(1.0)]


PROCESSOR_SECONDS = 120  # of one test: far above what any takes, so that only a hang meets it


@pytest.fixture(autouse=True)
def watchdog():
    """A hang becomes a failure with a traceback. Counts this process's time, so a busy machine changes nothing."""

    def bark(number, frame):
        raise RuntimeError(f"still computing after {PROCESSOR_SECONDS} s")

    before = signal.signal(signal.SIGPROF, bark)
    signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


def names_called(function):
    """The function's name, and every name that a lambda's code mentions."""
    code = getattr(function, "__code__", None)
    inner = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    return {function.__name__, *(code.co_names if code else ())}.union(*map(names_called, filter(callable, inner)))


def public_names(path):
    """A module's public functions and classes."""
    module = importlib.import_module(f"dpteach.training.{path.stem}")
    found = {name: getattr(module, name) for name in getattr(module, "__all__", ())}
    return {name for name, value in found.items() if inspect.isroutine(value) or inspect.isclass(value)}


def numbers_in(result):
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [number for part in result for number in numbers_in(part)]
    if isinstance(result, int):
        return [result]
    return [] if result is None or isinstance(result, str) else np.asarray(result, dtype=float).ravel().tolist()


def answer_or_refusal(function, arguments):
    """The numbers that a call gives, or its refusal; warnings and any other error fail the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return numbers_in(function(**arguments)), None
        except ValueError as error:
            return [], str(error)
