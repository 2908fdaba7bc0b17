"""The book as one EPUB, in _build/epub: Sphinx's own builder, with every formula as MathML.

    python tools/epub.py             # build it and look it through
    python tools/epub.py --check F   # look a file through

The pages come from the same cache of executed chapters as the HTML: nothing is run twice.
"""

import argparse
import posixpath
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import yaml
from frame import BOOK, ROOT, environment

__all__ = ["build", "problems"]

TARGET = ROOT / "_build" / "epub"
XHTML = "{http://www.w3.org/1999/xhtml}"
MATH = "{http://www.w3.org/1998/Math/MathML}math"
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
    command = [sys.executable, "-c", start, "build", ".", "--path-output", "_build/.epub", "--builder", "custom",
               "--custom-builder", "epub", "-n", "-W", "--keep-going"]
    if subprocess.run(command, cwd=ROOT, env=environment()).returncode:
        raise SystemExit("\nThe EPUB was not built: see the warnings above.")
    (made,) = (ROOT / "_build" / ".epub" / "_build" / "epub").glob("*.epub")
    TARGET.mkdir(parents=True)
    return finish(made, TARGET / made.name)


def clean(text):
    """A page as EPUB's rules want it: an id once, text in summaries, no list in a paragraph, no hint about scripts."""
    seen = set()

    def once(found):
        again = found.group(1) in seen
        seen.add(found.group(1))
        return "" if again else found.group(0)

    text = re.sub(r"<noscript>.*?</noscript>|<svg[^>]*sd-octicon.*?</svg>", "", text, flags=re.DOTALL)
    text = re.sub(r'<span class="expanded[^>]*>.*?</span>', "", text)  # of "Show ..." and "Hide ...", readers show both
    text = re.sub(r"<summary.*?</summary>", lambda m: re.sub(r"<(/?)p\b", r"<\1span", m.group()), text, flags=re.DOTALL)
    text = text.replace(' role="doc-biblioentry"', "")
    text = re.sub(r"<p>\s*(<ul\b(?:(?!<ul\b).)*?</ul>)\s*</p>", r"\1", text, flags=re.DOTALL)  # Sphinx's fields
    return re.sub(r' id="([^"]*)"', once, text)


def finish(made, path):
    """Copy Sphinx's file, mended: without MathJax, with all style sheets, with MathML announced; returns its path."""
    folder = Path(made).parent
    with zipfile.ZipFile(made) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        content = {name: old.read(name) for name in old.namelist() if not name.startswith("_static/mathjax/")}
        for name in [name for name in content if name.endswith(".xhtml")]:
            page = clean(content[name].decode("utf-8"))
            content[name] = page.encode("utf-8")
            for sheet in re.findall(r'<link[^>]*href="(?:\.\./)*(_static/[^"?]*\.css)', page):
                content.setdefault(sheet, (folder / sheet).read_bytes())  # some are copied after Sphinx packs
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
    for number, sheet in enumerate(name for name in content if name.endswith(".css") and name not in listed):
        ElementTree.SubElement(items, f"{OPF}item", {"href": sheet, "id": f"sheet{number}", "media-type": "text/css"})
    (identifier,) = opf.iter("{http://purl.org/dc/elements/1.1/}identifier")
    return ElementTree.tostring(opf, "utf-8", xml_declaration=True), identifier.text.encode()


def toc_pages():
    """Names of all pages in the table of contents, without folder and ending."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    listed = [toc["root"]] + [entry["file"] for part in toc["parts"] for entry in part["chapters"]]
    return [Path(name).name for name in listed]


def page_problems(name, text):
    """What's wrong in one page of XHTML: not well-formed, raw TeX, scripts, a picture without a description."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        return [f"{name}: not well-formed XML ({error})"]
    found = [f"{name}: {picture.get('src')} has no alternative text" for picture in root.iter(f"{XHTML}img")
             if not (picture.get("alt") or "").strip()]
    if any(True for _ in root.iter(f"{XHTML}script")):
        found.append(f"{name}: holds a script, which readers don't run")
    blocks = {XHTML + tag for tag in ("ul", "ol", "dl", "table")}
    if any(block.tag in blocks for paragraph in root.iter(f"{XHTML}p") for block in paragraph):
        found.append(f"{name}: a list or table inside a paragraph")
    code = {e for tag in ("pre", "code") for top in root.iter(XHTML + tag) for e in top.iter()}
    prose = "".join((e.text or "") for e in root.iter() if e not in code)
    return found + [f"{name}: raw TeX ({mark})" for mark in RAW_TEX if mark in prose]


def problems(path, pages=None):
    """Everything that would keep a reader from showing the file, in plain words; and how many formulas it has."""
    found, formulas = [], 0
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        first = archive.infolist()[0]
        if (first.filename, first.compress_type) != ("mimetype", zipfile.ZIP_STORED):
            found.append("the first entry isn't an uncompressed mimetype")
        elif archive.read("mimetype") != b"application/epub+zip":
            found.append("the mimetype is another one")
        opf = ElementTree.fromstring(archive.read("content.opf"))
        items = {item.get("href"): item for item in opf.iter(f"{OPF}item")}
        found += [f"content.opf names {href}, which isn't there" for href in items if href not in names]
        spine = {ref.get("idref") for ref in opf.iter(f"{OPF}itemref")}
        for page in toc_pages() if pages is None else pages:
            href = posixpath.join(BOOK.name, f"{page}.xhtml")
            if href not in items or items[href].get("id") not in spine:
                found.append(f"{page} isn't in the book's reading order")
        for name in (n for n in names if n.endswith(".xhtml")):
            text = archive.read(name).decode("utf-8")
            found += page_problems(name, text)
            formulas += text.count("<math ")
            if "<math " in text and "mathml" not in (items[name].get("properties") or ""):
                found.append(f"{name}: content.opf doesn't say that it holds MathML")
    return found, formulas


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", metavar="FILE", help="look a file through, build nothing")
    options = parser.parse_args()
    path = Path(options.check) if options.check else build()
    found, formulas = problems(path)
    print("\n".join(found))
    if found:
        raise SystemExit(f"{path}: {len(found)} problems")
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {len(toc_pages())} pages, {formulas} formulas")


if __name__ == "__main__":
    main()
