"""Chapter 24's exercise checks refuse what students plausibly write."""

import re
from pathlib import Path

import numpy as np
import pytest

from dpteach.classroom.exercises import ExerciseFailed, check
from dpteach.hidden import hidden_mu

CHAPTER = (Path(__file__).parents[1] / "book" / "24-hidden-iterates.md").read_text("utf-8")
WRONG = {
    "ex-24-1": (
        "remembered",
        ["2 / (1 - c)", "np.sqrt((1 + c) / (1 - c))", "(1 - c) / (1 + c)", "1 / (1 - c)",
         "1 / (1 - c**2)", "(1 + c**2) / (1 - c**2)", "(1 + c) / (1 - c) - 1", "2 / (1 - c) + 1",
         "np.ceil((1 + c) / (1 - c))", "hidden_mu(1.0, c, 1000) ** 2", "1 + c",
         "-1 / np.log(c + 1e-9)"],
    ),
    "ex-24-2": (
        "shifts",
        ["np.ones(T)", "c ** np.arange(T - 1, -1, -1.0)", "c ** np.arange(float(T))",
         "np.full(T, 1 / T)", "np.append(np.zeros(T - 1), np.sum(c ** np.arange(float(T))))",
         "np.ones(T) * c", "np.ones(T - 1)", "c ** np.arange(T - 1, -1, -1.0) * (1 - c**T)",
         "c ** np.arange(T - 1, -1, -1.0) / np.sum(c ** np.arange(float(T)))",
         "np.ones(T) / (1 - c + 1e-12)", "c ** np.arange(T, 0, -1.0)"],
    ),
    "ex-24-3": (
        "noise",
        ["change * np.sqrt(T) / (n * mu)", "change * hidden_mu(1.0, c, T) / mu",
         "2 * change * hidden_mu(1.0, c, T) / (n * mu)", "hidden_mu(1.0, c, T) / (n * mu)",
         "change * mu / (n * hidden_mu(1.0, c, T))", "change * hidden_mu(1.0, c, T) * mu / n",
         "change / (n * mu)", "change * hidden_mu(1.0, c, T) / (n * mu) ** 2",
         "change * np.sqrt(hidden_mu(1.0, c, T)) / (n * mu)",
         "change / (n * mu) * np.sqrt((1 + c) / (1 - c + 1e-12))",
         "change * hidden_mu(1.0, c, T + 1) / (n * mu)"],
    ),
}  # fmt: skip
ARGUMENTS = {"remembered": "c", "shifts": "c, T", "noise": "n, change, c, T, mu"}
NAMES = {"np": np, "check": check, "hidden_mu": hidden_mu}


def check_cell(exercise):
    cells = re.findall(r"```\{code-cell\} ipython3\n---\n(.*?)\n---\n(.*?)```", CHAPTER, re.S)
    return next(code for header, code in cells if f"grade_id: {exercise}-check" in header)


@pytest.mark.parametrize(
    ("exercise", "wrong"), [(name, wrong) for name, (_, all_) in WRONG.items() for wrong in all_]
)
def test_a_wrong_answer_is_refused(exercise, wrong):
    function = WRONG[exercise][0]
    names = dict(NAMES)
    exec(f"{function} = lambda {ARGUMENTS[function]}: {wrong}", names)
    with pytest.raises(ExerciseFailed):
        exec(check_cell(exercise), names)
