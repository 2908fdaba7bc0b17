"""Count the package's lines of code: what holds code, without blank lines, comments and docstrings.

    python tools/size.py        # a table: each part, its modules in reading order, its lines, its limit

The mathematics is what one reads to follow every number from a run to its guarantee. The rest applies it.
"""

import ast
import io
import tokenize

from frame import ROOT

__all__ = ["LONGEST", "PARTS", "code_lines", "parts"]

PACKAGE = ROOT / "dpteach"
LONGEST = 300  # lines of one module
# Each part's modules in reading order, and the most lines that they may have.
PARTS = {
    "Mathematics": (
        "_validate laws run guarantees moments bounds composition tradeoff lattice tensor_power limits accountants "
        "audit",
        2000),
    "Training": ("_cache sampling mnist clipping training distributed", 915),
    "Statements and command line": ("calibration report __main__", 565),
    "Classroom": ("exercises notebook plotting", 270),
}


def code_lines(path):
    """Lines that hold code: no blank lines, comments or docstrings."""
    source = path.read_text(encoding="utf-8")
    documentation = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            documentation |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - documentation)


def parts():
    """Rows: a part's name, its modules, its lines of code, the most it may have."""
    return [(name, modules.split(), sum(code_lines(PACKAGE / f"{module}.py") for module in modules.split()), limit)
            for name, (modules, limit) in PARTS.items()]


if __name__ == "__main__":
    for name, modules, lines, limit in parts():
        print(f"{lines:5} of at most {limit:4}  {name}: {', '.join(modules)}")
