"""Sphinx extension: chapters that aren't in the execution cache yet are run two at a time, before pages are read.

myst-nb runs a chapter when its page is read, one after the other. Here the same cells are run ahead by
nbclient and put into the same cache, where myst-nb then finds them. A chapter that fails is left to myst-nb,
which runs it again and reports it.
"""

from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from frame import ROOT, chapters
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.read import create_nb_reader
from sphinx.util import logging

__all__ = ["register", "waiting"]

AT_ONCE = 2
logger = logging.getLogger(__name__)


def waiting(pages, cache, md_config, nb_config):
    """(page, notebook) of each page whose cells the cache doesn't hold."""
    found = []
    for page in pages:
        text = page.read_text("utf-8")
        notebook = create_nb_reader(str(page), md_config, nb_config, text).read(text)
        try:
            cache.match_cache_notebook(notebook)
        except KeyError:
            found.append((page, notebook))
    return found


def run_ahead(app, env, docnames):
    """Run the cells of the pages that are about to be read, where no result is kept."""
    config = env.mystnb_config
    if config.execution_mode != "cache":
        return
    cache = get_cache(config.execution_cache_path)
    read = {ROOT / f"{name}.md" for name in docnames}
    # The training chapters take longest: they're last in the book, and start first here.
    todo = waiting([page for page in reversed(chapters()) if page in read], cache, env.myst_config, config)
    options = {"allow_errors": False, "timeout": config.execution_timeout}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(single_nb_execution, notebook, cwd=str(page.parent), **options): (page, notebook)
                   for page, notebook in todo}
        try:
            for done in as_completed(running):
                page, notebook = running[done]
                keep(cache, page, notebook, done.result())
        except BaseException:  # Ctrl-C, too: the chapters that haven't begun don't begin
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def keep(cache, page, notebook, result):
    """Put a chapter that ran into the cache; its name and time are printed."""
    name = Path(page).relative_to(ROOT)
    if result.err is not None:
        logger.info(f"{name}: a cell failed")
        return
    bundle = CacheBundleIn(notebook, str(page), data={"execution_seconds": result.time})
    cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    logger.info(f"{name}: its cells ran in {result.time:.0f} s")


def register(app):
    app.connect("env-before-read-docs", run_ahead)
