"""The build: strict, offline, and run again when dpteach changes.

A book of one page stands for the whole: the same configuration and tools, and a package of one
function in dpteach's place. The last tests read the pages of the real book.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import frame
import pytest
import yaml
from frame import ROOT, chapters, source_hash

PAGE = """---
jupytext:
  text_representation: {{extension: .md, format_name: myst}}
kernelspec: {{display_name: Python 3, language: python, name: python3}}
---
# One page

A formula, $x^2$.

```{{code-cell}} ipython3
{code}
```
"""
CALL = "import dpteach\nprint('the answer is', dpteach.answer())"


class SmallBook:
    def __init__(self, folder):
        self.folder = folder
        for name in ("tools", "book/_static", "book/_templates"):
            shutil.copytree(ROOT / name, folder / name)
        shutil.copy(ROOT / "_config.yml", folder)
        shutil.copy(ROOT / "book" / "references.bib", folder / "book")
        (folder / "_toc.yml").write_text("format: jb-book\nroot: book/page\n")
        (folder / "dpteach").mkdir()
        self.package(41)
        self.page(CALL)

    def package(self, answer):
        (self.folder / "dpteach" / "__init__.py").write_text(
            f"def answer():\n    return {answer}\n")

    def page(self, code, before=""):
        text = PAGE.format(code=code).replace("A formula", before + "A formula")
        (self.folder / "book" / "page.md").write_text(text)

    def build(self):
        env = {k: v for k, v in os.environ.items() if k not in ("IPYTHONDIR", "DPTEACH_CACHE")}
        env["PYTHONPATH"] = str(self.folder)
        return subprocess.run([sys.executable, "tools/build_book.py"], cwd=self.folder, env=env,
                              capture_output=True, text=True, timeout=300)

    def html(self):
        return (self.folder / "_build/html/book/page.html").read_text("utf-8")


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    return SmallBook(tmp_path_factory.mktemp("a folder with spaces"))


def test_whatever_is_wrong_in_a_page_fails_the_build(book):
    book.page("import sys\nprint('deprecated', file=sys.stderr)",
              "{glue:text}`nothing` {ref}`nowhere` ")
    # nothing changed: still wrong, though no cell is run again
    first, again = book.build(), book.build()
    assert "1 chapters ran" in first.stdout and "chapters ran" not in again.stdout
    for done in first, again:
        assert done.returncode and all(word in done.stderr
                                       for word in ("stderr", "nothing", "nowhere")), done.stderr


def test_a_change_in_the_package_runs_the_chapters_again(book):
    book.page(CALL)
    for answer in 41, 42:
        book.package(answer)
        done = book.build()
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 chapters ran" in done.stdout
        assert "Executing notebook" not in done.stdout + done.stderr
        assert f"the answer is {answer}" in book.html()
    assert "/_build/html/index.html" in done.stdout.splitlines()[-1]


def test_the_hash_sees_every_kind_of_change(tmp_path):
    def write(name, text):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        return source_hash(tmp_path)

    seen = [write("a.py", "x = 1"), write("a.py", "x = 2"), write("b.py", ""),
            write("data/d.npz", "1"), write("data/d.npz", "2")]
    (tmp_path / "b.py").rename(tmp_path / "c.py")
    seen.append(source_hash(tmp_path))
    assert len(set(seen)) == len(seen)
    write("__pycache__/a.pyc", "compiled")
    assert source_hash(tmp_path) == seen[-1]


def test_another_version_of_a_library_runs_the_chapters_again(monkeypatch, tmp_path):
    monkeypatch.setattr(frame, "ROOT", tmp_path)
    before = frame.notebook_cache()
    assert frame.notebook_cache() == before
    monkeypatch.setattr(frame, "version", lambda name: "9.9"
                        if name == "scipy" else importlib.metadata.version(name))
    assert frame.notebook_cache() != before


class Loads(HTMLParser):
    """What a browser would fetch for a page, the pictures, and the text of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.urls, self.images, self.script, self.inline = [], [], False, ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed", "track"):
            self.urls.append(found.get("src") or "")
            self.urls.append(found.get("srcset") or "")
        if tag == "object":
            self.urls.append(found.get("data") or "")
        if tag == "link" and found.get("rel") not in ("canonical", "next", "prev", "search"):
            self.urls.append(found.get("href") or "")
        if tag == "img":
            self.images.append(found)
        self.urls += re.findall(r"url\(([^)]*)\)", found.get("style") or "")
        self.script = tag in ("script", "style")

    def handle_endtag(self, tag):
        self.script = False

    def handle_data(self, data):
        if self.script:
            self.inline += data


def outside(text):
    """Addresses outside the book that a page of HTML would load."""
    page = Loads(text)
    named = re.findall(r"https?://[^\s\"'<>)]+", page.inline)
    return ([url for url in page.urls if re.match(r"\s*[\"']?(https?:)?//", url)]
            + [url for url in named if not url.startswith("http://www.w3.org/")])


@pytest.mark.parametrize("html", [
    '<script src="https://cdn.example/x.js"></script>',
    '<link rel="stylesheet" href="//fonts.example/x.css">',
    '<img src="http://example/x.png">',
    '<img srcset="https://example/x.png 2x">',
    '<iframe src="https://example"></iframe>',
    '<script>const U = "https://unpkg.example/thebe"</script>',
    '<style>@import "https://fonts.example/x.css"</style>',
    '<p style="background: url(https://example/x.png)">',
])
def test_a_page_that_asks_outside_is_seen(html):
    assert outside(html)


def test_links_for_readers_are_allowed():
    assert outside('<a href="https://example.org">paper</a><script src="../x.js"></script>') == []


@pytest.fixture(scope="module")
def pages(built_book):
    """The pages of the real book."""
    found = sorted((ROOT / "_build" / "html").rglob("*.html"))
    assert found
    return {path.relative_to(ROOT / "_build" / "html"): path.read_text("utf-8") for path in found}


def test_every_page_is_offline(pages):
    assert {str(name): outside(text) for name, text in pages.items() if outside(text)} == {}


def test_every_stylesheet_and_script_of_a_page_is_there(pages):
    # a theme's template
    real = {name: text for name, text in pages.items() if name.parts[0] != "_static"}
    for name, text in real.items():
        for asset in re.findall(r'<(?:link|script)[^>]*(?:href|src)="([^"#?:]+\.(?:css|js))', text):
            assert (ROOT / "_build" / "html" / name.parent / asset).is_file(), (str(name), asset)


def test_every_stylesheet_is_offline(pages):
    for sheet in (ROOT / "_build" / "html").rglob("*.css"):
        text = sheet.read_text("utf-8")
        assert not re.search(r"(url\(\s*[\"']?|@import\s+[\"'])(https?:)?//", text), sheet


def test_mathjax_is_in_the_book(pages):
    static = ROOT / "_build" / "html" / "_static"
    script = (static / "mathjax" / "tex-mml-chtml.js").read_text("utf-8")
    fonts = set(re.findall(r"MathJax_[\w-]+\.woff", script))
    names = {path.name for path in (static / "mathjax/output/chtml/fonts/woff-v2").iterdir()}
    assert fonts <= names and len(names) > 20
    assert (static / "mathjax" / "LICENSE").exists()


def test_every_picture_has_an_alternative_text(pages):
    bare = {str(name): image for name, text in pages.items() for image in Loads(text).images
            if not (image.get("alt") or "").strip()}
    assert bare == {}


def test_ids_are_unique(pages):
    for name, text in pages.items():
        ids = re.findall(r'\sid="([^"]*)"', text)
        assert len(ids) == len(set(ids)), name


def test_names_of_the_package_in_cells_lead_to_its_pages(pages):
    bare = [page.stem for page in chapters() if "[lesson]" in page.read_text("utf-8")
            and "sphinx-codeautolink-a" not in pages[Path(f"book/{page.stem}.html")]]
    assert bare == []


def test_no_key_of_a_number_stands_on_a_page(pages):
    """Nor on another page, but for the example of the function that keeps them."""
    shown = {name.stem for name, text in pages.items()
             if re.search(r"\b(?:ch\d\d|pref|pre|conv)-[\w-]+ =", text)}
    assert shown <= {"api", "recorded"}


def test_every_page_of_the_toc_is_built(pages):
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    listed = [e["file"] for part in toc["parts"] for e in part["chapters"]] + [toc["root"]]
    assert {f"{name}.html" for name in listed} <= {path.as_posix() for path in pages}
