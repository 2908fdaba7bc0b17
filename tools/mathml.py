"""Formulas as MathML, for readers that run no script: the EPUB.

latex2mathml does the work. Put right here: an environment and a delimiter that it doesn't know,
letters whose style readers take from Unicode only, the gap after log and its like, and the sides on
which aligned columns meet.
"""

import re
import unicodedata
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util.math import get_node_equation_number

__all__ = ["mathml", "register"]

NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
STYLES = {"double-struck": "DOUBLE-STRUCK", "script": "SCRIPT", "bold": "BOLD",
          "fraktur": "FRAKTUR"}
KNOWN = [(r"\{aligned\}", "{align*}"), (r"\{gathered\}", "{matrix}"),
         (r"\\[bB]igg?[lr]\\([{}])", r"\\\1"),  # \bigl\{ becomes \{
         (r"(\\[bB]igg?[lr])\\\|", r"\1‖")]  # \Bigl\| becomes \Bigl‖
SIDES = ("right", "left")
SCRIPTS = {NAMESPACE + "msup": 1, NAMESPACE + "msub": 1, NAMESPACE + "msubsup": 2}
LIMITS = ("lim", "sup", "inf", "max", "min")
MI = NAMESPACE + "mi"
ROWS = tuple(NAMESPACE + name for name in ("math", "mrow", "mtd", "mstyle"))
ElementTree.register_namespace("", NAMESPACE[1:-1])


def styled(letter, style):
    """The letter of Unicode's mathematical alphabet, as MathML Core has no other way to ask for
    it."""
    name = f"{STYLES[style]} CAPITAL {letter}"
    for candidate in (f"MATHEMATICAL {name}", name):
        try:
            return unicodedata.lookup(candidate)
        except KeyError:
            continue
    raise ValueError(f"no {style} {letter} in Unicode: use another letter, or add it to "
                     f"tools/mathml.py")


def mathml(tex, display=False):
    r"""A formula as one <math> element; ValueError where something of it would be lost.

    >>> mathml(r"\mathbb E[x]").count("𝔼")
    1
    """
    source = tex.strip()
    for theirs, ours in KNOWN:
        source = re.sub(theirs, ours, source)
    try:
        text = convert(source, display="block" if display else "inline")
        root = ElementTree.fromstring(text)
    except Exception as error:  # the converter raises many kinds, and & outside a table isn't XML
        raise ValueError(f"not convertible to MathML: {tex.strip()} ({error})") from error
    shown = "".join(root.itertext())
    if "\\" in shown:
        raise ValueError(f"not convertible to MathML: {tex.strip()} (left as it is: {shown})")
    for parent in list(root.iter()):
        _group(parent)
        _dress(parent, display)
    if "{align" in source:
        for row in root.iter(NAMESPACE + "mtr"):
            _meet(row)
    root.set("alttext", " ".join(source.split()))
    return ElementTree.tostring(root, encoding="unicode")


def _group(parent):
    """A script has one base: a binomial's brackets and fraction become one."""
    scripts = SCRIPTS.get(parent.tag, 0)
    if scripts and len(parent) > scripts + 1:
        base = ElementTree.Element(NAMESPACE + "mrow")
        for child in list(parent)[:-scripts]:
            parent.remove(child)
            base.append(child)
        parent.insert(0, base)


def _dress(parent, display):
    """Letters of other alphabets, limits below their operator, and a thin space after a function's
    name."""
    children = list(parent)
    for child in children:
        letter, style = child.text or "", child.get("mathvariant")
        if style in STYLES and len(letter) == 1 and letter.isupper():
            child.text = styled(letter, style)
            del child.attrib["mathvariant"]
        elif child.tag == MI and len(letter) == 1 and "Α" <= letter <= "Ω":
            child.set("mathvariant", "normal")  # capital Greek stands upright, as TeX sets it
    if display and parent.tag == NAMESPACE + "msub" and children[0].text in LIMITS:
        parent.tag = NAMESPACE + "munder"
    if parent.tag in ROWS:
        for child, follows in zip(children, children[1:], strict=False):
            named, last = (e.tag == MI and len(e.text or "") > 1 for e in (child, follows))
            after = named and follows.tag not in (NAMESPACE + "mo", NAMESPACE + "mspace")
            before = last and child.tag in (MI, NAMESPACE + "mn", NAMESPACE + "mfrac")
            if after or before:
                space = ElementTree.Element(NAMESPACE + "mspace", width="0.167em")
                parent.insert(list(parent).index(follows), space)


def _meet(row):
    """Let the columns of aligned formulas meet at the sign of relation, with its usual space around
    it."""
    for column, cell in enumerate(row):
        cell.set("style", f"text-align: {SIDES[column % 2]}; padding: 0.2em 0")
        cell.insert(0 if column % 2 else len(cell), ElementTree.Element(NAMESPACE + "mrow"))


def _inline(translator, node):
    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _display(translator, node):
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    if node["number"]:
        translator.body.append(f'<span class="eqno">({get_node_equation_number(translator, node)})'
                               f'</span>')
    translator.body.append(mathml(node.astext(), display=True) + "</div>\n")
    raise nodes.SkipNode


def register(app):
    """Make this the EPUB's renderer of formulas; the HTML keeps MathJax."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    app.add_config_value("epub_math_renderer", "mathml", "env")
