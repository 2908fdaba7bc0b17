"""Numbers that the text of the book quotes: printed, so that they're compared, and glued.

A chapter never types a computed number. A cell records it, and the sentence refers to it by name.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

from dpteach import domain
from dpteach.guarantees import SIDES, Guarantee, Side, rounded

__all__ = ["format_number", "record"]

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class _Shown:
    """Text whose repr is the text itself, without quotes: what glue stores."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def format_number(value: Any, digits: int = 4, side: Side = "nearest") -> str:
    """Write a number with `digits` significant digits, as the book prints numbers.

    Parameters
    ----------
    value : int, float, str or a sequence of these
        A whole number is written exactly. A sequence is written with commas. A tuple of two is a
        bracket: its first number is rounded down, its second up, so that what was between them
        still is.
    digits : int
        Significant digits, at least 1.
    side : str
        'nearest', or 'up' for an upper bound, 'down' for a lower one.

    Raises
    ------
    ValueError
        If a value is NaN, or isn't a number or a text.

    Examples
    --------
    >>> format_number(1.258643), format_number(60000), format_number(0.00001234567)
    ('1.259', '60000', '1.235e-05')
    >>> format_number((1.06699, 1.06812)), format_number(1.19124, side="up")
    ('1.066, 1.069', '1.192')
    """
    digits = domain.whole_number("digits", digits, "[1, 17]")
    domain.one_of("side", side, ("nearest", "up", "down"))
    if hasattr(value, "tolist"):  # a numpy or torch scalar or array
        value = value.tolist()
    if isinstance(value, str):
        return value
    if isinstance(value, (tuple, list)):
        bracket = isinstance(value, tuple) and len(value) == 2
        sides = ("down", "up") if bracket else (side,) * len(value)
        return ", ".join(format_number(part, digits, one)
                         for part, one in zip(value, sides, strict=True))
    if not isinstance(value, numbers.Real):
        raise ValueError(f"value must be a number or a text, not {value!r}")
    if isinstance(value, numbers.Integral):
        return str(value)
    number = float(value)
    if math.isnan(number):
        raise ValueError("value is NaN: the book quotes numbers only. Find out where it comes from")
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    if side != "nearest":
        number = rounded(number, digits, side)
    text = f"{number:.{digits}g}"
    if "e+" in text and abs(number) < 1e7:
        text = str(int(float(text)))
    return "0" if float(text) == 0 else text


def _in_prose(text: str) -> str:
    """`1.234e-05` as a sentence writes it: 1.234 × 10⁻⁵."""
    head, mark, power = text.partition("e")
    if not mark or not power.lstrip("+-").isdigit():
        return text
    return f"{head} × 10{str(int(power)).translate(_SUPERSCRIPTS)}"


def _listed(parts: list[str]) -> str:
    """`a, b and c`: several numbers in a sentence."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def record(
    name: str, value: Any, digits: int = 4, side: Side = "nearest",
    guarantee: Guarantee | None = None
) -> None:
    """Print `name = value` and make the value available to the text by that name.

    A sentence of the chapter then shows it by the role ``glue:text`` with this name. Outside a
    notebook, or without myst-nb, the line is printed and nothing else happens.

    Parameters
    ----------
    name : str
        Name of the number, unique in its chapter, such as ``"ch03-eps-10k"``.
    value : int, float, str or a sequence of these
        See `format_number`. In the text a tuple is shown as a bracket, ``[a, b]``, another
        sequence as ``a, b and c``.
    digits, side
        As for `format_number`.
    guarantee : Guarantee
        Whose ε or δ the value is: the side then follows from the guarantee's kind.

    Examples
    --------
    >>> record("ch03-eps-10k", 1.258643)
    ch03-eps-10k = 1.259
    """
    if guarantee is not None:
        side = SIDES[guarantee.kind]
    name, text = domain.text("name", name), format_number(value, digits, side)
    print(f"{name} = {text}")
    try:
        from IPython import get_ipython
        from myst_nb import glue
    except ImportError:
        return
    if get_ipython() is not None:
        parts = [text] if isinstance(value, str) else [_in_prose(part) for part in text.split(", ")]
        shown = f"[{', '.join(parts)}]" if isinstance(value, tuple) else _listed(parts)
        glue(name, _Shown(shown), display=False)
