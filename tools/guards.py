"""Guards: what the comparison of notebooks (nbval) would let pass without a word.

Each guard takes chapters or notebooks and returns a list of problems in plain words, empty when all
is well. tests/test_frame_guards.py runs them on the book, and on made-up bad input that each must
refuse.
"""

import ast
import re
import sys

import nbformat
import yaml
from frame import BOOK, KEPT, ROOT, chapters, kept_notebook
from outputs import convert

__all__ = ["book_problems", "budget", "chapter_problems", "compared", "kind"]

# The kinds of cells, each by the tags that its header carries.
KINDS = {"lesson": {"lesson"}, "figure": {"figure", "hide-input"}, "check": {"check", "hide-cell"},
         "keep": {"keep", "remove-cell"}}
LINES, WIDTH = 15, 78  # of a lesson cell: lines that aren't blank, characters of a line
# visible code of all chapters; code and output among a page's words
CODE_LINES, CODE_SHARE = 2000, 0.20
CHECKED = "Checked: "
# Chapters whose cells don't have a kind yet.
UNCONVERTED: set[str] = set()

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


def kind(cell):
    """'lesson', 'figure', 'check' or 'keep' by a cell's tags, 'exercise' by its metadata, else
    None."""
    if "nbgrader" in cell.metadata or "solution-text" in _tags(cell):
        return "exercise"
    tags = _tags(cell) - {"nbval-ignore-output"}
    return next((name for name, wanted in KINDS.items() if tags == wanted), None)


def _printed(cell):
    """The text that a cell printed or returned, pictures' names left out."""
    texts = ["".join(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
             for output in cell.get("outputs", [])]
    return "".join(text for text in texts if not text.startswith("<Figure "))


def unkind(kept):
    """Cells of no kind, and cells that aren't what their kind promises."""
    problems = []
    for label, cell in _code(kept):
        tree, told = ast.Module(_parse(cell), []), kind(cell)
        names = [getattr(node.func, "id", "") for node in ast.walk(tree)
                 if isinstance(node, ast.Call)]
        lines = [line for line in cell.source.splitlines() if line.strip()]
        found = []
        if told is None:
            found.append("needs one kind: "
                         + "; ".join(", ".join(sorted(t)) for t in KINDS.values()))
        elif told not in ("keep", "exercise") and "record" in names:
            found.append("records a number: only a keep cell does, since its output isn't shown")
        if told == "lesson":
            if any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
                found.append("a lesson asserts nothing: move it to a check cell")
            if len(lines) > LINES or max(map(len, lines), default=0) > WIDTH:
                found.append(f"a lesson has at most {LINES} lines of {WIDTH} characters")
        if told == "check":
            shown = cell.metadata.get("mystnb", {}).get("code_prompt_show", "")
            last = (_printed(cell).strip().splitlines() or [""])[-1]
            if not shown.startswith(CHECKED) or shown != CHECKED + last:
                found.append(f"its line {shown!r} must be {CHECKED + last!r}, after what it "
                             f"printed last")
            if not _asserts(tree.body):
                found.append("a check asserts something")
        problems += [f"{label}: {problem}" for problem in found]
    return problems


def budget(kept):
    """(visible lines of code, words of visible code and output, all words) of a chapter's page."""
    lines = code = 0
    for _, cell in _code(kept):
        if kind(cell) in ("lesson", None):
            lines += sum(bool(line.strip()) for line in cell.source.splitlines())
            code += len(cell.source.split())
        if kind(cell) in ("lesson", "figure", None):
            code += len(_printed(cell).split())
    return lines, code, code + sum(len(c.source.split()) for c in kept.cells
                                   if c.cell_type == "markdown")


def over_budget(budgets):
    """Pages with more code and output among their words than may be, or all of them with too much
    code."""
    problems = [f"{name}: {code / words:.0%} of its words are code and output, at most "
                f"{CODE_SHARE:.0%}"
                for name, (_, code, words) in budgets.items() if code > CODE_SHARE * words]
    total = sum(lines for lines, _, _ in budgets.values())
    return problems + [f"{total} lines of visible code, at most {CODE_LINES}"] * (total
                                                                                  > CODE_LINES)


def compared(kept):
    """(cells, numbers in their output) that a run of the notebook is compared with."""
    texts = [_printed(cell) for _, cell in _code(kept) if "nbval-ignore-output" not in _tags(cell)]
    return (sum(bool(text.strip()) for text in texts),
            sum(len(re.findall(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?", text)) for text in texts))


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


def uncompared(kept):
    """Working cells that nothing checks: no assertion, and no text that nbval compares."""
    problems = []
    for label, cell in _code(kept):
        body = _parse(cell)
        if all(map(_is_definition, body)) or _asserts(body):
            continue
        if not _printed(cell).strip():
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
    names = [cell.metadata.get("mystnb", {}).get("figure", {}).get("name")
             for _, cell in _code(notebook)]
    names += re.findall(r"\{(?:figure|live)\}[^`]*?^:name: *(\S+)", text, re.MULTILINE)
    asked = {outer or inner for outer, inner in NUMREF.findall(text)}
    return [f"no {{numref}} refers to the figure {name}" for name in names
            if name and name not in asked]


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


def unanswered(notebook):
    """Exercises without code (proofs) that have no answer cell with points, and no section that
    they train."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    source = "\n".join(cell.source for cell in cells)
    answers = {role.get("grade_id"): role for cell in cells
               if (role := cell.metadata.get("nbgrader"))}
    problems = []
    task = re.compile(r"^`{3,}\{exercise(?:-start)?\}.*\n:label: "
                      r"(\S+)((?:\n(?!`{3,}\{solution).*)*)", re.MULTILINE)
    for label, text in task.findall(source):
        if "*Practises: " not in text:
            problems.append(f"{label}: doesn't say which section it practises")
    for label in re.findall(r"^`{3,}\{exercise\}.*\n:label: (\S+)", source, re.MULTILINE):
        role = answers.get(label, {})
        if not (role.get("grade") and role.get("solution") and role.get("points", 0) > 0):
            problems.append(f"{label}: a proof needs an answer cell: a text cell with nbgrader's "
                            f"marks and points")
    return problems


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
    for page, kept in kept_notebooks():
        found = chapter_problems(convert(page), kept)
        if page.stem not in UNCONVERTED:
            found += unkind(kept) + unanswered(kept)
        problems += [f"{page.name}: {problem}" for problem in found]
    return problems + over_budget({page.stem: budget(kept) for page, kept in kept_notebooks()
                                   if page.stem not in UNCONVERTED})


def kept_notebooks():
    """(chapter, its kept notebook) of each chapter that has one."""
    return [(page, nbformat.read(kept_notebook(page), as_version=4)) for page in chapters()
            if kept_notebook(page).exists()]


def report():
    """A table: what is visible of each chapter's code, and what of it is compared."""
    print("chapter                  lines of code  share of words  compared: cells, numbers")
    rows = [(page.stem, *budget(kept), *compared(kept)) for page, kept in kept_notebooks()]
    total = map(sum, zip(*(row[1:] for row in rows), strict=True))
    for name, lines, code, words, cells, numbers in [*rows, ("all", *total)]:
        print(f"{name:28}{lines:10}{code / words:16.0%}{cells:12}{numbers:12}")


if __name__ == "__main__":
    if "--budget" in sys.argv:
        raise SystemExit(report())
    found = book_problems()
    print("\n".join(found) or "All guards pass.")
    raise SystemExit(bool(found))
