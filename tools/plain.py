"""Chapters as notebooks that Jupyter shows as they are: what only the book's own builder reads
becomes plain Markdown.

Theorems, exercises, equations and figures keep the numbers that they have in the book, references
become those numbers, terms and quoted results become text. The code cells aren't touched.
"""

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import nbformat
import yaml
from frame import BOOK, ROOT, chapters, kept_notebook
from outputs import convert
from pybtex.database import parse_file

__all__ = ["plain_notebook", "plain_text", "write_downloads"]

FENCE = re.compile(r"^(`{3,}|:{3,})\{([\w:-]+)\} *(.*)$")
OPTION = re.compile(r"^:([\w-]+): *(.*)$")
LABELLED = re.compile(r"^\$\$\n(.*?)\n\$\$ \(([\w-]+)\)$", re.DOTALL | re.MULTILINE)
ROLE = re.compile(r"\{([\w:]+)\}`([^`]+)`")
TARGET = re.compile(r"^\(([\w-]+)\)=\n?", re.MULTILINE)
THEOREMS = ("theorem", "lemma", "proposition", "corollary", "definition", "algorithm")
NOTE = "*This chapter as a notebook. It needs the package `dpteach`: see the README of the book.*"


def split(label):
    """(shown, key) of a role's text: `shown <key>`, or a key alone."""
    found = re.fullmatch(r"(.*?)\s*<([^>]+)>", label, re.DOTALL)
    return (found.group(1), found.group(2)) if found else ("", label)


@functools.cache
def numbers():
    """Label of each theorem, exercise, equation, figure and heading of the book: what a reference
    to it shows.

    Pages with one number (the preface's three, all 0) are counted as one, in the order of the table
    of contents.
    """
    shown, count = {}, Counter()
    for page in toc_pages():
        chapter, text = re.match(r"(\d+)-", page.name), page.read_text("utf-8")
        for label, title in re.findall(r"^\(([\w-]+)\)=\n+#+ (.*)$", text, re.MULTILINE):
            shown[label] = title
        for kind, label in labels(text) if chapter else ():
            first = int(chapter.group(1))
            count[kind, first] += 1
            number = f"{first}.{count[kind, first]}"
            shown[label] = f"({number})" if kind == "equation" else f"{kind.capitalize()} {number}"
    return shown


def toc_pages():
    """The book's pages in the order of the table of contents."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    listed = [toc["root"]] + [entry["file"] for part in toc.get("parts", [])
                              for entry in part["chapters"]]
    return [ROOT / f"{name}.md" for name in listed]


def labels(text):
    """(kind, label) of everything numbered in a page's source, in its order."""
    pattern = re.compile(r"\{(?:prf:)?(\w+)(?:-start)?\}[^\n]*\n:label: ([\w-]+)"
                         r"|^\$\$ \(([\w-]+)\)|^ +figure:\s+(?:\{ *)?name: ([\w-]+)"
                         r"|\{live\}[^\n]*\n:name: ([\w-]+)", re.MULTILINE)
    for kind, label, equation, *figure in pattern.findall(text):
        if equation:
            yield "equation", equation
        elif any(figure):
            yield "fig.", "".join(figure)
        elif kind in THEOREMS or kind == "exercise":
            yield kind, label


@functools.cache
def authors():
    """Key of each work in the bibliography: its authors' surnames and year."""
    shown = {}
    for key, entry in parse_file(BOOK / "references.bib").entries.items():
        names = [" ".join(person.prelast_names + person.last_names) for person in
                 entry.persons.get("author",
                                   entry.persons.get("editor", []))] or [entry.fields.get("title",
                                                                                          key)]
        names = [re.sub(r"[{}\\'\"`]", "", name) for name in names]
        start = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
        shown[key] = start, entry.fields.get("year", "")
    return shown


def values(chapter):
    """The results that a chapter's kept notebook records, by name."""
    if not kept_notebook(chapter).exists():
        return {}
    found = {}
    for cell in nbformat.read(kept_notebook(chapter), as_version=4).cells:
        for output in cell.get("outputs", []):
            found.update(re.findall(r"^(\S+) = (.*)$", "".join(output.get("text", "")),
                                    re.MULTILINE))
    return found


def role(kind, label, known):
    """What a role shows, as plain text."""
    shown, key = split(label)
    if kind.startswith("glue"):
        return known.get(key.split(":")[0], key)
    if kind.startswith("cite"):
        works = [authors().get(k.strip(), (k, "")) for k in key.split(",")]
        if kind == "cite:t":
            return ", ".join(f"{who} ({year})" for who, year in works)
        return "(" + "; ".join(f"{who} {year}" for who, year in works) + ")"
    if kind == "source":
        return f"`{key.removeprefix('dpteach.')}`"
    if kind in ("term", "index"):
        return shown or key
    if kind in ("ref", "numref", "eq", "prf:ref"):
        return shown or numbers().get(key, key)
    return f"`{key}`"


def blocks(text):
    """(directive, argument, body) of each directive of a text, and (None, None, text) between
    them."""
    lines, plain, at = text.split("\n"), [], 0
    while at < len(lines):
        opened = FENCE.match(lines[at])
        mark = opened and opened.group(1)
        end = next((i for i in range(at + 1, len(lines)) if lines[i].rstrip() == mark), None)
        if end is None:
            plain.append(lines[at])
            at += 1
            continue
        yield None, None, "\n".join(plain)
        yield opened.group(2), opened.group(3), "\n".join(lines[at + 1:end])
        plain, at = [], end + 1
    yield None, None, "\n".join(plain)


def options(body):
    """The options at the top of a directive's body, and the rest."""
    found, lines = {}, body.split("\n")
    while lines and (option := OPTION.match(lines[0])):
        found[option.group(1)] = option.group(2)
        lines.pop(0)
    return found, "\n".join(lines).strip("\n")


def included(path, name):
    """The source that a literalinclude shows: a function or class of a file."""
    source = (BOOK / path).resolve().read_text("utf-8")
    if not name:
        return source
    kinds = ast.FunctionDef, ast.ClassDef  # not the import of a name
    node = ast.parse(source)
    for part in name.split("."):  # a class, then its method
        named = (n for n in ast.walk(node) if isinstance(n, kinds) and n.name == part)
        node = next(named, ast.Pass())
    if not isinstance(node, kinds):
        raise ValueError(f"{path} has no {name}, which a chapter includes")
    first = min([node.lineno] + [d.lineno for d in node.decorator_list])
    return "\n".join(source.splitlines()[first - 1:node.end_lineno])


def directive(kind, argument, body, known):
    """A directive as Markdown: a bold head, then its text."""
    given, body = options(body)
    name, inner = kind.removeprefix("prf:").removesuffix("-start"), plain_text(body, known)
    if kind == "literalinclude":
        return f"```python\n{included(argument, given.get('pyobject'))}\n```"
    if kind in ("index", "live", "raw") or kind.endswith("-end"):
        return ""
    if name == "solution":
        return f"**Solution of {numbers().get(argument, argument).lower()}.**\n\n{inner}"
    if name == "proof":
        return f"*Proof.* {inner} ∎"
    if name in THEOREMS or name == "exercise":
        head = numbers().get(given.get("label"), name.capitalize())
        title = f" ({plain_text(argument, known)})" if argument else ""
        return f"**{head}{title}.** {inner}"
    return f"**{argument}**\n\n{inner}" if argument else inner


def plain_text(text, known):
    """MyST text as Markdown; `known` are the results that it may quote."""
    parts = []
    for kind, argument, body in blocks(text):
        if kind:
            parts.append(directive(kind, argument, body, known))
            continue
        body = TARGET.sub("", body)
        body = LABELLED.sub(lambda m: f"$$\n{m[1]} "
                                      f"\\tag{{{numbers().get(m[2], '?').strip('()')}}}\n$$", body)
        parts.append(ROLE.sub(lambda m: role(m[1], m[2], known), body))
    return "\n".join(parts).strip("\n")


def plain_cells(notebook, chapter):
    """Give the text cells of a notebook their plain form, in place; empty ones go."""
    known = values(chapter)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = plain_text(cell.source, known).strip()
    notebook.cells = [c for c in notebook.cells if c.cell_type == "code" or c.source]


def plain_notebook(chapter):
    """The whole chapter, solutions included, as a notebook to run."""
    notebook = convert(chapter)
    plain_cells(notebook, chapter)
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(NOTE, id="note"))
    return notebook


def write_downloads(folder):
    """Write every chapter's notebook below a folder, under the path of its page."""
    for chapter in chapters():
        path = Path(folder) / chapter.relative_to(ROOT).with_suffix(".ipynb")
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(plain_notebook(chapter), path)

