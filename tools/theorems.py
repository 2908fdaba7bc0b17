"""Sphinx extension: from a theorem to its code, and to the test that would fail if it were wrong.

- The package's page has a section for each module: "% modules: dpteach" stands for those of a
folder.
- The role `source` shows a name of the package and leads to its lines:
{source}`dpteach.limits.subsampled_clt_mu`. In
  a theorem's box {py:func}`…` does the same.
- The directive `theorem-table` lists every theorem box with the functions that it names so, and the
tests that carry
  its mark, @pytest.mark.theorem("thm-12-2"). Test files that the table names become pages.
"""

import ast
import re

from docutils import nodes
from docutils.statemachine import StringList
from frame import ROOT
from plain import THEOREMS, blocks, options, toc_pages
from sphinx import addnodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

__all__ = ["boxes", "marks", "register"]

NAMED = re.compile(r"\{(?:source|py:\w+)\}`~?(dpteach[\w.]+)`")
logger = logging.getLogger(__name__)


class code_link(nodes.Element):
    """Stands for a link to lines of code until every page is read."""


class CodeRole(SphinxRole):
    """dpteach.limits.subsampled_clt_mu, or test_limits.py::test_mu."""

    def run(self):
        return [code_link(code=self.text, line=self.lineno)], []


def boxes():
    """(label, title, names of its functions) of each theorem, lemma, proposition and corollary, in
    the book's order."""
    for page in toc_pages():
        for kind, title, body in blocks(page.read_text("utf-8")):
            if kind and kind.removeprefix("prf:") in THEOREMS[:4]:
                given, body = options(body)
                yield given.get("label"), title, NAMED.findall(body)


def marks():
    """The tests that carry the mark of each theorem: label to [(file, function, line)]."""
    found = {}
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for mark in getattr(node, "decorator_list", ()):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.theorem":
                    for label in mark.args:
                        found.setdefault(label.value,
                                         []).append((path.name, node.name, node.lineno))
    return found


def modules(package):
    """Names of a package's modules, in the order of the chapters that their docstrings name."""
    def chapter(path):
        found = re.search(r"chapters? (\d+)", ast.get_docstring(ast.parse(path.read_text("utf-8"))))
        return int(found.group(1)) if found else 0

    folder = ROOT / package.replace(".", "/")
    return [f"{package}.{path.stem}"
            for path in sorted(folder.glob("[!_]*.py"), key=lambda p: (chapter(p), p.stem))]


def list_modules(app, docname, source):
    def sections(found):
        return "\n".join(f"### `{name}`\n\n```{{eval-rst}}\n.. automodule:: {name}\n   "
                         f":members:\n```\n"
                         for name in modules(found.group(1)))

    source[0] = re.sub(r"^% modules: (\S+)$", sections, source[0], flags=re.MULTILINE)


def keep_ideas(app, env):
    """The index is one of ideas: the package's names have their own page, and the search."""
    env.domains["index"].entries["book/api"] = []
    return []


def lead_to_lines(app, doctree):
    """A function that a theorem's box names leads to its lines, not to its docstring."""
    for box in doctree.findall(lambda node: isinstance(node, nodes.Element)
                               and "proof" in node.get("classes", ())):
        for ref in list(box.findall(addnodes.pending_xref)):
            if ref["refdomain"] == "py":
                ref.replace_self(code_link(code=ref["reftarget"], line=ref.line))


class TheoremTable(SphinxDirective):
    def run(self):
        tests, lines = marks(), ["| Result | Here | Function | Test |", "|---|---|---|---|"]
        for label, title, functions in boxes():
            cells = [title.replace("|", r"\|"), f"{{prf:ref}}`{label}`",
                     ", ".join(f"{{source}}`{name}`" for name in functions),
                     ", ".join(f"{{test}}`{file}::{name}`" for file, name,
                               _ in tests.get(label, []))]
            lines.append(f"| {' | '.join(cells)} |")
        self.env.note_reread()
        node = nodes.container()
        self.state.nested_parse(StringList(lines, "theorems"), 0, node)
        return node.children


def target(app, code):
    """(page, anchor) of a test's or a function's lines; None where there's no such thing."""
    if "::" in code:
        file, name = code.split("::")
        line = next(line for tests in marks().values() for *test, line in tests
                    if test == [file, name])
        return f"_tests/{file.removesuffix('.py')}", f"line-{line}"
    python = app.env.domains["py"]
    if code not in python.objects:
        return None
    inside = f"{code}."  # of its module, which may be the name itself
    module = max((module for module in python.modules if inside.startswith(f"{module}.")), key=len)
    return "_modules/" + module.replace(".", "/"), code.removeprefix(module).removeprefix(".")


def link(app, doctree, docname):
    """Put the links in the roles' places; outside of web pages they're names."""
    for place in list(doctree.findall(code_link)):
        found = target(app, place["code"])
        shown = nodes.literal(text=place["code"].removeprefix("dpteach."))
        if not found:
            logger.warning("the package's page has no %s", place["code"],
                           location=(docname, place["line"]))
        elif app.builder.name == "html":
            uri = app.builder.get_relative_uri(docname, found[0])
            uri = f"{uri}#{found[1]}".removesuffix("#")  # a module has no lines of its own
            shown = nodes.reference("", "", shown, internal=True, refuri=uri)
        place.replace_self(shown)


def test_pages(app):
    """A page for each test file that carries a mark."""
    for name in sorted({file for tests in marks().values() for file, _, _ in tests}):
        source = (ROOT / "tests" / name).read_text("utf-8")
        body = app.builder.highlighter.highlight_block(source, "python", lineanchors="line")
        context = {"title": name, "body": f"<h1>{name}</h1>\n{body}"}
        yield f"_tests/{name.removesuffix('.py')}", context, "page.html"


def register(app):
    app.add_node(code_link)
    app.add_role("source", CodeRole())
    app.add_role("test", CodeRole())
    app.add_directive("theorem-table", TheoremTable)
    app.connect("source-read", list_modules)
    app.connect("doctree-read", lead_to_lines)
    app.connect("env-updated", keep_ideas)
    app.connect("doctree-resolved", link)
    app.connect("html-collect-pages", test_pages)
