"""Sphinx extension of the book: a change in dpteach runs the chapters again, no page asks outside.

myst-nb's cache looks at a chapter's cells only, so cells that call a changed dpteach would keep
their old results. Here the cache's folder carries a hash of dpteach's files. The folder is a
configuration value, so that Sphinx also reads every page again when it changes.
"""

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from frame import ROOT, environment, source_hash

CACHES = ROOT / ".cache" / "notebooks"
KEEP = 3  # older versions' caches are removed


def set_cache(app, config):
    """Point the execution cache at this version of dpteach and drop the oldest caches."""
    folder = CACHES / source_hash()
    folder.mkdir(parents=True, exist_ok=True)
    folder.touch()
    for old in sorted(CACHES.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)
    config.nb_execution_cache_path = str(folder)


def set_theme(app, config):
    """Leave out the theme's second search button, in a bar of its own above the page."""
    config.html_theme_options["navbar_persistent"] = []


def drop_thebe(app):
    """Disconnect Thebe, which Jupyter Book loads even when it's off: its script names a server."""
    for listeners in app.events.listeners.values():
        listeners[:] = [x for x in listeners if not x.handler.__module__.startswith("sphinx_thebe")]


def setup(app):
    os.environ.update(environment())
    drop_thebe(app)
    app.connect("config-inited", set_cache)
    app.connect("config-inited", set_theme)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
