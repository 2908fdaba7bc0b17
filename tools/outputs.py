"""Renew the kept notebooks: convert each chapter, run it, keep what its cells print.

A kept notebook is what `make test` compares a fresh run with. Images are dropped (they're never
compared); everything else stays as it was printed. Look at the difference in git before committing:
a number that changed is either a mistake or something to explain.

    python tools/outputs.py                      # all chapters
    python tools/outputs.py book/03-name.md      # one
    python tools/outputs.py --text [chapters]    # only text and captions changed: nothing is run
"""

import os
import sys
from pathlib import Path

import jupytext
import nbformat
from frame import BOOK, KEPT, chapters, environment, kept_notebook
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

IMAGES = ("image/svg+xml", "image/png", "image/jpeg", "text/html")


def convert(chapter):
    """The chapter as a notebook without outputs, with stable cell ids."""
    notebook = jupytext.read(chapter)
    for number, cell in enumerate(notebook.cells, 1):
        cell["id"] = f"cell-{number}"
        cell.metadata.pop("lines_to_next_cell", None)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def drop_images(notebook):
    """Remove pictures and times from the outputs, in place."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            for kind in IMAGES:
                output.get("data", {}).pop(kind, None)
                output.get("metadata", {}).pop(kind, None)


def run(chapter):
    """Run one chapter from top to bottom and write its kept notebook."""
    notebook = convert(chapter)
    NotebookClient(notebook, timeout=900, kernel_name="python3",
                   resources={"metadata": {"path": str(BOOK)}}).execute()
    drop_images(notebook)
    # not the version that happened to run it
    notebook.metadata["language_info"] = {"name": "python"}
    KEPT.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, kept_notebook(chapter))


def take_text(chapter):
    """Give a kept notebook the chapter's present text and metadata; False when its code differs."""
    fresh, kept = convert(chapter), nbformat.read(kept_notebook(chapter), as_version=4)
    code, old = [[c for c in nb.cells if c.cell_type == "code"] for nb in (fresh, kept)]
    if [c.source for c in code] != [c.source for c in old]:
        return False
    for cell, before in zip(code, old, strict=True):
        cell.outputs, cell.execution_count = before.outputs, before.execution_count
    nbformat.write(fresh, kept_notebook(chapter))
    return True


def main(names):
    os.environ.update(environment())
    text_only = "--text" in names
    names = [name for name in names if name != "--text"]
    pages = [Path(name).resolve() for name in names] or chapters()
    failed = 0
    for page in pages:
        print(f"{page.name} ...", end=" ", flush=True)
        if text_only:
            done = kept_notebook(page).exists() and take_text(page)
            print("kept" if done else "its code changed: run it, without --text")
            failed += not done
            continue
        try:
            run(page)
            print("kept")
        except CellExecutionError as error:
            failed += 1
            print(f"FAILED\n{error}")
    if not names:
        for orphan in set(KEPT.glob("*.ipynb")) - {kept_notebook(page) for page in pages}:
            orphan.unlink()
            print(f"{orphan.name} removed: it has no chapter")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(sys.argv[1:])
