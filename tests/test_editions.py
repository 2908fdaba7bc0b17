"""The other editions: formulas as MathML, the EPUB, the PDF, the student's notebooks, the
downloads."""

import ast
import io
import os
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import epub
import nbformat
import pdf
import plain
import pytest
import slides
import student
import yaml
from bs4 import BeautifulSoup
from chromium import missing
from frame import BOOK, ROOT, chapters
from mathml import NAMESPACE, mathml
from outputs import convert
from pypdf import PdfReader, PdfWriter
from pypdf.annotations import Link
from pypdf.generic import DictionaryObject, NameObject, TextStringObject
from test_frame_build import SmallBook

CODE = re.compile(r"^(`{3,})(?:\{code-cell\}|\{eval-rst\}|\{literalinclude\}|python"
                  r"|text)[^\n]*\n.*?^\1 *$|`[^`\n]*`",
                  re.DOTALL | re.MULTILINE)
FRONT = re.compile(r"\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)


def formulas():
    """(TeX, whether it's displayed) of every formula in the book's sources."""
    found = set()
    for page in sorted(BOOK.glob("*.md")):
        text = CODE.sub("", FRONT.sub("", page.read_text("utf-8")))
        for block in re.findall(r"\$\$(.*?)\$\$", text, re.DOTALL):
            found.add((block, True))
        for inline in re.findall(r"\$([^$]+)\$", re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)):
            found.add((inline, False))
    return sorted(found)


# --- Formulas ---------------------------------------------------------------------------------

def test_every_formula_of_the_book_becomes_mathml_with_all_its_parts():
    every = formulas()
    assert len(every) > 2000
    for tex, display in every:
        root = ElementTree.fromstring(mathml(tex, display))

        def count(*names, root=root):
            return sum(1 for element in root.iter() if element.tag.removeprefix(NAMESPACE) in names)

        assert root.get("display") == ("block" if display else "inline")
        assert count("mfrac") == len(re.findall(r"\\[td]?(?:frac|binom)(?![a-z])", tex)), tex
        assert count("msqrt", "mroot") == len(re.findall(r"\\sqrt", tex)), tex
        rows = sum(1 + len(re.findall(r"\\\\", body)) - body.rstrip().endswith(r"\\")
                   for body in re.findall(r"\\begin\{\w+\}(.*?)\\end", tex, re.DOTALL))
        assert count("mtr") == rows, tex
        assert sorted(re.sub(r"[^0-9]", "", tex)) == sorted(re.sub(r"[^0-9]", "",
                                                                   "".join(root.itertext()))), tex
        for element in root.iter():
            size = {"msup": 2, "msub": 2, "msubsup": 3, "mfrac": 2, "munder": 2, "munderover": 3}
            wanted = size.get(element.tag.removeprefix(NAMESPACE))
            assert wanted in (None, len(element)), (tex, element.tag)


def test_a_formula_by_hand():
    text = re.sub(r' (xmlns|alttext|stretchy)="[^"]*"', "", mathml(r"\frac{a}{b} \le 2"))
    assert text == ('<math display="inline"><mrow><mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi>'
                    '</mrow></mfrac>'
                    "<mo>≤</mo><mn>2</mn></mrow></math>")


@pytest.mark.parametrize("tex, shown", [
    (r"\mathbb E[x]", "𝔼"), (r"\mathcal M", "ℳ"), (r"\Phi(x)", 'mathvariant="normal">Φ'),
    (r"\max\bigl\{0, x\bigr\}", "{"), (r"\log x", 'mspace width="0.167em"')])
def test_what_readers_would_show_wrongly_is_mended(tex, shown):
    assert shown in mathml(tex)


def test_limits_stand_below_in_display_only():
    assert "munder" in mathml(r"\lim_{n} a", display=True) and "munder" not in mathml(r"\lim_{n} a")


@pytest.mark.parametrize("tex", [r"\nosuchmacro x", r"a & b", r"\begin{nosuch} a & b \end{nosuch}"])
def test_a_formula_that_would_lose_something_is_refused(tex):
    with pytest.raises(ValueError, match="not convertible"):
        mathml(tex)


# --- EPUB -------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A book of one page, with an address and a launch button, and its EPUB."""
    book = SmallBook(tmp_path_factory.mktemp("small book"))
    config = yaml.safe_load((book.folder / "_config.yml").read_text("utf-8"))
    config["repository"]["url"] = "https://github.com/someone/book"
    config["launch_buttons"]["binderhub_url"] = "https://mybinder.org"
    (book.folder / "_config.yml").write_text(yaml.safe_dump(config))
    page = book.folder / "book" / "page.md"
    page.write_text(page.read_text() + "\n$$\n\\begin{aligned}\na &= b \\\\\n &= c "
                                       ".\n\\end{aligned}\n$$ (eq-one)\n\n"
                    "See {eq}`eq-one`.\n\n```{index} tail\n```\n\n```{raw} html\n<script>1 < "
                    "2</script>\n```\n")
    return book


def test_a_small_epub_is_whole(small, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(small.folder))
    for name, value in (("ROOT", small.folder), ("TARGET", small.folder / "epub"),
                        ("environment", lambda: None)):
        monkeypatch.setattr(epub, name, value)
    path = epub.build()
    assert epub.problems(path, ["page"]) == ([], 2)
    with zipfile.ZipFile(path) as archive:
        page = archive.read("book/page.xhtml").decode()
        assert "(1)" in page and 'alttext="x^2"' in page and "<script" not in page
        assert not any("mathjax" in name for name in archive.namelist())


OPF = ('<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="a" '
       'href="book/page.xhtml" properties="{}"/>'
       '</manifest><spine>{}</spine></package>')
PAGE = '<html xmlns="http://www.w3.org/1999/xhtml"><body>{}</body></html>'
REF = '<itemref idref="a"/>'
MATH = '<math xmlns="http://www.w3.org/1998/Math/MathML"> </math>'


def packed(path, body="<p>a</p>", spine=REF, properties="mathml"):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("content.opf", OPF.format(properties, spine))
        archive.writestr("book/page.xhtml", PAGE.format(body))
    return path


def test_a_made_up_epub_passes(tmp_path):
    code = "<pre>r'\\(x\\)'</pre>"
    assert epub.problems(packed(tmp_path / "a.epub", MATH + code), ["page"]) == ([], 1)


@pytest.mark.parametrize("change, said", [
    ({"spine": ""}, "reading order"), ({"body": "<p>"}, "well-formed"),
    ({"body": "<img src='a'/>"}, "alternative"),
    ({"body": r"<p>\(x\)</p>"}, "raw TeX"), ({"body": "<script>1</script>"}, "script"),
    ({"body": MATH, "properties": ""}, "MathML")])
def test_what_is_wrong_in_an_epub_is_said(tmp_path, change, said):
    found, _ = epub.problems(packed(tmp_path / "a.epub", **change), ["page"])
    assert len(found) == 1 and said in found[0]


def test_pages_are_cleaned_for_epub():
    page = ('<p id="a"></p><p id="a"></p><noscript><b>x</b></noscript>'
            '<summary><p class="c">t</p><span class="expanded c">u</span></summary>'
            '<svg class="sd-octicon"><path/></svg><p>b</p><p><ul '
            'class="s"><li><p>c</p></li></ul>\n</p><p>d</p>')
    assert epub.clean(page) == ('<p id="a"></p><p></p><summary><span class="c">t</span></summary>'
                                '<p>b</p><ul class="s"><li><p>c</p></li></ul><p>d</p>')


# --- Slides ---------------------------------------------------------------------------------------

def test_slides_are_a_chapters_opening_statements_figures_and_box():
    page = BeautifulSoup("""<article><section><h1>1. A<a class="headerlink">#</a></h1><p>Why?</p>
        <section><h2>Part</h2><p>Text.</p>
        <div class="proof theorem admonition" id="t"><p>It holds.</p></div>
        <div class="proof admonition"><p>Proof.</p></div><figure>F</figure></section>
        <section><h2>Exercises</h2><details><figure>no</figure></details></section>
        <section><h2>End</h2><div class="admonition summary">Box</div></section></section>
        </article>""", "html.parser")
    made = list(slides.slides(page))
    assert [re.sub(r"<[^>]+>|\s+", " ", slide).split() for slide in made] == [
        ["1.", "A", "Why?"], ["Part", "It", "holds."], ["Part", "F"], ["End", "Box"]]


def test_each_row_of_the_plans_has_its_slides():
    guide = BeautifulSoup("""<article><table><tr><th>week</th></tr><tbody><tr><td>3</td>
        <td><a href="a.html#x">A</a></td><td><a href="b.html">B</a></td></tr></tbody></table>
        </article>""", "html.parser")
    assert list(slides.decks(guide)) == [("week 3", ["a.html"])]


# --- Launch buttons and downloads -----------------------------------------------------------------

def test_launch_buttons_appear_once_the_address_is_set(small):
    assert small.build().returncode == 0
    assert "mybinder.org/v2/gh/someone/book/main" in small.html()
    assert "https://github.com/someone/book" in small.html()
    assert 'href="../_sources/book/page.ipynb"' in small.html()
    assert r"\(x^2\)" in small.html() and "<math" not in small.html()  # MathJax draws it
    notebook = nbformat.read(small.folder / "_build/html/_sources/book/page.ipynb", as_version=4)
    assert "print('the answer is', dpteach.answer())" in notebook.cells[-2].source
    last = notebook.cells[-1].source
    assert "{" not in last.split("See")[1] and "<script" not in last


@pytest.mark.parametrize("page", chapters(), ids=lambda page: page.stem)
def test_a_download_holds_the_chapters_code_and_nothing_that_jupyter_cannot_show(page):
    notebook = plain.plain_notebook(page)
    nbformat.validate(notebook)
    assert [c.source for c in notebook.cells if c.cell_type == "code"] == [
        c.source for c in convert(page).cells if c.cell_type == "code"]
    for cell in (c for c in notebook.cells if c.cell_type == "markdown"):
        text = re.sub(r"``.*?``|`[^`]*`", "", cell.source)
        assert not re.search(r"\{[a-z:]+\}`|^[`:]{3,}\{|tag\{\?\}|^\([\w-]+\)=", cell.source,
                             re.MULTILINE), cell.source
        assert not re.search(r"\b(?:thm|lem|prop|cor|def|eq|fig|ch\d\d)-[a-z0-9-]+",
                             text), cell.source


def test_a_downloaded_notebook_runs(tmp_path):
    from nbclient import NotebookClient

    notebook = plain.plain_notebook(BOOK / "01-privacy-loss.md")
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any("right on all" in str(cell.get("outputs")) for cell in notebook.cells)


def test_numbers_in_a_notebook_are_those_of_the_pages():
    known = plain.numbers()
    assert known["lem-03-reduction"] == "Lemma 3.1" and known["eq-03-moments"] == "(3.1)"
    assert known["ch03"] == "3. The sampled Gaussian" and known["fig-pref-grid"] == "Fig. 0.2"
    assert [known[f"ex-{label}"]
            for label in ("pref-4", "pre-1", "conv-5")] == [f"Exercise 0.{k}" for k in (4, 5, 14)]
    assert plain.role("cite:t", "abadi2016", {}) == "Abadi et al. (2016)"
    assert plain.role("glue:text", "x:.3f", {"x": "1.25"}) == "1.25"


def test_every_number_in_a_notebook_is_the_one_on_the_built_page(built_book):
    numbered, said = [], {}
    for page in (page for page in plain.toc_pages() if re.match(r"\d\d-", page.name)):
        text = (built_book / "book" / f"{page.stem}.html").read_text("utf-8")
        for kind, label in plain.labels(page.read_text("utf-8")):
            shown = re.search(rf'id="(?:equation-)?{label}"(.*?)</(?:p|figcaption|div)>', text,
                              re.DOTALL)
            said[label] = re.search(r"\d+\.\d+", re.sub(r"<[^>]+>", "", shown.group(1))).group()
            numbered.append((kind, said[label]))
    assert said == {label: re.search(r"\d+\.\d+", plain.numbers()[label]).group() for label in said}
    assert len(set(numbered)) == len(numbered) > 300  # also on the three pages with the number 0


# --- Student edition --------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["00-preface", "01-privacy-loss"])
def test_the_student_edition_runs_with_stubs_and_with_solutions(name):
    page = BOOK / f"{name}.md"
    exercises = len(re.findall(r"grade: true", page.read_text("utf-8")))
    assert student.try_out(page) == (exercises, 0)
    assert student.try_out(page, solve=True) == (0, exercises)


EXERCISED = [page for page in chapters() if "### BEGIN SOLUTION\n" in page.read_text("utf-8")]


@pytest.mark.parametrize("page", EXERCISED, ids=lambda page: page.stem)
def test_no_solution_is_left_in_the_student_edition(page):
    source = page.read_text("utf-8")
    notebook = student.student_notebook(page)
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert "SOLUTION" not in code and "Marking scheme" not in text and "Solution of" not in text
    region = re.compile(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", re.DOTALL)
    shown = region.sub("", source)  # what the chapter itself says elsewhere stays
    for body in region.findall(source):
        assert body.strip() not in code or body.strip() in shown
    graded = [c for c in notebook.cells if "nbgrader" in c.metadata]
    proofs = [c for c in graded if c.cell_type == "markdown"]
    assert all(c.source == student.ANSWER and c.metadata["nbgrader"]["points"] > 0 for c in proofs)
    stubs = [c for c in graded if c.metadata["nbgrader"].get("solution") and c.cell_type == "code"]
    checks = [c for c in graded if c.metadata["nbgrader"].get("grade") and c.cell_type == "code"]
    assert len(stubs) == len(checks) > 0
    assert all("raise NotImplementedError()" in cell.source for cell in stubs)
    assert all("raises-exception" in c.metadata["tags"] and c.metadata["editable"] is False
               for c in checks)
    assert all(len(c.metadata["nbgrader"]["checksum"]) == 32 for c in stubs + checks)


def test_a_proof_has_an_answer_cell_with_its_points():
    text = (BOOK / "04-lemma-3.md").read_text("utf-8")
    answers = [c for c in student.student_notebook(BOOK / "04-lemma-3.md").cells
               if c.cell_type == "markdown" and "nbgrader" in c.metadata]
    assert [c.metadata["nbgrader"]["grade_id"] for c in answers] == ["ex-04-proof"]
    assert f"Marking scheme ({answers[0].metadata['nbgrader']['points']} points)" in text
    metadata = answers[0].metadata
    assert len(metadata["nbgrader"]["checksum"]) == 32 and "editable" not in metadata


PROVED = re.compile(r"^(`{3,})\{solution\} (\S+)\n.*?^\1\n+```\{code-cell\} ipython3\n(.*?)^```$",
                    re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", EXERCISED, ids=lambda page: page.stem)
def test_numbers_of_a_proof_go_with_its_solution(page):
    """What a cell right after a proof's solution computes is a part of the answer."""
    shown = {cell.source for cell in student.student_notebook(page).cells}
    for _, name, cell in PROVED.findall(page.read_text("utf-8")):
        assert "solution-text" in cell, name
        assert cell.split("\n\n", 1)[1].strip() not in shown, name


def test_cells_after_a_proof_are_found():
    assert sum(len(PROVED.findall(page.read_text("utf-8"))) for page in EXERCISED) >= 5


OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.Call, ast.Compare, ast.Subscript)


def shape(node):
    """An expression written with its own names for what isn't called."""
    calls, names = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)], {}
    called = {"np", "math"} | {function.id for function in calls if isinstance(function, ast.Name)}

    def name(found):
        return found[1] if found[1] in called else f"name {names.setdefault(found[1], len(names))}"

    return re.sub(r"\b(?:id|arg)='(\w+)'", name, ast.dump(node))


def shapes(code, least=5):
    """The shape of each expression of at least so many operations."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.expr) and sum(isinstance(part, OPERATIONS)
                                              for part in ast.walk(node)) >= least:
            yield shape(node)


def test_shapes_forget_the_names():
    one, other = (set(shapes(code))
                  for code in ("f(a * b + c, -d) / a**2", "f(x * y + z, -w) / x**2"))
    assert one and one == other and not one & set(shapes("f(x * y + z, -w) / y**2"))


@pytest.mark.parametrize("page", EXERCISED, ids=lambda page: page.stem)
def test_what_a_solution_returns_stands_in_no_other_cell(page):
    cells = [cell for cell in convert(page).cells if cell.cell_type == "code"]
    shown = {found for cell in cells if not cell.metadata.get("nbgrader", {}).get("solution")
             for found in shapes(cell.source)}
    for cell in cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            returned = [node.value for node in ast.walk(ast.parse(cell.source))
                        if isinstance(node, ast.Return)]
            for code in map(ast.unparse, filter(None, returned)):
                assert not ({next(shapes(code), None)} & shown), code


def test_every_chapter_has_exercises():
    numbered = {page.stem for page in chapters() if re.match(r"\d\d-", page.stem)}
    assert numbered == {page.stem for page in EXERCISED}


def test_the_zip_holds_what_a_student_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(student, "TARGET", tmp_path)
    (tmp_path / "01-a.ipynb").write_text("{}")
    with zipfile.ZipFile(student.pack(["01-a.ipynb"])) as archive:
        names = set(archive.namelist())
        wanted = archive.read("noisy-sgd/requirements.txt").decode().split()
    assert {"noisy-sgd/notebooks/01-a.ipynb", "noisy-sgd/README.md", "noisy-sgd/pyproject.toml",
            "noisy-sgd/LICENSE",
            "noisy-sgd/dpteach/__init__.py", "noisy-sgd/dpteach/classroom/exercises.py"} <= names
    assert not any("__pycache__" in name or "tests/" in name for name in names)
    pins = (ROOT / "constraints.txt").read_text().split()
    assert set(wanted) - {"."} <= set(pins) and any(pin.startswith("jupyterlab==")
                                                    for pin in wanted)
    packages = {re.split("[=.]", line)[0].replace("-", "_") for line in wanted}
    imported = {name for page in chapters() for name in re.findall(
        r"^(?:from|import) (\w+)", page.read_text("utf-8"), re.MULTILINE)}
    outside = imported & {"numpy", "scipy", "matplotlib", "torch", "opacus", "dp_accounting",
                          "mpmath"}
    assert outside <= packages


# --- PDF --------------------------------------------------------------------------------------

def printed(pages, headings, links=()):
    """A PDF such as Chromium prints: blank sheets, bookmarks in two levels, links to addresses."""
    writer = PdfWriter()
    for _ in range(pages):
        writer.add_blank_page(200, 300)
    top = writer.add_outline_item(title="Title", page_number=0)
    for name, sheet in headings:
        writer.add_outline_item(title=name, page_number=sheet, parent=top)
    for address in links:
        writer.add_annotation(0, Link(rect=(0, 0, 9, 9), url=address))
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


# to a part, to another page, to the web
LINKS = ["file:///x/a.html#one", "file:///x/c.html", "https://e.org"]


def test_parts_are_joined_with_bookmarks_for_pages_and_sections():
    data = pdf.join([("/x/a.html", "1. A", printed(2, [("One", 0), ("Two", 1)])),
                     ("/x/b.html", "2. B", printed(3, [("Three", 2)], LINKS))], "T")
    joined = PdfReader(io.BytesIO(data))
    assert len(joined.pages) == 5 and joined.metadata.title == "T"
    (a, below_a, b, below_b) = joined.outline
    where = joined.get_destination_page_number
    assert [(a.title, where(a)), (b.title, where(b))] == [("1. A", 0), ("2. B", 2)]
    assert [(x.title, where(x)) for x in below_a + below_b] == [("One", 0), ("Two", 1),
                                                                ("Three", 4)]
    inside, outside = [link.get_object() for link in joined.pages[2]["/Annots"]]
    assert inside["/Dest"][0].get_object() == joined.pages[0] and "/A" not in inside
    assert outside["/A"]["/URI"] == "https://e.org"


def test_links_that_are_no_addresses_stay():
    link = DictionaryObject({NameObject("/Dest"): TextStringObject("here")})
    pdf.relink(None, link, {})
    assert link == {"/Dest": "here"}


def test_the_pdf_has_every_page_of_the_table_of_contents():
    names = [path.stem for path in pdf.pages_in_order()]
    assert names[0] == "intro" and set(names) == {path.stem for path in BOOK.glob("*.md")}


def test_chromium_prints_a_page_and_names_what_paper_would_cut(tmp_path):
    # the same rule as in tests/browser.py: where a browser is required, its absence is a failure
    if missing():
        (pytest.fail
         if os.environ.get("DPTEACH_REQUIRE_BROWSER") == "1" else pytest.skip)(missing())
    page = tmp_path / "a.html"
    page.write_text("<title>A</title><article class='bd-article'><h1>A</h1><h2>B</h2><p>fits</p>"
                    "<pre style='width: 200em; white-space: pre'>too wide</pre>"
                    "<div style='overflow-y: auto'>scrolls</div>"
                    "<details class='hide'><summary>Show</summary><p>inside</p></details></article>"
                    "<style>details[open] p { animation: f 60s } @keyframes f { from { opacity: 0 "
                    "} }</style>"
                    f"<link rel='stylesheet' href='{(BOOK / '_static' / 'print.css').as_uri()}'>")
    with pdf.printer() as driver:
        assert pdf.show(driver, page) == ["pre: too wide", "div: scrolls"]
        seen = driver.execute_script("return [...document.querySelectorAll('details > *')]"
                                     ".map(e => getComputedStyle(e)).map(s => [s.display, "
                                     "s.opacity])")
        # its text isn't about to fade in, and its handle is gone
        assert seen == [["none", "1"], ["block", "1"]]
        reader = PdfReader(io.BytesIO(pdf.print_page(driver)))
    assert "inside" in reader.pages[0].extract_text()
    assert [(level, text) for level, text, _ in pdf.headings(reader)] == [(0, "A"), (1, "B")]


def test_the_names_of_the_files_agree():
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    assert Path(pdf.TARGET).stem == config["sphinx"]["config"]["epub_basename"]
