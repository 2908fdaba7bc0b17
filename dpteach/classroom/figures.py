"""Figures in one style: vector graphics, colours that colour-blind readers can tell apart.

Figures are drawn on a white card with dark ink, which stays legible in the book's dark mode, and
come out byte for byte the same each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
from cycler import cycler

from dpteach import domain

__all__ = ["COLORS", "figure", "use_style"]

#: Okabe and Ito's colours without yellow, which is too faint on white. Line styles repeat what the
#: colours say, so that a figure can also be read in grey.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")

_STYLE: Any = {  # matplotlib types the keys one by one
    "axes.prop_cycle": cycler(color=COLORS)
    + cycler(linestyle=["-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), "-"]),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "white",
    "axes.labelsize": 12,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.size": 11,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "dpteach",
}


def use_style() -> None:
    """Set the book's style for all later figures of this session.

    Examples
    --------
    >>> use_style()
    >>> matplotlib.rcParams["svg.hashsalt"]
    'dpteach'
    """
    matplotlib.rcParams.update(_STYLE)
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:
        return
    if get_ipython() is not None:
        set_matplotlib_formats("svg", metadata={"Date": None}, bbox_inches=None)


def figure(
    xlabel: str | Sequence[str], ylabel: str | Sequence[str], *, rows: int = 1, columns: int = 1,
    size: tuple[float, float] | None = None, **kwargs: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """A new figure in the book's style, with labelled axes.

    Parameters
    ----------
    xlabel, ylabel : str or sequence of str
        Axis labels with their units; one text for all panels or one for each.
    rows, columns : int
        Number of axes below and beside each other. On a phone two columns get small: prefer rows.
    size : (float, float), optional
        Width and height in inches; by default 5.4 by 3.5 for one panel, and at most 7.4 wide.
    **kwargs
        Passed to `matplotlib.pyplot.subplots`.

    Returns
    -------
    (figure, axes)
        `axes` is a single Axes for one panel, a flat array otherwise.

    Examples
    --------
    >>> fig, ax = figure("steps T", "ε")
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('steps T', 'ε')
    >>> plt.close(fig)
    """
    rows = domain.whole_number("rows", rows, "[1, 20]")
    columns = domain.whole_number("columns", columns, "[1, 20]")
    panels, labels = rows * columns, {}
    for axis, label in (("xlabel", xlabel), ("ylabel", ylabel)):
        one = isinstance(label, str)
        labels[axis] = (label,) * panels if one else domain.instances(axis, label, str, '"steps T"')
        if len(labels[axis]) != panels:
            raise ValueError(f"{axis} has {len(labels[axis])} texts for {panels} panels: give one, "
                             f"or one for each")
    use_style()
    size = size or (5.4 if columns == 1 else 7.4, 3.5 * rows)
    fig, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, **kwargs)
    axes = axes.ravel()
    for ax, below, beside in zip(axes, *labels.values(), strict=True):
        ax.set_xlabel(below)
        ax.set_ylabel(beside)
    return fig, axes[0] if len(axes) == 1 else axes
