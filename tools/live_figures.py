"""Sphinx extension: the directive `live`, a figure with sliders over a static picture.

    ```{live} tradeoff
    :name: fig-12-explorer
    :alt: What the static picture shows.
    Caption.
    ```

puts book/_static/live/tradeoff.svg into the page, numbered like any figure. On HTML pages its
scripts then replace the picture; without scripting, in print and in other formats, the picture
stands. A page without a live figure loads none of the scripts.
"""

from docutils import nodes
from sphinx.directives.patches import Figure
from sphinx.errors import ExtensionError

NAMES = ("front", "tradeoff", "loss", "moments", "clipping", "correlated", "hidden")
HINT = "<noscript><p><em>With scripting on, this figure has sliders.</em></p></noscript>"


class live_figure(nodes.General, nodes.Element):
    """Holds a figure; `figure` is its name."""


class Live(Figure):
    """The directive: a figure whose picture follows from its name, and whose alternative text isn't
    optional."""

    def run(self):
        name = self.arguments[0]
        if name not in NAMES:
            raise self.error(f"no live figure is called {name!r}: choose one of {', '.join(NAMES)}")
        if len(self.options.get("alt", "")) < 30:
            raise self.error("a live figure needs :alt:, a description of its static picture")
        self.arguments[0] = f"/book/_static/live/{name}.svg"
        return [live_figure("", *super().run(), figure=name)]


def visit(self, node):
    self.body.append(f'<div class="live" data-live="{node["figure"]}">')


def depart(self, node):
    self.body.append(HINT + "</div>\n")


def nothing(self, node):
    """Other formats show the figure inside, and no more."""


def add_scripts(app, page, template, context, doctree):
    """Load the scripts and the style of the live figures on the pages that have one."""
    if doctree is None or app.builder.name not in ("html", "dirhtml"):
        return
    used = {node["figure"] for node in doctree.findall(live_figure)}
    if not used:
        return
    for name in ("maths", "power", "grid", "draw", *(name for name in NAMES if name in used)):
        if not any((folder / "live" / f"{name}.js").is_file() for folder in static_folders(app)):
            raise ExtensionError(f"live/{name}.js isn't there: `make live` writes the grid and the "
                                 f"pictures")
        app.add_js_file(f"live/{name}.js", loading_method="defer")
    app.add_css_file("live/live.css")


def static_folders(app):
    return [app.srcdir / folder for folder in app.config.html_static_path]


def setup(app):
    app.add_node(live_figure, html=(visit, depart), latex=(nothing, nothing),
                 text=(nothing, nothing),
                 man=(nothing, nothing), texinfo=(nothing, nothing))
    app.add_directive("live", Live)
    app.connect("html-page-context", add_scripts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
