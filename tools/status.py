"""Sphinx extension: the directive `build-status`, a table of what the build ran, compared and checked.

Times come from the cache of executed chapters, everything else from the kept notebooks and the sources.
"""

import json
import re
from importlib.metadata import version
from pathlib import Path

import nbformat
from docutils import nodes
from docutils.parsers.rst import Directive
from frame import BOOK, ROOT, chapters, kept_notebook
from guards import _asserts, _code, _parse, _printed
from size import parts

__all__ = ["counts", "fuzzed", "mutations", "register"]

MUTATIONS = ROOT / "tests" / "mutation" / "results.json"
FUZZ = ROOT / "tests" / "fuzz.json"
COLUMNS = ("Page", "Seconds", "Cells", "Compared", "With checks", "Figures", "Exercises")
PACKAGES = ("numpy", "scipy", "matplotlib", "torch", "dp-accounting", "opacus", "jupyter-book", "myst-nb", "nbval")


class build_status(nodes.General, nodes.Element):
    """Stands for the tables until every page is read."""


class BuildStatus(Directive):
    def run(self):
        return [build_status()]


def counts(chapter):
    """Cells, compared outputs, cells with assertions, figures and exercises of a chapter."""
    cells = [cell for _, cell in _code(nbformat.read(kept_notebook(chapter), as_version=4))]
    text = Path(chapter).read_text("utf-8")
    return (len(cells), sum(bool(_printed(cell).strip()) for cell in cells), sum(_asserts(_parse(cell)) for cell in cells),
            len(re.findall(r"^ *figure:(?: \{name:|$)|^`{3,}\{(?:figure|live)\}", text, re.MULTILINE)),
            len(re.findall(r"^`{3,}\{exercise(?:-start)?\}", text, re.MULTILINE)))


def seconds(app, docname):
    """How long the page's cells ran, or None."""
    data = getattr(app.env, "nb_metadata", {}).get(docname, {}).get("exec_data") or {}
    return data.get("runtime")


def table(head, rows):
    """A table with these cells; numbers stand at the right."""
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    for part, lines in ((nodes.thead(), [head]), (nodes.tbody(), rows)):
        for line in lines:
            row = nodes.row()
            for cell in line:
                row += nodes.entry("", cell if isinstance(cell, nodes.Node) else nodes.paragraph(text=str(cell)))
            part += row
        group += part
    return nodes.table("", group, classes=["colwidths-auto"])


def mutations():
    """Rows on the last run of tools/mutants.py: a module's mutants that were run, killed, equivalent, alive."""
    kept = json.loads(MUTATIONS.read_text("utf-8"))
    keys = ("mutants", "run", "killed", "equivalent", "survived")
    rows = [[name, *(counted[key] for key in keys)] for name, counted in kept["modules"].items()]
    return kept["date"], [*rows, ["All", *(kept["total"][key] for key in keys)]]


def fuzzed():
    """The date and a row for each target of the last run of tools/fuzz.py: inputs tried, how long, findings."""
    kept = json.loads(FUZZ.read_text("utf-8"))
    names = {"data": "Data files", "command": "Command lines"}
    return kept["date"], [[names[name], row["seconds"], row["inputs"], row["findings"]]
                          for name, row in kept["targets"].items()]


def fill(app, doctree, docname):
    """Put the tables in the directive's place."""
    for place in list(doctree.findall(build_status)):
        rows, total = [], [0.0, 0, 0, 0, 0, 0]
        for page in chapters():
            if not kept_notebook(page).exists():
                continue
            name = page.relative_to(ROOT).with_suffix("").as_posix()
            took, numbers = seconds(app, name), counts(page)
            link = nodes.reference("", app.env.titles[name].astext() if name in app.env.titles else page.stem,
                                   internal=True, refuri=app.builder.get_relative_uri(docname, name))
            rows.append([nodes.paragraph("", "", link), "" if took is None else f"{took:.1f}", *numbers])
            total = [a + b for a, b in zip(total, (took or 0.0, *numbers), strict=True)]
        rows.append(["All", f"{total[0]:.0f}", *total[1:]])
        versions = [["dpteach", app.config.version]] + [[name, version(name)] for name in PACKAGES]
        when, killed = mutations()
        fuzzing, tried = fuzzed()
        place.replace_self([
            table(COLUMNS, rows),
            table((f"Mutants, {when}", "Possible", "Run", "Killed", "Equivalent", "Alive"), killed),
            table((f"Fuzzing, {fuzzing}", "Seconds", "Inputs", "Findings"), tried),
            table(("Part of dpteach", "Modules", "Lines of code", "At most"),
                  [[name, ", ".join(modules), lines, limit] for name, modules, lines, limit in parts()]),
            table(("Package", "Version"), versions),
        ])


def renew(app, env):
    """The page is written again in every build that writes anything."""
    return [f"{BOOK.name}/status"] if f"{BOOK.name}/status" in env.found_docs else []


def register(app):
    app.add_node(build_status)
    app.add_directive("build-status", BuildStatus)
    app.connect("doctree-resolved", fill)
    app.connect("env-updated", renew)
