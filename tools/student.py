"""Student edition: the chapters as notebooks without solutions, and a zip of them, in
_build/student.

Solutions are cut by nbgrader's own preprocessors, between ### BEGIN SOLUTION and ### END SOLUTION,
so an instructor who uses nbgrader or Otter gets the same notebook from the chapter itself.
Solutions in the text become cells of their own, with a tag, and nbconvert removes them. A text cell
with nbgrader's marks holds the solution of a proof: in its place stands an empty answer with the
same points, which a person grades.

    python tools/student.py                      # all chapters, and the zip
    python tools/student.py book/03-name.md      # one chapter
    python tools/student.py --try [chapters]     # run them too: as they are, and with the solutions
    put back
"""

import contextlib
import os
import re
import sys
import zipfile
from pathlib import Path

import nbformat
from frame import BOOK, ROOT, chapters, environment
from nbclient import NotebookClient
from nbconvert.preprocessors import TagRemovePreprocessor
from nbgrader.preprocessors import ClearOutput, ClearSolutions, ComputeChecksums, LockCells
from outputs import convert
from plain import plain_cells

__all__ = ["strip_code", "student_notebook", "try_out"]

TARGET = ROOT / "_build" / "student"
SECRET = "solution-text"
ANSWER = "YOUR ANSWER HERE"
GATE = re.compile(r"^(`{3,}|:{3,})\{solution-(start|end)\}[^\n]*\n(?::[^\n]*\n)*\1[ \t]*$",
                  re.MULTILINE)
WHOLE = re.compile(r"^(`{3,}|:{3,})\{(?:solution\}|dropdown\}[^\n]*(?:[Mm]arking|Answers)).*?^\1[ "
                   r"\t]*$",
                   re.DOTALL | re.MULTILINE)
PACKAGES = ("numpy", "scipy", "matplotlib", "torch", "dp-accounting", "opacus", "mpmath",
            "ipykernel")
README = """# The Privacy of Noisy SGD: student edition

The chapters as notebooks, with the solutions left out.

    python -m venv .venv
    .venv/bin/python -m pip install -r requirements.txt
    .venv/bin/jupyter lab notebooks

(On Windows: `.venv\\Scripts\\python` and `.venv\\Scripts\\jupyter`.) Open a chapter and run it from
the top. Where an exercise waits for you, a cell says `YOUR CODE HERE`; the cell below it runs your
function on many inputs and says what's wrong, or that nothing is written yet. "Run all" goes past
those cells. Proofs are written where it says
`YOUR ANSWER HERE`, and a person grades them. Don't change the locked cells.

The folder `dpteach` is the package that the chapters use. Licences: `LICENSE` (code),
`LICENSE-text` (text),
`dpteach/training/data/MNIST-LICENSE.md` (images).
"""


def pieces(source, inside):
    """((text, whether it's a solution) of each piece of a text cell, and whether its end lies
    between the gates)."""
    found, position = [], 0
    for gate in GATE.finditer(source):
        found.append((source[position:gate.start()], inside))
        inside, position = gate.group(2) == "start", gate.end()
    found.append((source[position:], inside))
    split = []
    for text, secret in found:
        position = 0
        for whole in () if secret else WHOLE.finditer(text):
            split += [(text[position:whole.start()], False), (whole.group(), True)]
            position = whole.end()
        split.append((text[position:], secret))
    return split, inside


def mark_text(notebook):
    """Cut text cells where solutions begin and end, and tag the solutions, in place."""
    cells, inside = [], False
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            cells.append(cell)
            continue
        # a proof: the student's answer takes its place
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cells.append(nbformat.v4.new_markdown_cell(ANSWER, id=cell["id"],
                                                       metadata=cell.metadata))
            continue
        parts, inside = pieces(cell.source, inside)
        for number, (text, secret) in enumerate(parts):
            piece = nbformat.v4.new_markdown_cell(text.strip(), id=f"{cell['id']}-{number}")
            piece.metadata["tags"] = [SECRET] if secret else []
            cells.append(piece)
    notebook.cells = cells


class ClearCode(ClearSolutions):
    """nbgrader's preprocessor for code cells alone: the preface speaks of its marks."""

    def preprocess_cell(self, cell, resources, cell_index):
        if cell.cell_type != "code":
            return cell, resources
        return super().preprocess_cell(cell, resources, cell_index)


def cut(notebook):
    """The notebook after nbconvert's and nbgrader's preprocessors."""
    steps = [TagRemovePreprocessor(remove_cell_tags={SECRET}), ClearCode(), ClearOutput(),
             LockCells(),
             ComputeChecksums()]
    for step in steps:
        notebook, _ = step.preprocess(notebook, {})
    return notebook


def strip_code(source):
    """Code with each solution replaced by nbgrader's stub."""
    data = {"solution": True, "grade": False, "locked": False, "grade_id": "x", "schema_version": 3,
            "task": False}
    cell = nbformat.v4.new_code_cell(source, metadata={"nbgrader": data})
    return cut(nbformat.v4.new_notebook(cells=[cell])).cells[0].source


def student_notebook(chapter):
    """The chapter as a notebook without outputs or solutions; cells that check exercises may
    fail."""
    notebook = convert(chapter)
    mark_text(notebook)
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        role = cell.metadata.get("nbgrader", {})
        tags = [tag for tag in cell.metadata.get("tags", [])
                if not role.get("solution") or "hide" not in tag]
        cell.metadata["tags"] = tags + ["raises-exception"] * bool(role.get("grade"))
    notebook = cut(notebook)
    plain_cells(notebook, chapter)
    return notebook


def try_out(chapter, solve=False):
    """Run a student's notebook from start to end; (check cells that failed politely, those that
    passed).

    With `solve` the chapter's solutions are put back first. Anything but ExerciseFailed in a check
    cell, and any error in another cell, stops it.
    """
    notebook = student_notebook(chapter)
    if solve:
        code = [cell.source for cell in convert(chapter).cells
                if cell.cell_type == "code" and SECRET not in cell.metadata.get("tags", [])]
        own = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for cell, source in zip(own, code, strict=True):
            cell.source = source
    NotebookClient(notebook, timeout=900, kernel_name="python3",
                   resources={"metadata": {"path": str(BOOK)}}).execute()
    failed = passed = 0
    for cell in notebook.cells:
        if cell.cell_type != "code" or not cell.metadata.get("nbgrader", {}).get("grade"):
            continue
        errors = [output for output in cell.outputs if output.output_type == "error"]
        if any(e.ename != "ExerciseFailed" or len(e.traceback) != 1 or "\n" in e.evalue.strip()
               for e in errors):
            raise AssertionError(f"{chapter.name}: {errors[0].ename}: {errors[0].evalue}")
        failed, passed = failed + bool(errors), passed + (not errors)
    return failed, passed


def requirements():
    """What a student installs: our pins of what the chapters import, JupyterLab, and dpteach in
    this folder."""
    pins = [line.split("#")[0].strip() for name in ("requirements.txt", "constraints.txt")
            for line in (ROOT / name).read_text("utf-8").splitlines()]
    wanted = [pin for pin in dict.fromkeys(pins)
              if pin.split("==")[0].lower() in (*PACKAGES, "jupyterlab")]
    return "\n".join([*wanted, "."]) + "\n"


def pack(names):
    """Zip the notebooks with the package, what to install, and a README; returns the zip's path."""
    path = TARGET / "noisy-sgd-student.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.write(TARGET / name, f"noisy-sgd/notebooks/{name}")
        for file in sorted((ROOT / "dpteach").rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, f"noisy-sgd/{file.relative_to(ROOT)}")
        for file in ("pyproject.toml", "LICENSE", "LICENSE-text", "CITATION.cff"):
            archive.write(ROOT / file, f"noisy-sgd/{file}")
        archive.writestr("noisy-sgd/README.md", README)
        archive.writestr("noisy-sgd/requirements.txt", requirements())
    return path


def main(names):
    os.environ.update(environment())
    trial = "--try" in names
    pages = [Path(name).resolve() for name in names if name != "--try"] or chapters()
    TARGET.mkdir(parents=True, exist_ok=True)
    for page in pages:
        nbformat.write(student_notebook(page), TARGET / f"{page.stem}.ipynb")
        print(TARGET / f"{page.stem}.ipynb", flush=True)
        if trial:
            with contextlib.suppress(KeyError):
                del os.environ["MPLBACKEND"]
            print("  with stubs: {} fail politely, {} pass;".format(*try_out(page)), end=" ",
                  flush=True)
            print("with solutions: {} fail, {} pass".format(*try_out(page, solve=True)), flush=True)
    if len(pages) == len(chapters()):
        print(pack([f"{page.stem}.ipynb" for page in pages]))


if __name__ == "__main__":
    main(sys.argv[1:])
