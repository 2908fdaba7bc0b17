"""Wrong solutions that an exercise's check must refuse, written as data.

A test file names, for each exercise of a chapter, what is wrong and how the book's solution becomes
that: texts of it and what stands in their place, or the whole code.

    test_chapter_4 = tries("04-lemma-3", {"ex-04-1": {"rounded up": ("np.floor", "np.ceil"), ...}})

The code runs where the student's would, after the chapter's cells and in place of the solution.
"""

import pytest
from frame import chapters
from outputs import convert
from test_exercises import answer_cell, run_cell, run_check

from dpteach.classroom.exercises import ExerciseFailed

LEAST = 10  # wrong solutions for each exercise


def check_cells(page):
    """Exercises of a chapter, each with the index of its check cell among the code cells."""
    cells = [cell.metadata.get("nbgrader", {}) for cell in convert(page).cells
             if cell.cell_type == "code"]
    return {role["grade_id"].removesuffix("-check"): i for i, role in enumerate(cells)
            if role.get("grade")}


def spoilt(source, slip):
    """The solution with a slip: pairs of a text and its replacement, or other code altogether."""
    if isinstance(slip, str):
        return slip
    for right, wrong in zip(slip[::2], slip[1::2], strict=True):
        assert right in source, f"the solution has no {right}"
        source = source.replace(right, wrong)
    return source


def tries(stem, wrong):
    """A test for each wrong solution of a chapter. All its exercises must have enough of them."""
    page = next(page for page in chapters() if page.stem == stem)
    cells = check_cells(page)
    few = [name for name in cells if len(wrong.get(name, {})) < LEAST]
    assert not few, f"{stem}: fewer than {LEAST} wrong solutions for {few}"
    rows = [pytest.param(cells[name], slip, id=f"{name}: {what}")
            for name, slips in wrong.items() for what, slip in slips.items()]

    @pytest.mark.parametrize("index, slip", rows)
    def test_refused(index, slip):
        source = spoilt(answer_cell(page, index).source, slip)
        with pytest.raises(ExerciseFailed):
            run_check(page, index, lambda space: run_cell(source, f"<{stem}, wrong>", space))

    return test_refused
