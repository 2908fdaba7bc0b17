"""Sphinx extension: from a theorem to its code.

The role `source` shows a name of the package and leads to its lines: {source}`dpteach.limits.subsampled_clt_mu`.
"""

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

__all__ = ["register"]

logger = logging.getLogger(__name__)


class source_link(nodes.Element):
    """Stands for a link to a function's source until every page is read."""


class Source(SphinxRole):
    """A name of the package, such as dpteach.limits.subsampled_clt_mu."""

    def run(self):
        return [source_link(name=self.text, docname=self.env.docname, line=self.lineno)], []


def link(app, docname, name, place):
    """`module.name`, linked to its source on web pages."""
    entry = app.env.domains["py"].objects.get(name)
    if entry is None:
        logger.warning("no %s on the package's page", name, location=place, type="ref")
        return nodes.literal(text=name)
    module = max((m for m in app.env.domains["py"].modules if name.startswith(f"{m}.")), key=len)
    shown = nodes.literal(text=name.removeprefix("dpteach."))
    if app.builder.format != "html" or app.builder.name == "epub":
        return shown
    uri = app.builder.get_relative_uri(docname, "_modules/" + module.replace(".", "/"))
    return nodes.reference("", "", shown, internal=True, refuri=f"{uri}#{name.removeprefix(module + '.')}")


def fill(app, doctree, docname):
    for place in list(doctree.findall(source_link)):
        place.replace_self(link(app, docname, place["name"], (docname, place["line"])))


def register(app):
    app.add_node(source_link)
    app.add_role("source", Source())
    app.connect("doctree-resolved", fill)
