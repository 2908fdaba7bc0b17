"""Draw the map of the chapters: what each needs, read from its sentence "You need ...".

    python tools/chapter_map.py        # writes book/_static/map.svg and the list in book/map.md

A test fails when either isn't what the chapters say.
"""

import re
from html import escape

from frame import BOOK, ROOT

__all__ = ["chapter_needs", "drawing", "listing"]

SVG, PAGE = BOOK / "_static" / "map.svg", BOOK / "map.md"
MARKS = "<!-- list: written by tools/chapter_map.py -->", "<!-- end of the list -->"
# pixels: four columns, so that a phone shows letters of 10 pixels
BOX, GAP, ROW, EDGE = (90, 76), 14, 30, 12
ASIDE = {"ch06": 1, "ch07": 1, "ch20": 1}  # no chapter needs them: beside their part's own column


def chapter_needs():
    """Label, title and needed labels of each chapter, in their order."""
    found = {}
    for page in sorted(BOOK.glob("[0-9]*.md")):
        text = page.read_text("utf-8")
        label, title = re.search(r"^\(([\w-]+)\)=\n# (.*)$", text, re.MULTILINE).groups()
        needs = re.search(r"^You need.*?\n\n", text, re.MULTILINE | re.DOTALL)
        found[label] = title, re.findall(r"\{ref\}`(?:[^`<]*<)?([\w-]+)",
                                         needs.group()) if needs else []
    order = list(found)
    order.remove("preface")
    found.pop("preface")
    return {label: (title, [n for n in dict.fromkeys(needs) if n in order and n != label])
            for label, (title, needs) in found.items()}


def level(label, chapters):
    """How many chapters stand, at most, on a way to this one."""
    return 1 + max((level(need, chapters) for need in chapters[label][1]), default=-1)


def column(label):
    """Where a chapter's part stands: part I at the left, II in the middle, III at the right."""
    number = int(label[2:]) if re.fullmatch(r"ch\d\d", label) else 0
    return ASIDE.get(label, 3 if number > 13 else 2 if number > 7 else 0)


def places(chapters):
    """The upper left corner of each chapter's box: its part's column, and the row of its level or
    the next free one."""
    taken, where = set(), {}
    for label in chapters:
        row, at = level(label, chapters), column(label)
        while (row, at) in taken:
            row += 1
        taken.add((row, at))
        where[label] = EDGE + at * (BOX[0] + GAP), EDGE + row * (BOX[1] + ROW)
    return where


def reached(label, chapters):
    """All chapters that one needs, directly or through others."""
    return {label}.union(*(reached(need, chapters) for need in chapters[label][1]))


def direct(label, chapters):
    """What a chapter needs that no other of its needs needs already: the arrows of the drawing."""
    needs = chapters[label][1]
    return [n for n in needs
            if not any(n in reached(other, chapters) for other in needs if other != n)]


def way(start, end, boxes):
    """An arrow's path from the bottom of one box to the top of another: through the gaps where it
    skips a row."""
    (a, b), (x, y) = (start[0] + BOX[0] / 2, start[1] + BOX[1]), (end[0] + BOX[0] / 2, end[1] - 1)
    between = {box for box in boxes if start[1] < box[1] < end[1]}
    if not between or a == x and end[0] not in {box[0] for box in between}:
        middle = (b + y) / 2
        return f"M{a} {b}C{a} {middle} {x} {middle} {x} {y}"
    # beside the box that the arrow ends at
    gap = end[0] - GAP / 2 if x > a else end[0] + BOX[0] + GAP / 2
    first, last = b + ROW / 3, y - ROW / 2
    out, back = 5 if gap > a else -5, 5 if gap < x else -5
    return (f"M{a} {b}V{first - 5}Q{a} {first} {a + out} {first}H{gap - out}Q{gap} {first} {gap} "
            f"{first + 5}"
            f"V{last - 5}Q{gap} {last} {gap + back} {last}"
            f"H{x - back}Q{x} {last} {x} {last + 5}V{y}")


def drawing(chapters):
    """The map as SVG: boxes with arrows from what's needed to what needs it."""
    where = places(chapters)
    width = max(x for x, _ in where.values()) + BOX[0] + EDGE
    height = max(y for _, y in where.values()) + BOX[1] + EDGE
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             f'font-family="sans-serif" '
             f'font-size="12">',
             "<title>The chapters and what each needs</title>",
             '<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
             'markerHeight="7" '
             'orient="auto"><path d="M0 0 8 4 0 8z" fill="#777"/></marker></defs>',
             f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for label in chapters:
        for need in direct(label, chapters):
            parts.append(f'<path d="{way(where[need], where[label], set(where.values()))}" '
                         f'fill="none" stroke="#777" '
                         'marker-end="url(#to)"/>')
    for label, (title, _) in chapters.items():
        x, y = where[label]
        lines = wrapped(title)
        parts.append(f'<rect x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="6" '
                     f'fill="#eef4fb" '
                     'stroke="#2a5d8f"/>')
        for number, line in enumerate(lines):
            parts.append(f'<text x="{x + BOX[0] / 2}" '
                         f'y="{y + BOX[1] / 2 + 4 - 7 * (len(lines) - 1) + 14 * number}" '
                         f'text-anchor="middle">{escape(line)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def wrapped(title, limit=14, most=5):
    """A title in at most five lines; what's after a colon is left out."""
    words, lines = title.partition(":")[0].split(), [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) >= limit and len(lines) < most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def listing(chapters):
    """The same as a table in Markdown: each chapter, what it needs, and what needs it."""
    def refs(labels):
        return ", ".join(f"{{ref}}`{short(n)} <{n}>`" for n in labels) or "none"

    rows = ["| chapter | needs | is needed by |", "|---|---|---|"]
    for label, (title, needs) in chapters.items():
        users = [other for other, (_, wanted) in chapters.items() if label in wanted]
        rows.append(f"| {{ref}}`{title} <{label}>` | {refs(needs)} | {refs(users)} |")
    return "\n".join(rows)


def short(label):
    return str(int(label[2:])) if re.fullmatch(r"ch\d\d", label) else label


def main():
    chapters = chapter_needs()
    SVG.write_text(drawing(chapters), "utf-8")
    before, _, rest = PAGE.read_text("utf-8").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    PAGE.write_text(f"{before}{MARKS[0]}\n\n{listing(chapters)}\n\n{MARKS[1]}{after}", "utf-8")
    print(f"{SVG.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}: {len(chapters)} chapters")


if __name__ == "__main__":
    main()
