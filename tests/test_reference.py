"""Finding one's way: glossary links, the index, the table of theorems, the map, the status page, the teaching guide."""

import importlib
import json
import re

import chapter_map
import nbformat
import pytest
import status
from frame import BOOK, ROOT
from size import parts

NUMBERED = sorted(BOOK.glob("[0-9]*.md"))
# Words of everyday use, which the glossary explains once but which need no link in each chapter.
COMMON = {"exact", "law", "sigma", "epoch", "bracket", "upper bound", "lower bound", "asymptotic", "neighbouring"}
TITLED = re.compile(r"^`{3,}\{prf:(?:definition|theorem|lemma|proposition|corollary|algorithm)\} *([^\n]*)\n:label:",
                    re.MULTILINE)


def terms():
    """The words that the glossary explains."""
    body = (BOOK / "glossary.md").read_text("utf-8").split("{glossary}")[1]
    return re.findall(r"^(?![ #`:(])(\S[^\n]*)\n", body, re.MULTILINE)


def prose(text):
    """A page without its head, code, formulas, titles, captions, options, tables, and words in roles."""
    blank = (r"\A---\n.*?^---\n",
             r"^(`{3,})(?:\{(?:code-cell|eval-rst|literalinclude|index|live)\}|python|text)[^\n]*\n.*?^\1 *$",
             r"^(?:#|`{3,}|:{3,}|:\w[\w-]*:|\||\()[^\n]*", r"\$\$.*?\$\$|\$[^$]*\$",
             r"\{[\w:]+\}`[^`]*`|`[^`]*`|\[[^\]]*\]\([^)]*\)")
    for pattern in blank:
        text = re.sub(pattern, " ¤ ", text, flags=re.DOTALL | re.MULTILINE)
    return text


def unlinked(text, words):
    """Words of the glossary that a page uses and never links."""
    plain = prose(text)
    return [word for word in words
            if re.search(rf"(?<![\w-]){re.escape(word)}s?(?![\w-])", plain, re.IGNORECASE)
            and not re.search(rf"\{{term\}}`(?:[^`]*[< ])?{re.escape(word)}s?>?`", text, re.IGNORECASE)]


@pytest.mark.parametrize("page", NUMBERED, ids=lambda page: page.stem)
def test_each_chapter_links_the_terms_it_uses_to_the_glossary(page):
    words = sorted(set(terms()) - COMMON)
    assert len(words) > 25
    assert unlinked(page.read_text("utf-8"), words) == []


def test_an_unlinked_term_is_seen():
    words = ["privacy loss", "accountant"]
    assert unlinked("The privacy loss is large.", words) == ["privacy loss"]
    assert unlinked("The {term}`privacy loss`, and accountants.", words) == ["accountant"]
    assert unlinked("{term}`Losses <privacy loss>`. The privacy loss.", words) == []
    assert unlinked("# Privacy loss\n```{code-cell} x\naccountant\n```\n", words) == []


@pytest.mark.parametrize("page", NUMBERED, ids=lambda page: page.stem)
def test_named_definitions_and_theorems_are_in_the_index(page):
    text = page.read_text("utf-8")
    for found in TITLED.finditer(text):
        if found.group(1) and "$" not in found.group(1) and "{" not in found.group(1):
            before = text[:found.start()].rstrip().splitlines()
            assert before[-1] == "```" and before[-2].startswith("```{index} "), found.group(1)


def rows():
    """The rows of the table of theorems: its cells."""
    lines = (BOOK / "theorems.md").read_text("utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:]


def test_every_theorem_has_its_row_in_the_table():
    stated = {label for page in NUMBERED for label in re.findall(
        r"\{prf:(?:theorem|lemma|proposition|corollary)\}[^\n]*\n:label: ([\w-]+)", page.read_text("utf-8"))}
    listed = [label for row in rows() for label in re.findall(r"\{prf:ref\}`([\w-]+)`", row[1])]
    defined = {label for page in NUMBERED for label in re.findall(r":label: ([\w-]+)", page.read_text("utf-8"))}
    assert stated - set(listed) == set()
    assert len(listed) == len(set(listed)) and set(listed) <= defined


def test_every_test_and_function_of_the_table_exists():
    sources = {path.name: path.read_text("utf-8") for path in (ROOT / "tests").glob("test_*.py")}
    package = {path.stem: path.read_text("utf-8") for path in (ROOT / "dpteach").glob("*.py")}
    for _, _, functions, tests in rows():
        for file in re.findall(r"`(test_\w+\.py)", tests):
            assert file in sources
        for name in re.findall(r"::(test_\w+)", tests):
            assert any(f"def {name}(" in text for text in sources.values()), name
        assert tests
        for module, name in re.findall(r"`(\w+)\.(\w+)", functions):
            assert re.search(rf"^(?:def|class) {name}\b", package[module], re.MULTILINE), (module, name)


MODULES = {name: importlib.import_module(f"dpteach.{name}") for _, names, _, _ in parts() for name in names}


def missing_tests(text):
    """`test_file.py::test_name` of a page that aren't there; … stands for the file named before, in one line."""
    lacking = []
    for line in text.splitlines():
        source = None
        for file, name in re.findall(r"`(?:tests/)?(test_\w+\.py|…)(?:::(\w+))?[^`]*`", line):
            if file != "…":
                path = ROOT / "tests" / file
                source = path.read_text("utf-8") if path.exists() else None
            if source is None or f"def {name}(" not in source and name:
                lacking.append(f"{file}::{name}")
    return lacking


def has(thing, names):
    """Whether `thing.a.b` is there; a field of a dataclass is, too."""
    for name in names:
        if name in getattr(thing, "__dataclass_fields__", ()):
            return True
        thing = getattr(thing, name, None)
    return thing is not None


def missing_functions(cell):
    """Names in a cell of the table that aren't there: `module.name`, or `name` of the module before."""
    lacking, module = [], None
    for names in re.findall(r"`([\w.]+)`", cell):
        first, *rest = names.split(".")
        module, rest = (first, rest) if first in MODULES else (module, [first, *rest])
        if module is None or not rest or not has(MODULES[module], rest):
            lacking.append(names)
    return lacking


def test_each_name_of_the_table_of_theorems_exists():
    assert missing_tests((BOOK / "theorems.md").read_text("utf-8")) == []
    assert [name for row in rows() for name in missing_functions(row[2])] == []


def test_each_name_of_the_table_of_what_was_broken_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert missing_tests(text) == [] and "`…_" not in text
    methods = re.findall(r"^\| `([A-Z]\w+)\.(\w+)`", text, re.MULTILINE)
    assert [names for names in methods if not any(has(module, names) for module in MODULES.values())] == []


def test_a_missing_name_is_seen():
    assert missing_tests("`test_gone.py::test_x`") == ["test_gone.py::test_x"]
    both = "`test_run.py::test_laws`, `…::test_oracles`, `test_laws.py::test_laws`\n`…::test_laws`"
    assert missing_tests(both) == ["…::test_oracles", "test_laws.py::test_laws", "…::test_laws"]
    assert missing_functions("`run.NoisySGD.sigma`, `NoisySGD.steps`") == []
    assert missing_functions("`run.NoisySGD.q`, `tail`, `nothing.f`") == ["run.NoisySGD.q", "tail", "nothing.f"]


def test_the_package_page_has_the_reading_order():
    listed = re.findall(r"^## `dpteach\.(\w+)`", (BOOK / "api.md").read_text("utf-8"), re.MULTILINE)
    assert listed == [name for name in MODULES if not name.startswith("_")]


def test_the_map_is_what_the_chapters_say():
    needs = chapter_map.chapter_needs()
    renew = "run tools/chapter_map.py"
    assert chapter_map.SVG.read_text("utf-8") == chapter_map.drawing(needs), renew
    assert chapter_map.listing(needs) in chapter_map.PAGE.read_text("utf-8"), renew
    assert needs["ch02"][1] == ["ch01"] and needs["ch05"][1] == ["ch02", "ch03", "ch04"]


def test_only_direct_needs_are_drawn():
    small = {"a": ("A", []), "b": ("B", ["a"]), "c": ("C", ["a", "b"])}
    assert chapter_map.direct("c", small) == ["b"] and chapter_map.reached("c", small) == {"a", "b", "c"}
    assert [chapter_map.level(x, small) for x in "abc"] == [0, 1, 2]
    assert chapter_map.drawing(small).count("marker-end") == 2


def test_the_status_page_shows_the_mutants(tmp_path, monkeypatch):
    counted = {"mutants": 9, "sampled": 5, "run": 4, "killed": 2, "equivalent": 1, "survived": 1}
    kept = {"date": "2026-01-02", "modules": {"laws": counted}, "total": counted}
    (tmp_path / "results.json").write_text(json.dumps(kept))
    monkeypatch.setattr(status, "MUTATIONS", tmp_path / "results.json")
    assert status.mutations() == ("2026-01-02", [["laws", 9, 4, 2, 1, 1], ["All", 9, 4, 2, 1, 1]])


def test_few_mutants_live():
    """At least 95 % of those that aren't equivalent are killed, in each module that was tried."""
    _, rows = status.mutations()
    for name, _, run, killed, equivalent, alive in rows:
        assert killed + equivalent + alive == run and killed >= 0.95 * (run - equivalent) > 0, name
    assert len(rows) == 10


def test_the_status_page_shows_the_fuzzing(tmp_path, monkeypatch):
    kept = {"date": "2026-01-02", "targets": {"data": {"seconds": 5, "inputs": 7, "findings": 1}}}
    (tmp_path / "fuzz.json").write_text(json.dumps(kept))
    monkeypatch.setattr(status, "FUZZ", tmp_path / "fuzz.json")
    assert status.fuzzed() == ("2026-01-02", [["Data files", 5, 7, 1]])


def test_ten_minutes_of_fuzzing_found_nothing():
    _, rows = status.fuzzed()
    assert sorted(row[0] for row in rows) == ["Command lines", "Data files"]
    assert sum(row[1] for row in rows) >= 600 and all(row[2] > 500 and row[3] == 0 for row in rows)


def test_what_the_status_page_counts(tmp_path, monkeypatch):
    cells = [nbformat.v4.new_code_cell(source, outputs=[nbformat.v4.new_output("stream", text=text)] if text else [])
             for source, text in [("import x", ""), ("print(f())", "1\n"), ("assert f() == 2", ""),
                                  ("check(f, on=[1])", "f: right.\n")]]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "a.ipynb")
    page = tmp_path / "a.md"
    page.write_text("```{code-cell} x\n---\nmystnb:\n  figure: {name: fig-a}\n---\n```\n```{live} x\n```\n"
                    "```{exercise} E\n```\n```{exercise-start} F\n```\n```{exercise-end}\n```\n")
    monkeypatch.setattr(status, "kept_notebook", lambda chapter: tmp_path / "a.ipynb")
    assert status.counts(page) == (4, 2, 2, 2, 2)


def test_the_teaching_guide_treats_every_chapter_and_its_marks_add_up():
    text = (BOOK / "teaching-guide.md").read_text("utf-8")
    sections = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    named = {section.splitlines()[0] for section in sections}
    numbered = {int(page.name[:2]) for page in NUMBERED if page.name[:2] != "00"}
    assert named == {"Conventions"} | {f"Chapter {n}" for n in numbered}
    for section in sections:
        assert all(f"*{part}.*" in section for part in ("Aims", "Time", "Needs", "Common mistakes", "Exam")), section
        scheme = re.search(r"\*Scheme \((\d+)\)\.\*(.*)", section, re.DOTALL)
        marks = sum(map(int, re.findall(r"\[(\d)\]", scheme.group(2))))
        assert marks == int(scheme.group(1)) or " mark" in scheme.group(2), section.splitlines()[0]


def test_each_chapter_of_the_plan_exists():
    text = (BOOK / "teaching-guide.md").read_text("utf-8") + (BOOK / "00-preface.md").read_text("utf-8")
    defined = {label for page in BOOK.glob("*.md")
               for label in re.findall(r"^\(([\w-]+)\)=|^:label: ([\w-]+)", page.read_text("utf-8"), re.MULTILINE)
               for label in label if label}
    for label in re.findall(r"\{ref\}`(?:[^`<]*<)?([\w-]+)", text):
        assert label in defined
