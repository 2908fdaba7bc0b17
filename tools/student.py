"""Student edition: the chapters as notebooks without solutions, in _build/student.

Solutions are cut the way nbgrader cuts them, between ### BEGIN SOLUTION and ### END SOLUTION, so
an instructor who uses nbgrader or Otter gets the same notebook from the chapter itself.

    python tools/student.py                      # all chapters
    python tools/student.py book/03-name.md      # one
"""

import re
import sys
from pathlib import Path

import nbformat
from frame import ROOT, chapters
from outputs import convert

TARGET = ROOT / "_build" / "student"
SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION\n.*?^[ \t]*### END SOLUTION[ \t]*$",
                      re.DOTALL | re.MULTILINE)
GATE = re.compile(r"^(`{3,}|:{3,})\{solution-(start|end)\}[^\n]*\n(?::[^\n]*\n)*\1[ \t]*$",
                  re.MULTILINE)
WHOLE = re.compile(r"^(`{3,}|:{3,})\{(?:solution\}|dropdown\}[^\n]*[Mm]arking).*?^\1[ \t]*$",
                   re.DOTALL | re.MULTILINE)


def strip_code(source):
    """Code with each solution replaced by nbgrader's stub."""
    return SOLUTION.sub(r"\1# YOUR CODE HERE\n\1raise NotImplementedError()", source)


def strip_text(cells):
    """Text cells without solutions and marking schemes, and without all text between the gates."""
    inside = False
    for cell in cells:
        if cell.cell_type != "markdown":
            continue
        kept, position = [], 0
        for gate in GATE.finditer(cell.source):
            if not inside:
                kept.append(cell.source[position:gate.start()])
            inside, position = gate.group(2) == "start", gate.end()
        if not inside:
            kept.append(cell.source[position:])
        cell.source = WHOLE.sub("", "".join(kept)).strip()


def student_notebook(chapter):
    """The chapter as a notebook without outputs or solutions."""
    notebook = convert(chapter)
    strip_text(notebook.cells)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = strip_code(cell.source)
            cell.metadata["tags"] = [t for t in cell.metadata.get("tags", []) if "hide" not in t]
    notebook.cells = [c for c in notebook.cells if c.cell_type == "code" or c.source]
    return notebook


def main(names):
    TARGET.mkdir(parents=True, exist_ok=True)
    for page in [Path(name) for name in names] or chapters():
        nbformat.write(student_notebook(page), TARGET / f"{page.stem}.ipynb")
        print(TARGET / f"{page.stem}.ipynb")


if __name__ == "__main__":
    main(sys.argv[1:])
