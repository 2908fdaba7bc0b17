"""Every page of the built book in a real Chromium: wide and on a phone, light and dark.

Each page is loaded once and looked at in both widths. What can't depend on the colours is checked
once; the contrast is checked in both. Screenshots stay in _build/screenshots. The last part plants
one defect after another in a small page and asks that each is found.
"""

from pathlib import Path

import page_checks as checks
import pytest
import run_tests
import theorems
import yaml
from browser import chromium, served
from frame import ROOT

TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
ORDER = [TOC["root"]] + [entry["file"] for part in TOC["parts"] for entry in part["chapters"]]
MODULES = sorted(path.relative_to(ROOT).with_suffix("").as_posix()
                 for path in (ROOT / "dpteach").rglob("[!_]*.py"))
TESTS = sorted({Path(file).stem for tests in theorems.marks().values() for file, _, _ in tests})
PAGES = (ORDER + ["index", "genindex", "search", "_modules/index"]
         + [f"_modules/{module}" for module in MODULES] + [f"_tests/{name}" for name in TESTS])
CHAPTERS = [page for page in ORDER if "book/01-" <= page < "book/21-"]
# The rules that don't depend on colours are the slowest part, and what a page says is the same at
# both widths: they are run on the phone for each page of the book, and at both widths for one page
# of each kind.
TEMPLATES = [TOC["root"], "book/03-sampled-gaussian", "book/explorers", "search", "genindex",
             f"_modules/{MODULES[0]}"]
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}
SCREENSHOTS = ROOT / "_build" / "screenshots"
MAX_ADDED = 400_000  # bytes that the book adds to a page, beyond the theme and MathJax


def test_every_page_is_looked_at(built_book):
    built = {path.relative_to(built_book).with_suffix("").as_posix()
             for path in built_book.rglob("*.html")
             if not {"_static", "slides"} & set(path.parts)}
    assert built == set(PAGES)


class Visits:
    """The pages in one window, each loaded once, and then as wide as a desktop's and a phone's:
    what was wrong."""

    def __init__(self, browser, folder):
        self.browser, self.folder, self.seen = browser, folder, {}

    def problems(self, page, width, scheme):
        if page not in self.seen:
            self.seen[page] = self.visit(page)
        return self.seen[page][width, scheme]

    def visit(self, page):
        browser = self.browser
        # the page before, emptied of most, would answer to a change of width
        browser.open("about:blank")
        browser.resize(*WIDTHS["desktop"])
        browser.scheme("light")
        browser.open((self.folder / f"{page}.html").as_uri())
        checks.settle(browser)
        found = {width: self.looks(page, width) for width in WIDTHS}
        requests = browser.requests()
        found["phone"] += checks.console(browser.console()) + checks.outside(requests,
                                                                             self.folder.as_uri())
        if (added := checks.weight(requests, self.folder)) > MAX_ADDED:
            found["phone"].append(f"the book adds {added} bytes to it, at most {MAX_ADDED} are "
                                  f"allowed")
        thorough = WIDTHS if page in TEMPLATES else ["phone"] if page in ORDER else []
        for width in thorough:
            browser.resize(*WIDTHS[width], mobile=width == "phone")
            found[width] += checks.rules(browser)
        colours = checks.contrast(browser, WIDTHS)
        return {(width, scheme): (found[width] if scheme == "light" else []) + lines
                for (width, scheme), lines in colours.items()}

    def looks(self, page, width):
        """What is wrong with the page's layout at one width; keeps its picture in both schemes."""
        self.browser.resize(*WIDTHS[width], mobile=width == "phone")
        first, last = (page not in ORDER or page == ORDER[end] for end in (0, -1))
        found = checks.findings(self.browser, WIDTHS[width][0], first, last)
        for scheme in ("dark", "light"):
            self.browser.scheme(scheme)
            self.browser.screenshot(SCREENSHOTS / width / scheme / f"{page}.png")
        return found


@pytest.fixture(scope="class")
def visits(built_book):
    with chromium() as browser:
        yield Visits(browser, built_book)


class TestChapters:  # two classes: two processes share the work
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("page", CHAPTERS)
    def test_nothing_is_wrong(self, visits, page, width, scheme):
        assert visits.problems(page, width, scheme) == []


class TestOtherPages:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("page", [page for page in PAGES if page not in CHAPTERS])
    def test_nothing_is_wrong(self, visits, page, width, scheme):
        assert visits.problems(page, width, scheme) == []


@pytest.mark.parametrize("page", TEMPLATES)
def test_a_page_loaded_on_a_phone(built_book, phone, page):
    """What scripts do when a page starts narrow."""
    phone.scheme("light")
    phone.open((built_book / f"{page}.html").as_uri())
    checks.settle(phone)
    assert checks.findings(phone, 390, page not in ORDER or page == ORDER[0],
                           page not in ORDER) == []
    assert checks.console(phone.console()) == []


@pytest.mark.parametrize("page",
                         [ORDER[0], next(page for page in ORDER if "/12-" in page), "search"])
def test_a_page_opened_in_the_dark_is_dark(built_book, page):
    with chromium(dark=True) as browser:
        browser.open((built_book / f"{page}.html").as_uri())
        checks.settle(browser)
        assert browser.run("return document.documentElement.dataset.theme") == "dark"
        assert checks.console(browser.console()) == []
        # the second time what the first left is read
        browser.driver.get(browser.driver.current_url)
        assert checks.console(browser.console()) == []


RESULTS = "document.querySelectorAll('#search-results ul.search li a')"
# Results appear one by one; the line above the list is written when all are there.
SEARCH_ENDED = "(document.querySelector('#search-results .search-summary') || {}).textContent"


@pytest.mark.parametrize("address", ["file", "http"])
@pytest.mark.parametrize("width, mobile", [(1280, False), (390, True)], ids=["desktop", "phone"])
def test_search_finds(built_book, address, width, mobile):
    with chromium(width, 844, mobile) as browser, served(built_book) as server:
        start = server if address == "http" else built_book.as_uri()
        browser.open(f"{start}/{ORDER[0]}.html")
        if mobile:
            browser.driver.find_element("css selector", ".primary-toggle").click()
        button = ("[...document.querySelectorAll('.search-button-field, .search-button, "
                  ".search-button__button')]"
                  ".find((button) => button.checkVisibility())")
        browser.wait(button, "the search button")
        browser.run(f"{button}.click()")
        browser.wait("document.activeElement.type === 'search'", "the search field")
        field = browser.driver.switch_to.active_element
        field.send_keys("Esseen")
        field.submit()
        browser.wait(SEARCH_ENDED, "the end of the search")
        found = browser.run(f"return [...{RESULTS}].map((link) => link.getAttribute('href'))")
        assert any("13-berry-esseen.html" in link for link in found), found
        assert checks.findings(browser, width, True, True) == []
        assert checks.console(browser.console()) == []
        assert checks.outside(browser.requests(), start) == []
        browser.run(f"{RESULTS}[0].click()")
        browser.wait("!location.pathname.endsWith('search.html')", "the page that was found")
        checks.settle(browser)
        assert checks.console(browser.console()) == []


CLEAN = """<!doctype html><html lang="en"><head><title>A page</title>
<meta name="viewport" content="width=device-width">
<style>body {{ color: #000; background: #fff; }} button, a {{ padding: 1em; }}
@media (prefers-color-scheme: dark) {{ body {{ color: #fff; background: #000; }}
  a {{ color: #aaf; }} }}</style>
</head><body><main><article><h1>A page</h1>
<details><summary>More</summary><p>What was hidden.</p></details>
<figure><img src="data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
  alt="A curve that falls from 1 to 0."
  width="60" height="40"><figcaption>A curve.</figcaption></figure>
<div class="cell_input"><div class="highlight">
<pre tabindex="0">x = 1  # a "$" isn't TeX here: \\frac</pre>
  <button class="copybtn">Copy</button></div></div>
<p>Costs $5. The path is C:\\ here.</p>
{}
<p><a class="left-prev" href="b.html">back</a> <a class="right-next" href="c.html">on</a></p>
</article></main></body></html>"""
DOT = "src='data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7'"
DEFECTS = {  # the defect, how the finding begins, in which colours it must be found
    "a word on the console": ("<script>console.log('left over')</script>", "console: INFO",
                              "light"),
    "a warning": ("<script>console.warn('old')</script>", "console: WARNING", "light"),
    "an exception": ("<script>null.x</script>", "console: SEVERE", "light"),
    "a missing file": ("<script src='gone.js'></script>", "console: SEVERE", "light"),
    "a request outside": ("<img alt='Elsewhere' src='https://example.org/x.png'>", "asks outside",
                          "light"),
    "raw TeX": (r"<p>The noise \(\sigma\) is large.</p>", "raw TeX", "light"),
    "raw TeX in dollars": ("<p>The noise $x^2$ is large.</p>", "raw TeX", "light"),
    "raw TeX in a description": (rf"<img alt='Curve of \sigma' {DOT}>", "raw TeX in a description",
                                 "light"),
    "a maths error": ("<mjx-container><mjx-merror "
                      "data-mjx-error='no'>x</mjx-merror></mjx-container>",
                      "maths error", "light"),
    "overflow": ("<div style='width: 1500px'>wide</div>", "1508 px wide in 390", "light"),
    "a cut formula": ("<div style='overflow: hidden'><mjx-container style='display: block; width: "
                      "900px'>x"
                      "</mjx-container></div>", "formula wider", "light"),
    "a formula cut in height": ("<mjx-container style='display: block; height: 9px; overflow: auto "
                                "hidden'>"
                                "<div style='height: 30px'>x</div></mjx-container>", "formula cut",
                                "light"),
    "a cut table": ("<div style='overflow: hidden'><div style='width: 900px'>wide</div></div>",
                    "cut by", "light"),
    "no description": (f"<img {DOT} alt=''>", "description", "light"),
    "a file's name as description": (f"<img {DOT} alt='x.png'>", "description", "light"),
    "a short description": (f"<figure><img {DOT} alt='A plot'><figcaption>A.</figcaption></figure>",
                            "description", "light"),
    "no caption": ("<figure><p>Something</p></figure>", "no caption", "light"),
    "a dropdown that stays closed": ("<details onclick='event.preventDefault()'><summary>More"
                                     "</summary><p>x</p>"
                                     "</details>", "doesn't open", "light"),
    "no copy button": ("<div class='cell_input'><div class='highlight'><pre "
                       "tabindex='0'>x</pre></div></div>",
                       "no copy button", "light"),
    "low contrast": ("<p style='color: #aaa; background: #fff'>faint</p>", "axe color-contrast",
                     "light"),
    "low contrast in the dark": ("<p style='color: light-dark(#000, #444); color-scheme: light "
                                 "dark'>faint</p>",
                                 "axe color-contrast", "dark"),
    "low contrast of a formula": ("<p><mjx-container style='color: #bbb'>x</mjx-container></p>",
                                  "axe color-contrast", "light"),
    "a field without a label": ("<input type='text'>", "axe label", "light"),
    "a tiny target": ("<button style='padding: 0; width: 9px; height: 9px'>a</button>" * 2,
                      "axe target-size", "light"),
    "a link known by its colour only": ("<p>See <a href='b.html' style='text-decoration: none; "
                                        "color: #333; padding: 0'"
                                        ">here</a>, it says.</p>", "axe link-in-text-block",
                                        "light"),
}


@pytest.fixture(scope="module")
def phone():
    with chromium(390, 844, mobile=True) as browser:
        yield browser


def problems_of(browser, folder, text):
    (folder / "page.html").write_text(CLEAN.format(text), "utf-8")
    browser.scheme("light")
    browser.open((folder / "page.html").as_uri())
    found = checks.findings(browser, 390)
    found += checks.console(browser.console()) + checks.outside(browser.requests(), folder.as_uri())
    found += checks.rules(browser)
    colours = checks.contrast(browser, {"phone": (390, 844)})
    return {"light": found + colours["phone", "light"], "dark": colours["phone", "dark"]}


def test_a_clean_page_has_no_findings(phone, tmp_path):
    assert problems_of(phone, tmp_path, "") == {"light": [], "dark": []}


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_defect_is_found(phone, tmp_path, defect):
    text, finding, scheme = DEFECTS[defect]
    found = problems_of(phone, tmp_path, text)
    assert any(line.startswith(finding) for line in found[scheme]), found


@pytest.mark.parametrize("required, outcome",
                         [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_without_a_browser_the_tests_say_so(monkeypatch, required, outcome):
    monkeypatch.setenv("DPTEACH_CHROMIUM", "/nowhere/chromium")
    monkeypatch.setenv("DPTEACH_REQUIRE_BROWSER", required)
    with pytest.raises(outcome, match="browser tests NOT RUN: no chromium found"), chromium():
        pass


def test_the_summary_says_that_the_browser_tests_did_not_run(monkeypatch, capsys):
    monkeypatch.setenv("DPTEACH_CHROMEDRIVER", "/nowhere/chromedriver")
    monkeypatch.setattr(run_tests, "run", lambda command: (0, ["3 passed in 1.0s"]))
    with pytest.raises(SystemExit) as end:
        run_tests.main()
    assert not end.value.code
    assert "browser tests NOT RUN: no chromedriver found" in capsys.readouterr().out


def test_the_weight_of_a_page_is_what_the_book_adds(tmp_path):
    for name, size in [("_static/book.css", 10), ("_static/live/grid.js", 200),
                       ("_images/a b.svg", 3000),
                       ("_static/theme.js", 40_000), ("_static/mathjax/font.woff", 500_000)]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    requests = [path.as_uri() + "?v=1" for path in tmp_path.rglob("*") if path.is_file()]
    assert checks.weight(requests + requests, tmp_path) == 3210


SLOW = ("Slow network is detected. See https://www.chromestatus.com/feature/5636954674692096 for "
        "more details."
        " Fallback font will be used while loading: file:///b/MathJax_Zero.woff")


def test_what_chromium_says_of_a_missing_network_is_no_finding():
    heard = [f"INFO file:///b/intro.html - {SLOW}", f"INFO file:///b/x.js?digest=5 1 {SLOW}"]
    assert checks.console(heard) == []
    heard.append("INFO file:///b/x.js 1 Slow")
    assert checks.console(heard) == ["console: INFO file:///b/x.js 1 Slow"]
