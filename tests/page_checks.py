"""What must hold of every page in a browser: each finding is a line in plain words.

`findings` looks at a page that's already open; tests/test_browser.py runs it on the whole book, and
on small pages with one planted defect each.
"""

import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from frame import ROOT

__all__ = ["console", "contrast", "findings", "outside", "rules", "settle", "weight"]

ASSETS = Path(__file__).parent / "assets"
CHECKS = (ASSETS / "page_checks.js").read_text("utf-8")
AXE = (ASSETS / "axe.min.js").read_text("utf-8")
AXE_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

# What the theme says on every page. None of it is a warning: its scripts report what they did.
THEME_SAYS = re.compile(
    r"INFO \S+ \d+:\d+ \"("
    r"\[PST\]: Changed to auto mode using the (light|dark) theme\."
    r"|\[PST\]: Scrolled sidebar using (last active link|stored browser position)\.\.\."
    r"|\[PST\]: Set focus on search field\."
    r"|\[togglebutton\]: Adding toggle buttons to \d+ items"
    r")\"")


# What Chromium itself says on a machine without a network, of fonts that lie on the disk.
OFFLINE_SAYS = re.compile(
    r"INFO \S+ \S+ Slow network is detected\. See https://www\.chromestatus\.com/\S+ for more "
    r"details\."
    r" Fallback font will be used while loading: \S+")


def settle(browser):
    """Wait until the page's maths is drawn (a page without formulas doesn't load MathJax)."""
    browser.driver.execute_async_script(
        "const done = arguments[0];"
        "(window.MathJax?.startup?.promise || Promise.resolve()).then(() => "
        "document.fonts.ready).then(() => done())")


def console(messages):
    """What the console said, without what the theme says on every page, and Chromium of a missing
    network."""
    usual = (THEME_SAYS, OFFLINE_SAYS)
    return [f"console: {message}" for message in messages
            if not any(said.fullmatch(message) for said in usual)]


def outside(requests, allowed):
    """Requests that go elsewhere than to addresses that start with `allowed`."""
    return [f"asks outside: {url[:200]}" for url in requests
            if not url.startswith((allowed, "data:", "blob:"))]


def weight(requests, folder):
    """Bytes that the book adds to a page opened from file://: its styles, scripts, data and
    pictures.

    The page's own text, the search's index, the theme's files and MathJax's aren't counted.
    """
    ours = {path.name for path in (ROOT / "book" / "_static").iterdir()} - {"mathjax"}
    files = {Path(url2pathname(urlsplit(url).path)) for url in requests if url.startswith("file:")}
    size = 0
    for path in files:
        parts = path.relative_to(folder).parts
        if parts[0] in ("_images", "_downloads") or (parts[0] == "_static" and parts[1] in ours):
            size += path.stat().st_size
    return size


def rules(browser):
    """What axe-core finds against WCAG 2.2, levels A and AA, without the rules on colours: a line
    for each element.

    The page's formulas are plain words afterwards.
    """
    browser.run("if (!window.axe) { " + AXE + " }")
    return _axe(browser, "checks.axe(arguments[0])", AXE_RULES)


def contrast(browser, widths):
    """What axe-core finds against WCAG 2.2's rules on colours, by (width's name, colour scheme).

    `widths` names (width, height). Contrast is by far the slowest rule: it's checked once for each
    combination of colours and type in the page, on a page emptied of all else, which isn't fit for
    other checks afterwards.
    """
    browser.run("if (!window.axe) { " + AXE + " }")
    views = [(width, scheme) for width in widths for scheme in ("dark", "light")]
    for step in ("sample", "contrast"):
        found = {}
        for width, scheme in views:
            browser.resize(*widths[width], mobile=width == "phone")
            browser.scheme(scheme)
            if step == "sample":
                browser.run(CHECKS + "checks.sample()")
            else:
                found[width, scheme] = _axe(browser, "checks.contrast()")
        browser.run(CHECKS + "checks.prune()")
    return found


def _axe(browser, call, *arguments):
    lines = browser.driver.execute_async_script(
        CHECKS
        + f"const done = arguments[arguments.length - 1]; {call}.then(done, (e) => done(['axe "
          f"failed: ' + e]))",
        *arguments)
    return [f"axe {line}" for line in lines]


def findings(browser, width, first=False, last=False):
    """Everything wrong with the open page itself, its closed parts opened first."""
    script = ("return [checks.open(), checks.overflow(arguments[0]), checks.cutMaths(), "
              "checks.rawTex(),"
              " checks.pictures(), checks.tools(arguments[1], arguments[2])].flat()")
    return browser.run(CHECKS + script, width, first, last)
