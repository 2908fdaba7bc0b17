"""How long a page takes in Chromium, from its opening until its last formula is drawn.

    python benchmarks/bench_pages.py             # after `make book`; `make bench` prints the table too

Each page is opened from disk in a fresh window size of a desktop, twice; the shorter time counts, as the first
opening also fills the browser's caches. The goal is 2 s for each page. Scripts, styles, fonts and pictures are in it.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

GOAL = 2.0  # seconds
DRAWN = """const done = arguments[0];
(window.MathJax?.startup?.promise || Promise.resolve()).then(() => document.fonts.ready)
  .then(() => done([performance.now() / 1000, document.querySelectorAll("mjx-container").length]));"""


def seconds(browser, page: Path) -> tuple[float, int]:
    """Time until the page's last formula is drawn, and how many formulas it has."""
    times = []
    for _ in range(2):
        browser.open(page.as_uri())
        times.append(browser.driver.execute_async_script(DRAWN))
    return min(times)


def main() -> None:
    from browser import chromium

    pages = sorted((ROOT / "_build" / "html" / "book").glob("*.html"))
    if not pages:
        sys.exit("no built pages: run `make book` first")
    print(f"seconds until a page's last formula is drawn (goal {GOAL:g})")
    with chromium() as browser:
        rows = sorted(((*seconds(browser, page), page.stem) for page in pages), reverse=True)
    for took, formulas, name in rows:
        print(f"  {took:6.2f}  {formulas:5d} formulas  {name}")
    over = sum(row[0] > GOAL for row in rows)
    print(f"{over} of {len(rows)} pages take longer than {GOAL:g} s")


if __name__ == "__main__":
    main()
