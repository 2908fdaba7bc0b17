"""The book as one PDF, in _build/pdf: Chromium prints each built page, pypdf joins them with
bookmarks.

    python tools/pdf.py              # after `make book`

Each page is measured at the width of the paper first: what's wider than the text, or would scroll,
would be cut.
"""

import io
import json
import tempfile
import time
from base64 import b64decode
from contextlib import contextmanager
from pathlib import Path

import yaml
from chromium import find, missing
from frame import ROOT
from plain import toc_pages
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, Fit, NameObject
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

__all__ = ["join", "pages_in_order", "printer"]

HTML = ROOT / "_build" / "html"
TARGET = ROOT / "_build" / "pdf" / "noisy-sgd.pdf"
INCH = 96  # CSS pixels
WIDTH, HEIGHT, MARGIN = 8.27, 11.69, 0.75  # A4, in inches
SCALE = 0.8  # of a screen's letters
FOOTER = ('<div style="font-size: 8px; width: 100%; text-align: center; color: #555">'
          "<span class=title></span>: <span class=pageNumber></span></div>")
# Formulas drawn, pictures there, solutions open; what a figure or a check folds stays folded.
READY = """
  document.documentElement.dataset.theme = "light";
  document.querySelectorAll("#jb-print-toc").forEach(e => e.remove());
  const folded = ".tag_figure *, .tag_check *, .tag_exercise *";
  document.querySelectorAll(`details:not(${folded})`).forEach(d => { d.open = true; });
  document.querySelectorAll(".toggle-hidden").forEach(d => d.classList.remove("toggle-hidden"));
  document.querySelectorAll("img").forEach(i => { i.loading = "eager"; });
  const drawn = window.MathJax && MathJax.startup ? MathJax.startup.promise : Promise.resolve();
  const done = arguments[0];
  drawn.then(() => Promise.all([...document.images].map(i => i.decode().catch(() => 0))))
    .then(() => done(true));
"""
TOO_WIDE = """
  const article = document.querySelector(".bd-article");
  const edge = article.getBoundingClientRect().right + 2;
  const kinds = "p, pre, table, img, figure, dt, li, mjx-container > mjx-math";
  const styled = e => getComputedStyle(e);
  const scrolls = e => /auto|scroll/.test(styled(e).overflowX + styled(e).overflowY);
  return [...article.querySelectorAll("*")]
    .filter(e => e.getBoundingClientRect().width && (scrolls(e) || (e.matches(kinds) &&
      (e.getBoundingClientRect().right > edge ||
       (e.tagName === "PRE" && e.scrollWidth > e.clientWidth + 1)))))
    .map(e => e.tagName.toLowerCase() + ": " + (e.textContent || e.alt || "").trim().slice(0, 60));
"""


@contextmanager
def printer():
    """A headless Chromium that sees pages as paper does."""
    if missing():
        raise SystemExit(missing().replace("browser tests NOT RUN", "the PDF was not made"))
    options = Options()
    options.binary_location = find("DPTEACH_CHROMIUM")
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--disable-quic",
                 "--no-first-run", "--disable-background-networking", "--disable-component-update",
                 "--disable-sync", "--allow-file-access-from-files"):
        options.add_argument(flag)
    with tempfile.TemporaryDirectory() as profile:
        options.add_argument(f"--user-data-dir={profile}")
        driver = webdriver.Chrome(options=options, service=Service(find("DPTEACH_CHROMEDRIVER")))
        driver.set_script_timeout(120)
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": round((WIDTH - 2 * MARGIN) * INCH / SCALE), "height": 1000,
            "deviceScaleFactor": 1, "mobile": False})
        try:
            yield driver
        finally:
            driver.quit()


def show(driver, page):
    """Open a built page and wait until it's all drawn; returns what paper would cut."""
    driver.get(Path(page).resolve().as_uri())
    driver.execute_async_script(READY)
    return driver.execute_script(TOO_WIDE)


def print_page(driver):
    """The page that's open, as a PDF with its headings as bookmarks."""
    answer = driver.execute_cdp_cmd("Page.printToPDF", {
        "scale": SCALE, "paperWidth": WIDTH, "paperHeight": HEIGHT, "marginTop": MARGIN,
        "marginBottom": MARGIN, "marginLeft": MARGIN, "marginRight": MARGIN,
        "printBackground": True, "displayHeaderFooter": True, "headerTemplate": "<span></span>",
        "footerTemplate": FOOTER, "generateTaggedPDF": True, "generateDocumentOutline": True})
    return b64decode(answer["data"])


def join(parts, title):
    """One PDF of several: (page's path, its title, PDF) each; a bookmark for each page, its
    sections below it.

    Links between pages lead to the first sheet of the page they name; those to pages that aren't
    among them go.
    """
    writer, starts = PdfWriter(), {}
    for path, name, data in parts:
        reader = PdfReader(io.BytesIO(data))
        first = len(writer.pages)
        starts[Path(path).name] = first
        writer.append(reader, import_outline=False)
        top = writer.add_outline_item(title=name, page_number=first)
        for level, heading, sheet in headings(reader):
            if level == 1:
                writer.add_outline_item(title=heading, page_number=first + sheet, parent=top,
                                        fit=Fit.fit())
    for sheet in writer.pages:
        links = ArrayObject(link for link in sheet.get("/Annots", [])
                            if relink(writer, link.get_object(), starts))
        if "/Annots" in sheet:
            sheet[NameObject("/Annots")] = links
    writer.add_metadata({"/Title": title})
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def relink(writer, link, starts):
    """Turn a link to a built page into one to its first sheet; False for a page that isn't part of
    the PDF."""
    address = str(link.get("/A", {}).get("/URI", ""))
    name = Path(address.split("#")[0]).name
    if not address.startswith("file:"):
        return True
    if name not in starts:  # the index, a source page: it would name a folder of this computer
        return False
    del link["/A"]
    link[NameObject("/Dest")] = ArrayObject([writer.pages[starts[name]].indirect_reference,
                                             NameObject("/Fit")])
    return True


def headings(reader):
    """(level, text, sheet) of each bookmark that Chromium made: the page's own title has level
    0."""
    def walk(items, level):
        for item in items:
            if isinstance(item, list):
                yield from walk(item, level + 1)
            else:
                sheet = reader.get_destination_page_number(item)
                yield level, item.title.rstrip("#").strip(), sheet
    return list(walk(reader.outline, 0))


def pages_in_order():
    """The built pages in the order of the table of contents."""
    return [HTML / page.relative_to(ROOT).with_suffix(".html") for page in toc_pages()]


def main():
    started, parts, wide = time.monotonic(), [], []
    with printer() as driver:
        for page in pages_in_order():
            wide += [f"{page.stem}: {what}" for what in show(driver, page)]
            heading = driver.execute_script(
                "const h = document.querySelector('h1').cloneNode(true);"
                "h.querySelectorAll('a.headerlink').forEach(a => a.remove()); return h.textContent")
            parts.append((page, heading.strip(), print_page(driver)))
            print(page.stem, flush=True)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    title = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["title"]
    TARGET.write_bytes(join(parts, title))
    print("\n".join(wide))
    if wide:
        raise SystemExit(f"{TARGET}: {len(wide)} things would be cut: wider than the paper, or "
                         f"scrolling")
    print(json.dumps({"file": str(TARGET), "MB": round(TARGET.stat().st_size / 1e6, 1),
                      "pages": len(parts),
                      "sheets": len(PdfReader(TARGET).pages),
                      "seconds": round(time.monotonic() - started)}))


if __name__ == "__main__":
    main()
