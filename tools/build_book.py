"""Build the book strictly: every warning is an error, and so is a cell that fails.

Plain `jupyter-book build .` builds the same pages without the strictness. Sphinx doesn't repeat
the warnings of pages that it doesn't read again, so after a build that failed or was cut short,
and with --fresh, every page is read anew (chapters that ran aren't run again).
"""

import argparse
import shutil
import subprocess
import sys
import time

from frame import ROOT, environment

INDEX = ROOT / "_build" / "html" / "index.html"
GOOD = ROOT / "_build" / "strict-build-passed"


def build(fresh=False):
    """Build into _build/html; returns whether nothing at all was wrong."""
    if fresh or not GOOD.exists():
        shutil.rmtree(ROOT / "_build" / ".doctrees", ignore_errors=True)
    GOOD.unlink(missing_ok=True)
    shutil.rmtree(ROOT / "_build" / "html" / "reports", ignore_errors=True)
    start = "from jupyter_book.cli.main import main; main(prog_name='jupyter-book')"
    command = [sys.executable, "-c", start, "build", ".", "--path-output", ".",
               "-n", "-W", "--keep-going"]
    good = subprocess.run(command, cwd=ROOT, env=environment()).returncode == 0
    if good:
        remove_orphans()
        GOOD.touch()
    return good


def remove_orphans():
    """Remove built pages whose source is gone, which Sphinx leaves lying about."""
    for page in (INDEX.parent / "book").glob("*.html"):
        if not (ROOT / "book" / page.with_suffix(".md").name).exists():
            page.unlink()


def show_reports():
    """Print what failing cells said: Sphinx only names the file that holds it."""
    for report in sorted((ROOT / "_build" / "html" / "reports").rglob("*.err.log")):
        print(f"\n--- {report.relative_to(ROOT)}\n{report.read_text()[-3000:]}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="show the built book in a browser")
    parser.add_argument("--fresh", action="store_true", help="read every page again")
    options = parser.parse_args()
    if options.serve:
        if not INDEX.exists() and not build():
            sys.exit(1)
        print("The book is at http://localhost:8000 (Ctrl-C stops)", flush=True)
        sys.exit(subprocess.run([sys.executable, "-m", "http.server", "8000", "--bind", "127.0.0.1",
                                 "--directory", str(INDEX.parent)]).returncode)
    started = time.monotonic()
    if not build(options.fresh):
        show_reports()
        sys.exit("\nThe book was not built: see the warnings above.")
    print(f"\nBuilt in {time.monotonic() - started:.0f} s. Open this page in a browser:\n"
          f"  {INDEX.as_uri()}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Run it again to go on: chapters that ran aren't run again.")
