"""What all tests share: the environment that cells run in, and what nbval leaves out."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock
from frame import BOOK, ROOT, environment, notebook_cache
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbval.plugin import IPyNbCell

os.environ.update(environment())

# Pictures aren't kept in the notebooks (nbval itself leaves out PNG, but not SVG).
NOT_COMPARED = ("image/svg+xml", "image/png", "image/jpeg", "text/html")


def pytest_collection_modifyitems(items):
    for item in items:
        parent = item.parent
        if hasattr(parent, "skip_compare") and "image/svg+xml" not in parent.skip_compare:
            parent.skip_compare = (*parent.skip_compare, *NOT_COMPARED)


BEGAN, RAN = pytest.StashKey[float](), pytest.StashKey[list]()


def pytest_runtest_setup(item):
    if isinstance(item, IPyNbCell):
        item.parent.stash.setdefault(BEGAN, time.monotonic())


def pytest_runtest_teardown(item, nextitem):
    """After a notebook's last cell the build gets what nbval saw: no chapter needs to run twice."""
    if not isinstance(item, IPyNbCell):
        return
    notebook = item.parent
    ran = notebook.stash.setdefault(RAN, [])
    ran.append(item)
    cells = [cell for cell in notebook.nb.cells if cell.cell_type == "code"]
    if len(ran) == len(cells) and all(map(ran_to_its_end, ran)):
        for number, item in enumerate(ran, 1):
            item.cell.update(outputs=item.test_outputs, execution_count=number)
        notebook.nb.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
        page = BOOK / notebook.path.with_suffix(".md").name
        seconds = time.monotonic() - notebook.stash[BEGAN]
        bundle = CacheBundleIn(notebook.nb, str(page), data={"execution_seconds": seconds})
        with FileLock(ROOT / ".cache" / "notebooks.lock"):
            get_cache(notebook_cache()).cache_notebook_bundle(bundle, overwrite=True)


def ran_to_its_end(item):
    outputs = item.test_outputs
    return outputs is not None and all(out.output_type != "error" for out in outputs)


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
