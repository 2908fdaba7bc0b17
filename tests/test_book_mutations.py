"""The book's checks, checked: a constant, a formula, a kept output or a quoted number is changed in a copy of a page.

Each change must be refused: by the comparison of the kept notebook with a fresh run (nbval) where it's in a cell, by
the guards where it's between the chapter and its kept notebook. Changed cells run one after another in one notebook,
each with the outputs that the unchanged one has.
"""

import ast
import copy
import re
import subprocess
import sys

import guards
import nbformat
import nbformat.v4 as nb
import pytest
from frame import KEPT, ROOT, chapters, environment, kept_notebook
from mutants import changes
from outputs import convert

PAGE = "00-preface"  # its cells are quick, record numbers, and use formulas of their own
SILENT = {"* sigma**2 → * sigma**3", "* (1 - q) * sigma ** 2 → "}  # nothing to see: σ = 1 in that cell
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def cells_of(page):
    kept = nbformat.read(KEPT / f"{page}.ipynb", as_version=4)
    return [cell for cell in kept.cells if cell.cell_type == "code"]


def bump(number):
    return str(int(number) + 1) if number.isdigit() else f"{float(number) * 1.05:.12g}"


def changed_constants(source):
    """(what, source) with one number of the cell changed."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float | int) and not isinstance(node.value, bool):
            lines = source.splitlines(keepends=True)
            line = lines[node.lineno - 1].encode()
            text = line[node.col_offset : node.end_col_offset].decode()
            value = node.value
            new = repr(value * 1.05 if isinstance(value, float) else value + max(1, value // 10))
            around = line[max(0, node.col_offset - 9) : node.col_offset].decode()
            lines[node.lineno - 1] = (line[: node.col_offset] + new.encode() + line[node.end_col_offset :]).decode()
            yield f"{around}{text} → {around}{new}", "".join(lines)


def changed_formulas(source):
    """(what, source) with one operator of the cell changed, by the operators of tools/mutants.py."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for kind, new in changes(node) if isinstance(node, ast.BinOp) else ():
            if kind == "operator":
                before, after = ast.unparse(node), ast.unparse(new)
                whole = ast.unparse(tree)
                if whole.count(before) == 1:
                    yield f"{before} → {after}", whole.replace(before, f"({after})")


def changed_outputs(cell):
    """(what, cell) with one number that the cell printed, or that it keeps for the text, changed."""
    for number, output in enumerate(cell.outputs):
        printed = output.get("output_type") == "stream"
        text = output["text"] if printed else output["data"].get("application/papermill.record/text/plain", "")
        found = list(NUMBER.finditer("".join(text)))
        if found:
            at = found[-1]
            new = text[: at.start()] + bump(at[0]) + text[at.end() :]
            other = copy.deepcopy(cell)
            if printed:
                other.outputs[number]["text"] = new
            else:
                other.outputs[number]["data"]["application/papermill.record/text/plain"] = new
            yield f"output {text.strip()} → {new.strip()}", other


def changed_cells():
    """(what is changed, cell): the unchanged cells first."""
    for index in (0, 1):
        cell = cells_of(PAGE)[index]
        yield "", cell
        for what, source in [*changed_constants(cell.source), *changed_formulas(cell.source)]:
            other = copy.deepcopy(cell)
            other.source = source
            yield what, other
        yield from changed_outputs(cell)
        yield "", cell


CHANGED = list(changed_cells())


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Whether nbval accepts each changed cell."""
    folder = tmp_path_factory.mktemp("changed")
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [copy.deepcopy(cell) for _, cell in CHANGED]
    for number, cell in enumerate(cells):
        cell["id"], cell.execution_count = f"cell-{number}", 1
    book = nb.new_notebook(cells=cells, metadata=metadata)
    nbformat.write(book, folder / "changed.ipynb")
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {str(ROOT / 'tools')!r}\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "--nbval", "--nbval-current-env", "-p", "no:cacheprovider",
         "-n", "0", "--tb=no", "changed.ipynb"],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=600)  # fmt: skip
    passed = {int(n) for n in re.findall(r"^PASSED changed\.ipynb::.*?(\d+)$", run.stdout, re.MULTILINE)}
    failed = {int(n) for n in re.findall(r"^FAILED changed\.ipynb::.*?(\d+)\b", run.stdout, re.MULTILINE)}
    assert passed | failed == set(range(len(CHANGED))), run.stdout[-2000:] + run.stderr[-2000:]
    return [number in passed for number in range(len(CHANGED))]


def test_there_are_changes_of_each_kind():
    words = [what for what, _ in CHANGED if what]
    assert sum("output" in what for what in words) >= 8
    assert sum("output" not in what for what in words) >= 25


def test_an_unchanged_cell_passes(outcomes):
    assert all(good for good, (what, _) in zip(outcomes, CHANGED, strict=True) if not what)


def test_every_changed_cell_is_noticed(outcomes):
    unnoticed = {what for good, (what, _) in zip(outcomes, CHANGED, strict=True) if good and what}
    assert sorted(what for what in unnoticed if not any(part in what for part in SILENT)) == []


def _problems(page, change):
    """What the guards say of a page whose chapter (0) or kept notebook (1) is changed."""
    pair = [convert(page), nbformat.read(kept_notebook(page), as_version=4)]
    change(*pair)
    return guards.chapter_problems(*pair)


@pytest.mark.parametrize("page", chapters(), ids=lambda page: page.stem)
def test_a_page_that_is_not_its_kept_notebook_is_refused(page):
    assert _problems(page, lambda chapter, kept: None) == []

    def each_number(kind):
        """Change the middle number of the middle cell of a kind that has one, in the chapter alone."""
        def change(chapter, kept):
            cells = [cell for cell in chapter.cells if cell.cell_type == kind and NUMBER.search(cell.source)]
            cell = cells[len(cells) // 2]
            found = list(NUMBER.finditer(cell.source))
            at = found[len(found) // 2]
            cell.source = cell.source[: at.start()] + bump(at[0]) + cell.source[at.end() :]

        return change

    assert _problems(page, each_number("code")) and _problems(page, each_number("markdown"))


@pytest.mark.parametrize("page", chapters(), ids=lambda page: page.stem)
def test_each_quoted_number_hangs_on_its_cell(page):
    """A record that a cell no longer makes is missed by name, for every number that the page quotes."""
    kept = nbformat.read(kept_notebook(page), as_version=4)
    text = "\n".join(cell.source for cell in kept.cells if cell.cell_type == "markdown")
    names = {first or second for first, second in guards.GLUE.findall(text)}
    assert guards.unrecorded(kept) == []
    for name in names:
        other = copy.deepcopy(kept)
        for cell in other.cells:
            cell.outputs = [
                o for o in cell.get("outputs", []) if o.get("metadata", {}).get("scrapbook", {}).get("name") != name
            ]
        assert any(name in problem for problem in guards.unrecorded(other))
