"""The book as one EPUB, in _build/epub: Sphinx's own builder, with every formula as MathML.

    python tools/epub.py             # build it and look it through

The pages come from the same cache of executed chapters as the HTML: nothing is run twice.
"""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

from frame import ROOT, environment
from plain import toc_pages

__all__ = ["build", "problems"]

TARGET = ROOT / "_build" / "epub"
XHTML = "{http://www.w3.org/1999/xhtml}"
OPF = "{http://www.idpf.org/2007/opf}"
ElementTree.register_namespace("", OPF[1:-1])
ElementTree.register_namespace("dc", "http://purl.org/dc/elements/1.1/")
# A reader can't scroll a line of code into sight; tables and pictures stay within the page.
SHEET = b"""
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.8em; }
td code, th code { overflow-wrap: anywhere; }
img { max-width: 100%; height: auto; }
"""
RAW_TEX = ("\\(", "\\[", "$$")


def build():
    """Build the EPUB with warnings as errors; returns its path."""
    shutil.rmtree(TARGET, ignore_errors=True)
    start = "from jupyter_book.cli.main import main; main(prog_name='jupyter-book')"
    command = [sys.executable, "-c", start, "build", ".", "--path-output", "_build/.epub",
               "--builder", "custom",
               "--custom-builder", "epub", "-n", "-W", "--keep-going"]
    if subprocess.run(command, cwd=ROOT, env=environment()).returncode:
        raise SystemExit("\nThe EPUB was not built: see the warnings above.")
    (made,) = (ROOT / "_build" / ".epub" / "_build" / "epub").glob("*.epub")
    TARGET.mkdir(parents=True)
    return finish(made, TARGET / made.name)


def clean(text):
    """A page as EPUB's rules want it: an id once, text in summaries, no list in a paragraph, no
    hint about scripts."""
    seen = set()

    def once(found):
        again = found.group(1) in seen
        seen.add(found.group(1))
        return "" if again else found.group(0)

    text = re.sub(r"<noscript>.*?</noscript>|<svg[^>]*sd-octicon.*?</svg>", "", text,
                  flags=re.DOTALL)
    # of "Show ..." and "Hide ...", readers show both
    text = re.sub(r'<span class="expanded[^>]*>.*?</span>', "", text)
    text = re.sub(r"<summary.*?</summary>", lambda m: re.sub(r"<(/?)p\b", r"<\1span", m.group()),
                  text, flags=re.DOTALL)
    text = re.sub(r' role="doc-biblioentry"|<link[^>]*codeautolink[^>]*>', "", text)
    # Sphinx's fields
    text = re.sub(r"<p>\s*(<ul\b(?:(?!<ul\b).)*?</ul>)\s*</p>", r"\1", text, flags=re.DOTALL)
    return re.sub(r' id="([^"]*)"', once, text)


def finish(made, path):
    """Copy Sphinx's file, mended: without MathJax, with all style sheets, with MathML announced;
    returns its path."""
    folder = Path(made).parent
    with zipfile.ZipFile(made) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        content = {name: old.read(name) for name in old.namelist()
                   if not name.startswith("_static/mathjax/")}
        for name in [name for name in content if name.endswith(".xhtml")]:
            page = clean(content[name].decode("utf-8"))
            content[name] = page.encode("utf-8")
            for sheet in re.findall(r'<link[^>]*href="(?:\.\./)*(_static/[^"?]*\.css)', page):
                # some are copied after Sphinx packs
                content.setdefault(sheet, (folder / sheet).read_bytes())
        content["_static/epub.css"] += SHEET
        content["content.opf"], identifier = manifest(content)
        uid = rb'\1"' + identifier + b'"'
        content["toc.ncx"] = re.sub(rb'(name="dtb:uid" content=)"[^"]*"', uid, content["toc.ncx"])
        for name, data in content.items():
            new.writestr(name, data, zipfile.ZIP_STORED if name == "mimetype" else None)
    return path


def manifest(content):
    """content.opf for these files, and the book's identifier."""
    opf = ElementTree.fromstring(content["content.opf"])
    (items,) = opf.iter(f"{OPF}manifest")
    for item in list(items):
        if item.get("href") not in content:
            items.remove(item)
        elif b"<math " in content[item.get("href")]:
            item.set("properties", "mathml")
    listed = {item.get("href") for item in items}
    for number, sheet in enumerate(name for name in content
                                   if name.endswith(".css") and name not in listed):
        ElementTree.SubElement(items, f"{OPF}item",
                               {"href": sheet, "id": f"sheet{number}", "media-type": "text/css"})
    (identifier,) = opf.iter("{http://purl.org/dc/elements/1.1/}identifier")
    return ElementTree.tostring(opf, "utf-8", xml_declaration=True), identifier.text.encode()


def page_problems(name, text):
    """What's wrong in one page of XHTML: not well-formed, raw TeX, scripts, a picture without a
    description."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        return [f"{name}: not well-formed XML ({error})"]
    code = {e for tag in ("pre", "code") for top in root.iter(XHTML + tag) for e in top.iter()}
    prose = "".join(e.text or "" for e in root.iter() if e not in code)
    bare = [picture for picture in root.iter(f"{XHTML}img")
            if not (picture.get("alt") or "").strip()]
    wrong = {"a picture without an alternative text": bare,
             "a script, which readers don't run": list(root.iter(f"{XHTML}script")),
             "raw TeX": any(mark in prose for mark in RAW_TEX)}
    return [f"{name}: {what}" for what, there in wrong.items() if there]


def problems(path, pages):
    """Everything that would keep a reader from showing these pages, in plain words; and how many
    formulas they have."""
    found, formulas = [], 0
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        opf = ElementTree.fromstring(archive.read("content.opf"))
        items = {item.get("href"): item for item in opf.iter(f"{OPF}item")}
        spine = {ref.get("idref") for ref in opf.iter(f"{OPF}itemref")}
        read = {href for href, item in items.items() if item.get("id") in spine}
        found += [f"content.opf names {href}, which isn't there" for href in items
                  if href not in names]
        found += [f"{page} isn't in the book's reading order" for page in pages
                  if f"book/{page}.xhtml" not in read]
        for name in (n for n in names if n.endswith(".xhtml")):
            text = archive.read(name).decode("utf-8")
            found += page_problems(name, text)
            formulas += text.count("<math ")
            if "<math " in text and "mathml" not in (items[name].get("properties") or ""):
                found.append(f"{name}: content.opf doesn't say that it holds MathML")
    return found, formulas


def main():
    path = build()
    pages = [page.stem for page in toc_pages()]
    found, formulas = problems(path, pages)
    print("\n".join(found))
    if found:
        raise SystemExit(f"{path}: {len(found)} problems")
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {len(pages)} pages, {formulas} formulas")


if __name__ == "__main__":
    main()
