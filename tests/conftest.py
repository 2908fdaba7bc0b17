"""What all tests share: the environment that cells run in, and what nbval leaves out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from frame import ROOT, environment

os.environ.update(environment())

# Pictures aren't kept in the notebooks (nbval itself leaves out PNG, but not SVG).
NOT_COMPARED = ("image/svg+xml", "image/png", "image/jpeg", "text/html")


def pytest_collection_modifyitems(items):
    for item in items:
        parent = item.parent
        if hasattr(parent, "skip_compare") and "image/svg+xml" not in parent.skip_compare:
            parent.skip_compare = (*parent.skip_compare, *NOT_COMPARED)


@pytest.fixture(scope="session")
def built_book(testrun_uid):
    """The folder of the built book, built at most once in a run, however many workers ask for it.

    After `make test`'s own build there's nothing left to do. DPTEACH_HTML names pages built
    elsewhere.
    """
    if os.environ.get("DPTEACH_HTML"):
        return Path(os.environ["DPTEACH_HTML"]).resolve()
    built = ROOT / "_build" / "built-for-tests"
    with FileLock(ROOT / ".cache" / "build.lock"):
        if not built.exists() or built.read_text() != testrun_uid:
            run = subprocess.run([sys.executable, "tools/build_book.py"], cwd=ROOT,
                                 capture_output=True, text=True)
            assert run.returncode == 0, run.stdout + run.stderr
            built.write_text(testrun_uid)
    return ROOT / "_build" / "html"
