"""Build the book strictly: every warning is an error, and so is a cell that fails.

Plain `jupyter-book build .` builds the same pages and is as strict, but stops at the first mistake
and runs the chapters one after another. Sphinx doesn't repeat the warnings of pages that it doesn't
read again, so after a build that failed or was cut short, and with --fresh, every page is read anew
(chapters that ran aren't run again).
"""

import os
import shutil
import subprocess
import sys
import time

from frame import ROOT, chapters, environment, notebook_cache
from jupyter_cache import get_cache
from jupyter_cache.executors import load_executor

HTML = ROOT / "_build" / "html"
GOOD = ROOT / "_build" / "strict-build-passed"


def run_chapters():
    """Run the chapters that aren't in the cache yet, as many at a time as there are processors.

    The training chapters take longest: they're last in the book, and start first here. A chapter
    that fails isn't
    kept: the build runs it again and says what's wrong.
    """
    cache = get_cache(notebook_cache())
    for page in reversed(chapters()):
        cache.add_nb_to_project(str(page), read_data={"name": "myst_nb_md", "type": "plugin"})
    done = load_executor("local-parallel", cache).run_and_cache(timeout=900)
    if done.succeeded:
        print(f"{len(done.succeeded)} chapters ran", flush=True)


def build(fresh=False):
    """Build into _build/html; returns whether nothing at all was wrong."""
    if fresh or not GOOD.exists():
        shutil.rmtree(ROOT / "_build" / ".doctrees", ignore_errors=True)
    GOOD.unlink(missing_ok=True)
    run_chapters()
    start = "from jupyter_book.cli.main import main; main(prog_name='jupyter-book')"
    command = [sys.executable, "-c", start, "build", ".", "--path-output", ".", "-W",
               "--keep-going"]
    good = subprocess.run(command, cwd=ROOT).returncode == 0
    if good:
        for page in (HTML / "book").glob("*.html"):  # Sphinx leaves the pages whose source is gone
            if not (ROOT / "book" / page.with_suffix(".md").name).exists():
                page.unlink()
        GOOD.touch()
    return good


def main():
    started = time.monotonic()
    os.environ.update(environment())
    if not build("--fresh" in sys.argv):
        sys.exit("\nThe book was not built: see the warnings above.")
    print(f"\nBuilt in {time.monotonic() - started:.0f} s. Open this page in a browser:\n"
          f"  {(HTML / 'index.html').as_uri()}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Run it again to go on: chapters that ran aren't run again.")
