"""Finding one's way: glossary links, the index, the table of theorems, the map, the teaching
guide."""

import re

import chapter_map
import pytest
import theorems
from frame import BOOK

NUMBERED = sorted(BOOK.glob("[0-9]*.md"))
# Words of everyday use, which the glossary explains once but which need no link in each chapter.
COMMON = {"exact", "law", "sigma", "epoch", "bracket", "upper bound", "lower bound", "asymptotic",
          "neighbouring", "Poisson-A", "fixed-A", "half-A"}
TITLED = re.compile(r"^`{3,}\{prf:(?:definition|theorem|lemma|proposition|corollary|algorithm)\} "
                    r"*([^\n]*)\n:label:",
                    re.MULTILINE)


def terms():
    """The words that the glossary explains."""
    body = (BOOK / "glossary.md").read_text("utf-8").split("{glossary}")[1]
    return re.findall(r"^(?![ #`:(])(\S[^\n]*)\n", body, re.MULTILINE)


def prose(text):
    """A page without its head, code, formulas, titles, captions, options, tables, and words in
    roles."""
    blank = (r"\A---\n.*?^---\n",
             r"^(`{3,})(?:\{(?:code-cell|eval-rst|literalinclude|index|live)\}|python"
             r"|text)[^\n]*\n.*?^\1 *$",
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
            and not re.search(rf"\{{term\}}`(?:[^`]*[< ])?{re.escape(word)}s?>?`", text,
                              re.IGNORECASE)]


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


def test_each_theorem_has_its_place_in_the_table():
    stated = {label for page in NUMBERED for label in re.findall(
        r"\{prf:(?:theorem|lemma|proposition|corollary)\}[^\n]*\n:label: ([\w-]+)",
        page.read_text("utf-8"))}
    listed = [label for label, _, _ in theorems.boxes()]
    assert sorted(listed) == sorted(stated) and len(stated) > 90
    assert set(theorems.marks()) <= stated, "a test's mark names no theorem"


def test_the_map_is_what_the_chapters_say():
    needs = chapter_map.chapter_needs()
    renew = "run tools/chapter_map.py"
    assert chapter_map.SVG.read_text("utf-8") == chapter_map.drawing(needs), renew
    assert chapter_map.listing(needs) in chapter_map.PAGE.read_text("utf-8"), renew
    assert needs["ch02"][1] == ["ch01"] and needs["ch05"][1] == ["ch02", "ch03", "ch04"]


def test_only_direct_needs_are_drawn():
    small = {"a": ("A", []), "b": ("B", ["a"]), "c": ("C", ["a", "b"])}
    assert chapter_map.direct("c", small) == ["b"] and chapter_map.reached("c", small) == {"a", "b",
                                                                                           "c"}
    assert [chapter_map.level(x, small) for x in "abc"] == [0, 1, 2]
    assert chapter_map.drawing(small).count("marker-end") == 2


def test_the_teaching_guide_treats_every_chapter_and_its_marks_add_up():
    text = (BOOK / "teaching-guide.md").read_text("utf-8")
    sections = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    named = {section.splitlines()[0] for section in sections}
    numbered = {int(page.name[:2]) for page in NUMBERED if page.name[:2] != "00"}
    assert named == {"Conventions"} | {f"Chapter {n}" for n in numbered}
    for section in sections:
        assert all(f"*{part}.*" in section
                   for part in ("Aims", "Time", "Needs", "Common mistakes", "Exam")), section
        scheme = re.search(r"\*Scheme \((\d+)\)\.\*(.*)", section, re.DOTALL)
        marks = sum(map(int, re.findall(r"\[(\d)\]", scheme.group(2))))
        assert marks == int(scheme.group(1)) or " mark" in scheme.group(2), section.splitlines()[0]


def test_each_chapter_of_the_plan_exists():
    text = (BOOK / "teaching-guide.md").read_text("utf-8") + (BOOK
                                                              / "00-preface.md").read_text("utf-8")
    defined = {label for page in BOOK.glob("*.md")
               for label in re.findall(r"^\(([\w-]+)\)=|^:label: ([\w-]+)", page.read_text("utf-8"),
                                       re.MULTILINE)
               for label in label if label}
    for label in re.findall(r"\{ref\}`(?:[^`<]*<)?([\w-]+)", text):
        assert label in defined
