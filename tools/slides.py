"""Slides for each week and block of the teaching guide's plans, in _build/html/slides (after `make
book`).

They're taken from the built pages: a chapter's title and opening, its definitions and theorems, its
figures, and the box at its end, each on a slide under its section's heading. Arrows or space go on;
printed, each slide is a sheet.
"""

import copy
import re

from bs4 import BeautifulSoup
from frame import ROOT

__all__ = ["decks", "slides"]

HTML = ROOT / "_build" / "html"
SHOWN = "div.proof:is(.theorem, .definition, .corollary), figure, div.admonition.summary"
PASSED = "details, .solution, .exercise"
FRAME = """<!doctype html>
<html lang="en" data-theme="light"><head><meta charset="utf-8">
<title>{title}</title><base href="../book/">
<meta name="viewport" content="width=device-width">{scripts}
<style>
html {{ scroll-snap-type: y mandatory; font: 1.5rem/1.45 system-ui, sans-serif; }}
html {{ color: #1b1b1b; background: #fff; }}
body {{ margin: 0; }}
section {{ min-height: 100vh; box-sizing: border-box; padding: 5vh 8vw; scroll-snap-align: start; }}
section.first {{ display: flex; flex-direction: column; justify-content: center; }}
h1 {{ font-size: 2.2em; }}
h2 {{ margin: 0 0 1em; font-size: 0.9em; color: #555; font-weight: 400; }}
figure {{ margin: 0; }} figcaption {{ font-size: 0.8em; }}
img {{ height: 62vh; max-width: 100%; object-fit: contain; }}
.admonition-title {{ font-weight: 700; }} a {{ color: inherit; }}
@page {{ size: landscape; }} @media print {{ section {{ break-after: page; min-height: 0; }} }}
</style></head><body>{body}
<script>
addEventListener("keydown", (event) => {{
  const ways = {{ArrowRight: 1, ArrowDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1}};
  const way = ways[event.key];
  if (!way) return;
  const all = [...document.querySelectorAll("section")];
  const at = all.findLastIndex((slide) => slide.offsetTop <= scrollY + innerHeight / 2);
  all[Math.min(Math.max(at + way, 0), all.length - 1)].scrollIntoView();
  event.preventDefault();
}});
</script></body></html>"""


def slides(page):
    """The slides of a built page, as HTML."""
    article = page.select_one("article")
    for link in article.select("a.headerlink"):
        link.decompose()
    opening = [p for p in article.select("section > p") if p.find_previous("h2") is None][:2]
    yield f"<section class=first>{article.h1}{''.join(map(str, opening))}</section>"
    for part in article.select(SHOWN):
        heading = part.find_previous("h2")
        if not any(part in passed.descendants for passed in article.select(PASSED)):
            shown = copy.copy(part)
            for element in shown.select("[id]"):
                del element["id"]
            yield f"<section><h2>{heading.get_text() if heading else ''}</h2>{shown}</section>"


def decks(guide):
    """(name, file names of its chapters) of each row of the built teaching guide's plans."""
    for table in guide.select("article table"):
        kind = table.select_one("th").get_text()
        for row in table.select("tbody tr") if kind in ("week", "block") else ():
            name, chapters = row.select("td")[:2]
            yield f"{kind} {name.get_text()}", [link["href"].split("#")[0]
                                                for link in chapters.select("a")]


def main():
    def read(name):
        return BeautifulSoup((HTML / "book" / name).read_text("utf-8"), "html.parser")

    (HTML / "slides").mkdir(exist_ok=True)
    for name, chapters in decks(read("teaching-guide.html")):
        pages = [read(chapter) for chapter in chapters]
        scripts = "".join(str(script) for script in pages[0].select("script")
                          if "mathjax" in str(script).lower())
        body = "".join(slide for page in pages for slide in slides(page))
        path = HTML / "slides" / f"{re.sub(r'[^a-z0-9]+', '-', name)}.html"
        path.write_text(FRAME.format(title=name.capitalize(), scripts=scripts, body=body), "utf-8")
        print(f"{path.relative_to(ROOT)}: {body.count('<section')} slides")


if __name__ == "__main__":
    main()
