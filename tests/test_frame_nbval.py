"""The comparison of notebooks compares: a changed number or a new warning fails, not a picture.

Small notebooks are run by nbval with this project's settings. What nbval lets pass without a word
is shown too: that's why the guards exist.
"""

import shutil
import subprocess
import sys

import guards
import nbformat.v4 as nb
import pytest
from frame import ROOT, environment

FIGURE = ("from dpteach import plotting\nfig, ax = figures.figure('x', 'y')\nax.plot([1, 2])\n"
          "assert ax.lines")


def cell(source, text="", count=1, data=None):
    outputs = [nb.new_output("stream", name="stdout", text=text)] if text else []
    if data:
        outputs.append(nb.new_output("display_data", data=data))
    return nb.new_code_cell(source, execution_count=count, outputs=outputs)


SHOWN = {"text/plain": "<Figure size 540x350 with 1 Axes>"}
CASES = {
    "right": (cell("print(1.259)", "1.259\n"), True),
    "another number": (cell("print(1.260)", "1.259\n"), False),
    "another warning": (cell("import sys\nprint(1)\nprint('w', file=sys.stderr)", "1\n"), False),
    "an error": (cell("1 / 0"), False),
    "an assertion": (cell("assert 1 == 2"), False),
    "more output": (cell("print(1)\nprint(2)", "1\n"), False),
    "less output": (cell("print(1)", "1\n2\n"), False),
    "a picture": (cell(FIGURE, data=SHOWN), True),
    "no picture": (cell("x = 1", data=SHOWN), False),
    "a record": (cell("from dpteach.classroom.recorded import record\nrecord('a', 1.5)", "a = 1.5\n",
                      data={"application/papermill.record/text/plain": "1.5"}), True),
    "another record": (cell("from dpteach.classroom.recorded import record\nrecord('a', 1.6)", "a = 1.5\n",
                            data={"application/papermill.record/text/plain": "1.5"}), False),
    "not run, so not compared": (cell("print(1.260)", count=None), True),
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Names of the cases whose notebook passes."""
    folder = tmp_path_factory.mktemp("notebooks")
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    for number, (case, _) in enumerate(CASES.values()):
        notebook = nb.new_notebook(cells=[case], metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}})
        (folder / f"case{number}.ipynb").write_text(nb.writes(notebook))
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {str(ROOT / 'tools')!r}\n")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "--nbval", "--nbval-current-env",
         "-p", "no:cacheprovider", "-n", "0", "."],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=300)
    lines = [line for line in result.stdout.splitlines() if line.startswith("PASSED")]
    assert lines, result.stdout + result.stderr
    return {name for number, name in enumerate(CASES)
            if any(f"case{number}.ipynb" in line for line in lines)}


@pytest.mark.parametrize("name", CASES)
def test_what_the_comparison_notices(outcome, name):
    assert (name in outcome) == CASES[name][1]


def test_what_it_lets_pass_a_guard_refuses():
    assert guards.unrun(nb.new_notebook(cells=[CASES["not run, so not compared"][0]]))
