"""Build the book strictly: every warning is an error, and so is a cell that fails.

Plain `jupyter-book build .` builds the same pages without the strictness.
"""

import argparse
import shutil
import subprocess
import sys
import time

from frame import ROOT, environment

INDEX = ROOT / "_build" / "html" / "index.html"


def build(quiet=False):
    """Build into _build/html; returns the exit code."""
    start = "from jupyter_book.cli.main import main; main(prog_name='jupyter-book')"
    command = [sys.executable, "-c", start, "build", ".", "--path-output", ".",
               "-n", "-W", "--keep-going"] + (["-q"] if quiet else [])
    return subprocess.run(command, cwd=ROOT, env=environment()).returncode


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
    if parser.parse_args().serve:
        if not INDEX.exists() and build():
            sys.exit(1)
        print("The book is at http://localhost:8000 (Ctrl-C stops)")
        sys.exit(subprocess.run([sys.executable, "-m", "http.server", "8000", "--bind", "127.0.0.1",
                                 "--directory", str(INDEX.parent)]).returncode)
    started = time.monotonic()
    shutil.rmtree(ROOT / "_build" / "html" / "reports", ignore_errors=True)
    if build():
        show_reports()
        sys.exit("\nThe book was not built: see the warnings above.")
    remove_orphans()
    print(f"\nBuilt in {time.monotonic() - started:.0f} s. Open this page in a browser:\n"
          f"  {INDEX.as_uri()}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Run it again to go on: chapters that ran aren't run again.")
