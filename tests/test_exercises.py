"""The exercises' checks: what they say to a student, and that the book's own exercises work."""

import ast
import contextlib
import functools
import io
import linecache
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from frame import chapters
from outputs import convert
from student import strip_code, student_notebook

from dpteach.classroom.exercises import ExerciseFailed, check

INPUTS = [(0.01, 4.0), (0.02, 3.0), (0.5, 1.0), (0.9, 0.7)]


def reference(q, sigma):
    return q * q / sigma


def message(student, **options):
    options = {"like": reference, "on": INPUTS} | options
    with pytest.raises(ExerciseFailed) as caught:
        check(student, **options)
    return str(caught.value)


def rate(q, sigma):
    return q * q / sigma


def test_a_right_answer_prints_one_stable_line(capsys):
    check(rate, like=reference, on=INPUTS)
    assert capsys.readouterr().out == "rate: right on all 4 inputs.\n"


@pytest.mark.parametrize("student, said", [
    (lambda q, sigma: -q * q / sigma, "the sign is wrong"),
    (lambda q, sigma: 2 * q * q / sigma, "the same factor"),
    (lambda q, sigma: q * q / sigma + 1, "the same amount"),
    (lambda q, sigma: q * q / sigma if q < 0.1 else q, "right on the first 2 inputs only"),
    (lambda q, sigma: q / sigma, "wrong on every input"),
    (lambda q, sigma: q * q / sigma if q != 0.5 else 7.0, "right on 3 of 4 inputs"),
    (lambda q, sigma: float("nan"), "NaN"),
    (lambda q, sigma: float("inf"), "gave inf"),
    (lambda q, sigma: 1 / 0, "ZeroDivisionError"),
    (lambda q, sigma: str(q), "a number, not a str"),
    (lambda q, sigma: True, "a number, not a bool"),
    (lambda q, sigma: np.array([q, q]), "shape"),
    (lambda q, sigma: [q * q / sigma], "shape"),
    (lambda q: q, "TypeError"),
])
def test_what_is_wrong_is_said(student, said):
    text = message(student, name="rate")
    assert said in text and "rate(0.01, 4.0)" in text or "rate(0.5, 1.0)" in text and said in text


def test_who_is_right_somewhere_is_not_told_that_all_is_wrong():
    """One step too many on one input in six looks like the same factor, 1, on each."""
    def steps(n):
        return 10**12 * n + (n == 7)

    text = message(steps, like=lambda n: 10**12 * n, on=[2, 3, 5, 7, 11, 13], rtol=0)
    assert "right on 5 of 6 inputs" in text and "every" not in text
    text = message(lambda n: 2 * n, like=lambda n: n, on=[0, 2, 3])  # 0 is right by chance
    assert "the same factor" in text


def test_the_first_wrong_input_is_named():
    text = message(lambda q, sigma: q * q / sigma if q != 0.9 else 1.0, name="rate")
    assert "at input 4 of 4: rate(0.9, 0.7) gave 1.0" in text


@pytest.mark.parametrize("factor", [-1, 2, 0.3])
def test_the_answer_is_never_printed(factor):
    text = message(lambda q, sigma: factor * q * q / sigma, name="f")
    for args in INPUTS:
        assert f"{reference(*args):.3g}" not in text.replace("f(", "").replace("-", "~")


def stub(q, sigma):
    raise NotImplementedError()


@pytest.mark.parametrize("student", [stub, lambda q, sigma: ...])
def test_a_stub_is_told_politely(student):
    assert "not written yet" in message(student)


def test_a_missing_return_is_told_politely():
    assert "return missing" in message(lambda q, sigma: None)


def test_a_failure_shows_its_message_alone():
    failure = ExerciseFailed("f: wrong.")
    assert failure._render_traceback_() == ["f: wrong."] and isinstance(failure, AssertionError)


def test_hints_follow_the_kind_of_mistake():
    hints = {"sign": "Which way round is the ratio?", "value": "Draw it."}
    assert "Which way" in message(lambda q, sigma: -q * q / sigma, hints=hints)
    assert "Draw it" in message(lambda q, sigma: q, hints=hints)
    assert "Draw it" in message(lambda q, sigma: 2 * q * q / sigma, hints=hints)


def test_a_well_known_slip_is_recognised():
    slips = {"Is sigma squared?": lambda q, sigma: q * q / sigma**2}
    assert "Is sigma squared?" in message(lambda q, sigma: q * q / sigma**2, mistakes=slips)
    assert "Is sigma squared?" not in message(lambda q, sigma: q, mistakes=slips)


def test_properties_can_stand_alone():
    properties = {"is at most 1": lambda result, q, sigma: result <= 1}
    check(lambda q, sigma: 0.5, on=INPUTS, properties=properties)
    text = message(lambda q, sigma: 2 * q, like=None, properties=properties, name="f")
    assert "the result is at most 1: not so" in text and "f(0.9, 0.7) gave 1.8" in text


def test_a_student_cannot_change_the_inputs():
    def greedy(values):
        values.sort()
        return values[-1]

    given = [np.array([3.0, 1.0, 2.0])]
    check(greedy, like=max, on=given)
    assert list(given[0]) == [3.0, 1.0, 2.0]


def test_tolerances_are_kept():
    nearly = {"like": lambda x: x, "on": [1.0, 2.0], "name": "f"}
    check(lambda x: x * (1 + 1e-7), rtol=1e-6, **nearly)
    with pytest.raises(ExerciseFailed):
        check(lambda x: x * (1 + 1e-5), rtol=1e-6, **nearly)
    with pytest.raises(ExerciseFailed):
        check(lambda x: x + 1e-3 * (x == 2), rtol=0, atol=1e-4, **nearly)


def test_arrays_tuples_and_words_are_compared(capsys):
    check(lambda x: np.array([x, x * x]), like=lambda x: np.array([x, x**2]), on=[1.0, 2.0])
    check(lambda x: (x, x), like=lambda x: (x, x), on=[1.0])
    check(lambda x: "upper bound", like=lambda x: "upper bound", on=[1.0, 2.0])
    check(lambda x: x > 1, like=lambda x: x > 1, on=[1.0, 2.0])
    with pytest.raises(ExerciseFailed):
        check(lambda x: "exact", like=lambda x: "upper bound", on=[1.0])
    with pytest.raises(ExerciseFailed):
        check(lambda x: x >= 1, like=lambda x: x > 1, on=[1.0, 2.0])
    with pytest.raises(ExerciseFailed):
        check(lambda x: np.array([x, x]), like=lambda x: np.array([x, x**2]), on=[1.0, 2.0])


def test_expected_values_and_named_arguments(capsys):
    check(rate, expected=[0.01, 0.04], on=[{"q": 0.1, "sigma": 1.0}, {"q": 0.2, "sigma": 1.0}])
    text = message(lambda q, sigma: q, like=None, expected=[5.0], name="f",
                   on=[{"q": 0.1, "sigma": 1.0}])
    assert "f(q=0.1, sigma=1.0) gave 0.1" in text


def test_a_value_can_be_checked(capsys):
    check(1.2586, expected=1.25861, rtol=1e-4, name="epsilon")
    assert capsys.readouterr().out == "epsilon: right.\n"
    for value, said in [(-1.2586, "sign"), (2.0, "wrong"), (..., "not written yet"),
                        (None, "not written yet"), ("1.26", "not a str"), (float("nan"), "NaN")]:
        with pytest.raises(ExerciseFailed, match=said):
            check(value, expected=1.25861, rtol=1e-4, name="epsilon")


@pytest.mark.parametrize("options", [
    {"on": []}, {"on": None}, {"like": None}, {"expected": [1, 2, 3, 4]},
    {"like": None, "expected": [1]},
])
def test_a_check_that_checks_nothing_is_refused(options):
    with pytest.raises(ValueError):
        check(rate, **{"like": reference, "on": INPUTS} | options)


# --- The book's own exercises -----------------------------------------------------------------

def bound(tree):
    """Names that a cell binds at its top level, and inside."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
    return names


def defined(tree):
    """Names that a cell binds at its top level: not the local variables of its functions."""
    own = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    functions = {node.name for node in tree.body
                 if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return functions | bound(ast.Module(own, []))


def run_cell(source, name, space):
    """Run a cell whose functions keep their source, as they do in a notebook."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, name, "exec"), space)


def used(tree):
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def needed(trees, last):
    """Indices of the cells that cell `last` needs, itself included: a slice back through names."""
    wanted, keep = used(trees[last]), [last]
    for index in reversed(range(last)):
        if bound(trees[index]) & wanted:
            wanted |= used(trees[index])
            keep.insert(0, index)
    return keep


def exercises():
    """(chapter, index of the check cell among the code cells) of every exercise in the book."""
    found = []
    for page in chapters():
        cells = [c for c in convert(page).cells if c.cell_type == "code"]
        found += [pytest.param(page, i, id=f"{page.stem}-{c.metadata['nbgrader']['grade_id']}")
                  for i, c in enumerate(cells) if c.metadata.get("nbgrader", {}).get("grade")]
    return found


@functools.cache
def solved(page):
    """Code cells of a chapter, and the namespace after those that its checks need, checks left out.

    Figures and demonstrations that no check needs aren't run: nbval runs them.
    """
    cells = [cell for cell in convert(page).cells if cell.cell_type == "code"]
    trees = [ast.parse(cell.source) for cell in cells]
    checks = [i for i, cell in enumerate(cells) if cell.metadata.get("nbgrader", {}).get("grade")]
    space = {"__name__": "chapter"}
    for i in sorted({i for check_cell in checks for i in needed(trees, check_cell)}):
        if i not in checks or bound(trees[i]):
            run_cell(cells[i].source, f"<{page.stem}, cell {i}>", space)
    plt.close("all")
    return cells, space


def run_check(page, index, change=None):
    """Run a check cell after the solved cells, with a change to the namespace."""
    cells, space = solved(page)
    space = dict(space)
    if change:
        change(space)
    run_cell(cells[index].source, f"<{page.stem}, check {index}>", space)


def answer_cell(page, index):
    """The solution cell of a check cell."""
    cells, _ = solved(page)
    name = cells[index].metadata["nbgrader"]["grade_id"].removesuffix("-check")
    return next(c for c in cells if c.metadata.get("nbgrader", {}).get("grade_id") == name)


@pytest.mark.parametrize("page, index", exercises())
def test_an_exercise_without_its_solution_fails_politely(page, index):
    stub_source = strip_code(answer_cell(page, index).source)
    assert "NotImplementedError" in stub_source and "SOLUTION" not in stub_source
    with pytest.raises(ExerciseFailed, match="not written yet"):
        run_check(page, index,
                  lambda space: run_cell(stub_source, f"<{page.stem}, stub {index}>", space))


def disturbed(value):
    """A wrong value of the same kind."""
    if isinstance(value, (bool, np.bool_)):
        return not value
    if isinstance(value, (tuple, list)):
        return type(value)(disturbed(part) for part in value)
    if isinstance(value, dict):
        return {key: disturbed(part) for key, part in value.items()}
    if isinstance(value, str):
        return value + "!"
    return value * 1.5 + 0.25


def disturb(names):
    """Replace the named functions of a namespace by ones with wrong results."""
    def change(space):
        for name in names:
            if callable(right := space.get(name)):
                space[name] = lambda *a, right=right, **k: disturbed(right(*a, **k))
            elif name in space:
                space[name] = disturbed(right)
    return change


@pytest.mark.parametrize("page, index", exercises())
def test_an_exercise_refuses_a_wrong_solution(page, index):
    check_source = solved(page)[0][index].source
    names = defined(ast.parse(answer_cell(page, index).source)) & used(ast.parse(check_source))
    run_check(page, index)
    with pytest.raises(ExerciseFailed):
        run_check(page, index, disturb(names))


def test_solutions_are_cut_as_nbgrader_cuts_them():
    source = "def f(x):\n    y = 1\n    ### BEGIN SOLUTION\n    return x\n    ### END SOLUTION\n"
    assert strip_code(source) == (
        "def f(x):\n    y = 1\n    # YOUR CODE HERE\n    raise NotImplementedError()\n")


def test_the_student_edition_has_no_solutions_in_its_text(tmp_path):
    page = tmp_path / "03-a.md"
    page.write_text(
        "---\njupytext:\n  text_representation: {extension: .md, format_name: myst}\n"
        "kernelspec: {display_name: Python 3, language: python, name: python3}\n---\n# A\n\n"
        "Before.\n\n````{solution} ex-1\nSECRET one\n```python\nx\n```\n````\n\n"
        "```{solution-start} ex-2\n:class: dropdown\n```\nSECRET two\n\n"
        "```{code-cell} ipython3\n---\nnbgrader: {solution: true, grade_id: ex-2}\n"
        "tags: [hide-input]\n---\n"
        "### BEGIN SOLUTION\nf = 'SECRET'\n### END SOLUTION\n```\n\nSECRET three\n"
        "```{solution-end}\n```\nAfter.\n\n:::{dropdown} Marking scheme\nSECRET four\n:::\nEnd.\n")
    cells = student_notebook(page).cells
    text = "\n".join(cell.source for cell in cells)
    assert "SECRET" not in text and "SOLUTION" not in text
    assert all(word in text for word in ("Before.", "After.", "End.", "YOUR CODE HERE"))
    assert all("hide-input" not in cell.metadata.get("tags", []) for cell in cells)


def test_every_exercise_is_tried_against_wrong_solutions():
    files = Path(__file__).parent.glob("test_exercises_*.py")
    tried = "\n".join(path.read_text("utf-8") for path in files)
    ids = {param.id.split("-ex-", 1)[1].removesuffix("-check") for param in exercises()}
    assert ids and {name for name in ids if f'"ex-{name}"' not in tried} == set()
