"""Guards: what the comparison of notebooks (nbval) would let pass without a word.

Each guard takes chapters or notebooks and returns a list of problems in plain words, empty when all
is well. tests/test_frame_guards.py runs them on the book, and on made-up bad input that each must refuse.
"""

import ast
import re

import nbformat
import yaml
from frame import BOOK, KEPT, ROOT, chapters, kept_notebook
from outputs import convert

__all__ = ["book_problems", "chapter_problems"]

GLUE = re.compile(r"\{glue(?::\w+)?\}`([^`:]+)(?::[^`]*)?`|```+\{glue(?::\w+)?\} *([^\s`]+)")
NUMREF = re.compile(r"\{numref\}`(?:([^`<>]+)|[^`<]*<([^`>]+)>)`")
RECORDED = re.compile(r"^(\S+) = ", re.MULTILINE)
MARKERS = re.compile(r"#\s*(NBVAL_\w+|PYTEST_VALIDATE_IGNORE_OUTPUT)", re.IGNORECASE)
SILENT_TAGS = {"nbval-skip", "skip-execution", "raises-exception", "nbval-raises-exception",
               "nbval-check-output"}
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


def _code(notebook):
    """(label, cell) of each code cell; the label says which cell is meant."""
    number = 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            number += 1
            first = (cell.source.strip().splitlines() or ["(empty)"])[0]
            yield f"code cell {number} ({first[:50]})", cell


def _tags(cell):
    return set(cell.metadata.get("tags", []))


def unrun(kept):
    """Cells without an execution count: nbval never compares them."""
    return [f"{label}: execution_count is null" for label, cell in _code(kept)
            if cell.get("execution_count") is None]


def unpaired(chapter, kept):
    """Cells of a chapter and its kept notebook that differ in kind, source or metadata."""
    def essence(cell):
        metadata = {k: v for k, v in cell.metadata.items() if k != "execution"}
        return cell.cell_type, cell.source, metadata

    ours, theirs = [[essence(c) for c in nb.cells] for nb in (chapter, kept)]
    if len(ours) != len(theirs):
        return [f"the chapter has {len(ours)} cells, its kept notebook {len(theirs)}"]
    return [f"cell {i} differs between the chapter and its kept notebook"
            for i, (a, b) in enumerate(zip(ours, theirs, strict=True), 1) if a != b]


def trailing_semicolons(notebook):
    """Cells that end in a semicolon: they hide the output that should be compared."""
    return [f"{label}: ends in a semicolon" for label, cell in _code(notebook)
            if cell.source.rstrip().endswith(";")]


def _is_definition(statement):
    """Whether a statement only imports, defines, or names literal parameters."""
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Pass)):
        return True
    value = getattr(statement, "value", None)
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)) and value is not None:
        try:
            ast.literal_eval(value)
            return True
        except ValueError:
            return False
    return False


def _asserts(statements):
    """Whether running the statements runs an assertion (one inside a def doesn't count)."""
    for node in statements:
        if isinstance(node, ast.Assert):
            if not isinstance(node.test, ast.Constant):
                return True
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name.startswith("assert_") or name == "check":
                return True
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Assert, ast.Expr)):
            if any(_asserts(getattr(node, part, [])) for part in ("body", "orelse", "finalbody")):
                return True
    return False


def _parse(cell):
    try:
        return ast.parse(cell.source).body
    except SyntaxError:  # a magic command: certainly work, certainly no assertion
        return [ast.Raise()]


def _compared_text(cell):
    """Whether nbval compares some text of this cell: not a picture's name, not a hidden glue."""
    for output in cell.get("outputs", []):
        text = output.get("text", "") or output.get("data", {}).get("text/plain", "")
        text = "".join(text).strip()
        if text and not text.startswith("<Figure "):
            return True
    return False


def uncompared(kept):
    """Working cells that nothing checks: no assertion, and no text that nbval compares."""
    problems = []
    for label, cell in _code(kept):
        body = _parse(cell)
        if all(map(_is_definition, body)) or _asserts(body):
            continue
        if not _compared_text(cell):
            problems.append(f"{label}: neither a compared text output nor an assertion")
        elif "nbval-ignore-output" in _tags(cell):
            problems.append(f"{label}: its output is ignored, so it needs an assertion")
    return problems


def silenced(notebook):
    """Tags and comments that make nbval skip a cell, or expect an error."""
    problems = [f"{label}: tag {tag} hides it from the comparison"
                for label, cell in _code(notebook) for tag in sorted(SILENT_TAGS & _tags(cell))]
    return problems + [f"{label}: comment {found.group(1)} hides it from the comparison"
                       for label, cell in _code(notebook)
                       if (found := MARKERS.search(cell.source))]


def unstable(kept):
    """Outputs that can't be the same twice: memory addresses."""
    return [f"{label}: prints a memory address; end the cell in another statement"
            for label, cell in _code(kept)
            if re.search(r"\bat 0x[0-9a-f]{6,}", str(cell.get("outputs", "")))]


def undescribed(kept):
    """Figure cells without a name, a caption or an alternative text."""
    problems = []
    for label, cell in _code(kept):
        outputs = str([o.get("data", {}) for o in cell.get("outputs", [])])
        if "<Figure " not in outputs and "image/" not in outputs:
            continue
        mystnb = cell.metadata.get("mystnb", {})
        figure, alt = mystnb.get("figure", {}), mystnb.get("image", {}).get("alt", "")
        problems += [f"{label}: a figure without {what}" for what, there in [
            ("a name", figure.get("name")), ("a caption", figure.get("caption")),
            ("an alternative text of at least 30 characters", len(alt.strip()) >= 30)] if not there]
    return problems


def unreferred(notebook):
    """Figures, of a cell or typed, that the text never refers to by their number."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    names = [cell.metadata.get("mystnb", {}).get("figure", {}).get("name") for _, cell in _code(notebook)]
    names += re.findall(r"\{(?:figure|live)\}[^`]*?^:name: *(\S+)", text, re.MULTILINE)
    asked = {outer or inner for outer, inner in NUMREF.findall(text)}
    return [f"no {{numref}} refers to the figure {name}" for name in names if name and name not in asked]


def unrecorded(kept):
    """Numbers that the text asks for and no cell records, and names recorded twice."""
    printed = [name for _, cell in _code(kept) for output in cell.get("outputs", [])
               if output.get("name") == "stdout"
               for name in RECORDED.findall("".join(output.text))]
    glued = [output.metadata["scrapbook"]["name"] for _, cell in _code(kept)
             for output in cell.get("outputs", []) if "scrapbook" in output.get("metadata", {})]
    text = "\n".join(c.source for c in kept.cells if c.cell_type == "markdown")
    asked = {first or second for first, second in GLUE.findall(text)}
    return ([f"the text quotes {name}, which no cell records" for name in sorted(asked)
             if name not in glued or name not in printed]
            + [f"{name} is recorded twice" for name in sorted({n for n in glued
                                                               if glued.count(n) > 1})])


def unchecked_exercises(notebook):
    """Solution cells without nbgrader's marks, or without a check cell after them."""
    problems, waiting, seen = [], {}, set()
    for label, cell in _code(notebook):
        grader = cell.metadata.get("nbgrader", {})
        marks = cell.source.count(BEGIN), cell.source.count(END)
        name = grader.get("grade_id", "")
        if name in seen:
            problems.append(f"{label}: grade_id {name} is used twice")
        seen |= {name} - {""}
        if grader.get("solution"):
            if marks[0] != marks[1] or not marks[0]:
                problems.append(f"{label}: a solution needs {BEGIN} and {END}")
            waiting[name] = label
        elif marks != (0, 0):
            problems.append(f"{label}: solution marks outside a solution cell")
        if grader.get("grade"):
            answered = name.removesuffix("-check")
            if not waiting.pop(answered, None):
                problems.append(f"{label}: no solution cell {answered} before this check")
            if not (grader.get("locked") and "check(" in cell.source):
                problems.append(f"{label}: must be locked and call check()")
    return problems + [f"{label}: no check cell {name}-check" for name, label in waiting.items()]


def chapter_problems(chapter, kept):
    """Every problem of one chapter, given as a fresh notebook, and of its kept notebook."""
    return [problem for found in (
        unpaired(chapter, kept), unrun(kept), trailing_semicolons(chapter), silenced(chapter),
        uncompared(kept), unstable(kept), undescribed(kept), unreferred(chapter), unrecorded(kept),
        unchecked_exercises(chapter)) for problem in found]


def toc_problems(toc, pages):
    """Pages missing from the table of contents, or listed there and missing."""
    listed = [toc["root"]] + [entry["file"] for part in toc.get("parts", [])
                              for entry in part["chapters"]]
    return ([f"{page} isn't in _toc.yml" for page in sorted(set(pages) - set(listed))]
            + [f"{page} is in _toc.yml but doesn't exist" for page in listed if page not in pages])


def pairing_problems(chapter_files, kept_files):
    """Chapters with code that have no kept notebook, and kept notebooks without a chapter."""
    ours = {kept_notebook(chapter).name for chapter in chapter_files}
    theirs = {path.name for path in kept_files}
    return ([f"{name} is missing: run make outputs" for name in sorted(ours - theirs)]
            + [f"{name} has no chapter: remove it" for name in sorted(theirs - ours)])


def book_problems():
    """Every problem of the book as it stands, each line with its file."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    pages = [page.relative_to(ROOT).with_suffix("").as_posix() for page in BOOK.rglob("*.md")
             if "_static" not in page.parts]
    problems = toc_problems(toc, pages) + pairing_problems(chapters(), KEPT.glob("*.ipynb"))
    for page in chapters():
        kept = kept_notebook(page)
        if kept.exists():
            notebook = nbformat.read(kept, as_version=4)
            problems += [f"{page.name}: {p}" for p in chapter_problems(convert(page), notebook)]
    return problems


if __name__ == "__main__":
    found = book_problems()
    print("\n".join(found) or "All guards pass.")
    raise SystemExit(bool(found))
