"""Sphinx extension of the book.

- A change in dpteach, or a new version of a library, runs the chapters again.
- Every warning is an error.
- Figures, theorems, exercises and equations are numbered within their chapter: Lemma 12.2.
- Folded cells say what they hold: the code of a figure, what was checked.
- No page asks for anything outside the book.
- The book's own script, and two small repairs of what a screen reader is told.
- Each chapter can be downloaded as a notebook that Jupyter shows and runs as it is.
- In the EPUB formulas are MathML, and nothing needs a script.

myst-nb's cache looks at a chapter's cells only, so cells that call a changed dpteach would keep
their old results. Here the cache's folder carries a hash of dpteach's files. The folder is a
configuration value, so that Sphinx also reads every page again when it changes.
"""

import ast
import hashlib
import os
import re
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

from docutils import nodes
from sphinx.domains.index import IndexDirective
from sphinx.environment.collectors.toctree import TocTreeCollector
from sphinx_codeautolink.extension.block import CodeBlockAnalyser
from sphinx_codeautolink.extension.directive import PrefaceMarker

sys.path.insert(0, str(Path(__file__).resolve().parent))
from frame import ROOT, chapters, environment, notebook_cache
from mathml import register as register_mathml
from outputs import convert
from plain import write_downloads
from theorems import register as register_theorems

_assign_figure_numbers = TocTreeCollector.assign_figure_numbers
KEEP = 3  # older versions' caches are removed


def set_cache(app, config):
    """Point the execution cache at this version of everything and drop the oldest caches."""
    folder = notebook_cache()
    folder.touch()
    for old in sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)
    config.nb_execution_cache_path = str(folder)


def set_theme(app, config):
    """No second search button above the page; repository buttons once the address is set."""
    config.version = version("dpteach")
    config.html_math_renderer = "mathjax"  # with two renderers Sphinx would take the EPUB's
    options = config.html_theme_options
    options["navbar_persistent"] = []
    known = bool(options.get("repository_url"))
    options["use_repository_button"] = options["use_issues_button"] = known
    config.templates_path.append("book/_templates")


def be_strict(app):
    """A warning fails a plain `jupyter-book build .` as well; with --keep-going Sphinx goes on and
    fails at the end."""
    app.warningiserror = app.builder.name == "html" and not app.keep_going


def drop_thebe(app):
    """Disconnect Thebe, which Jupyter Book loads even when it's off: its script names a server."""
    for listeners in app.events.listeners.values():
        listeners[:] = [x for x in listeners if not x.handler.__module__.startswith("sphinx_thebe")]
    styles = app.registry.css_files  # its stylesheet would be asked for, and isn't copied any more
    styles[:] = [entry for entry in styles if "thebe" not in entry[0]]


def add_script(app):
    """The book's script, on web pages only."""
    if app.builder.name == "html":
        app.add_js_file("book.js")


FORMULA = re.compile(r"(\(?)(<span class=\"math notranslate "
                     r"nohighlight\">[^<]*</span>)((?:[.,;:?!)’]|'s\b)*)")


def keep_punctuation(app, page, template, context, doctree):
    """A bracket before a formula in a line, and what punctuation follows it, stay on the formula's
    line."""
    def glued(found):
        return f'<span class="glued">{found[0]}</span>' if found[1] or found[3] else found[0]

    if app.builder.name == "html" and "body" in context:
        context["body"] = FORMULA.sub(glued, context["body"])


def name_by_text(app, page, template, context, doctree):
    """A hidden cell's handle is read out as what it shows ("Show code cell source"), not as
    something else.

    And a reference is an entry of a list: the role that docutils gives it is withdrawn from the
    standard.
    """
    better = {'<summary aria-label="Toggle hidden content">': "<summary>",
              "doc-biblioentry": "listitem"}
    for said, instead in better.items() if "body" in context else ():
        context["body"] = context["body"].replace(said, instead)
    # boxes of theorems and exercises all have the same id, and nothing refers to it
    if "body" in context:
        context["body"] = re.sub(r' id="(?:proof|\w+-content)"', "", context["body"])


def tell_imports(app, doctree):
    """Names in cells become links; what the cells that leave the page import is told to the
    extension that does it."""
    if ROOT / f"{app.env.docname}.md" in chapters():
        cells = convert(ROOT / f"{app.env.docname}.md").cells
        kept = [line for cell in cells if "remove-cell" in cell.metadata.get("tags", [])
                for node in ast.parse(cell.source).body
                if isinstance(node, ast.Import | ast.ImportFrom)
                for line in ast.unparse(node).splitlines()]
        if kept:
            doctree.insert(0, PrefaceMarker("\n".join(kept), "file"))


class Entry(IndexDirective):
    """An entry of the index is its whole line: no comma splits it, and an article at its start is
    left out."""

    def run(self):
        lines = [re.sub(r"^(?:An?|The) (\w)", lambda found: found[1].upper(), line)
                 for line in self.arguments[0].splitlines()]
        self.arguments = ["\n".join(line if re.match(r"\w+:", line) else f"single: {line}"
                                    for line in lines)]
        return super().run()


def only_titled(visit):
    """codeautolink counts sections by their titles; boxes of theorems hold sections without one."""
    def visited(self, node):
        if any(isinstance(child, nodes.title) for child in node.children):
            visit(self, node)
    return visited


FOLDED = {"figure": "Code of this figure", "exercise": "The check of this exercise"}


def fold(app, doctree):
    """What a folded cell's line says, open or not; the check of an exercise is folded as well."""
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") != "cell_code":
            continue
        tags = cell["cell_metadata"].get("tags", [])
        if cell["cell_metadata"].get("nbgrader", {}).get("grade"):
            cell["hide_mode"], tags = "all", ["exercise"]
            cell["classes"].append("tag_exercise")
        for tag in {"figure", "check", "exercise"} & set(tags):
            cell["prompt_show"] = cell["prompt_hide"] = FOLDED.get(tag) or cell["prompt_show"]


def drop_launch(app):
    """The EPUB has no place for launch buttons, and the theme that would make them isn't there."""
    if app.builder.name == "epub":
        listeners = app.events.listeners["html-page-context"]
        listeners[:] = [x for x in listeners
                        if not x.handler.__module__.endswith("header_buttons.launch")]


def escape_bars(app, what, name, obj, options, lines):
    """Absolute values in docstrings, |x|, mean substitutions to Sphinx: escape the bars."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = line.split("``")
            parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
            lines[i] = "``".join(parts)


def chapter_numbers(assign):
    """Wrap Sphinx's numbering of figures and the like: the first part is the chapter's own number.

    That number stands in the file's name. Sphinx would count the pages instead, and a chapter added
    in the middle would change every number after it.
    """
    def numbered(self, env):
        counted = env.toc_secnumbers
        names = {doc: re.match(r"(\d+)-", Path(doc).name) for doc in env.found_docs}
        env.toc_secnumbers = {doc: {"": (int(found.group(1)),)}
                              for doc, found in names.items() if found}
        try:
            return assign(self, env)
        finally:
            env.toc_secnumbers = counted
    return numbered


def drop_scripts(app, doctree, docname):
    """In the EPUB: no raw HTML that holds a script. Readers don't run it, and it needn't be
    well-formed."""
    if app.builder.name == "epub":
        for node in list(doctree.findall(nodes.raw)):
            if "<script" in node.astext():
                node.parent.remove(node)


def offer_notebook(app, pagename, templatename, context, doctree):
    """A chapter's download button offers its notebook too; the theme builds the link from this
    name."""
    if app.builder.name == "html" and ROOT / f"{pagename}.md" in chapters():
        context["ipynb_source"] = f"{pagename}.ipynb"


def write_notebooks(app, exception):
    if app.builder.name == "html" and not exception:
        write_downloads(Path(app.outdir) / "_sources")


def setup(app):
    os.environ.update(environment())
    written = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    app.add_config_value("book_extension", written, "html")  # a change here writes every page again
    register_mathml(app)
    register_theorems(app)
    drop_thebe(app)
    TocTreeCollector.assign_figure_numbers = chapter_numbers(_assign_figure_numbers)
    app.connect("config-inited", set_cache)
    app.connect("config-inited", set_theme)
    app.connect("builder-inited", drop_launch)
    app.connect("builder-inited", be_strict)
    app.connect("html-page-context", offer_notebook, priority=100)
    app.connect("build-finished", write_notebooks)
    for method in ("visit_section", "depart_section"):
        setattr(CodeBlockAnalyser, method, only_titled(getattr(CodeBlockAnalyser, method)))
    app.add_directive("index", Entry, override=True)
    app.connect("doctree-read", fold)
    app.connect("doctree-read", tell_imports, priority=400)
    app.connect("doctree-resolved", drop_scripts)
    app.connect("builder-inited", add_script)
    app.connect("html-page-context", name_by_text)
    app.connect("html-page-context", keep_punctuation)
    app.connect("autodoc-process-docstring", escape_bars)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
