"""Figures: labelled, the same bytes each time, and told apart without colour."""

import io

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from dpteach.classroom import figures


@pytest.fixture(autouse=True)
def close_figures():
    with matplotlib.rc_context():
        matplotlib.use("agg")
        yield
        plt.close("all")


def svg():
    fig, ax = figures.figure("steps T", "ε")
    for k in range(3):
        ax.plot([1, 2, 3], [k, k + 1, k], label=f"k = {k}")
    ax.legend()
    out = io.StringIO()
    fig.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def test_a_figure_is_the_same_bytes_each_time():
    assert svg() == svg() and "<dc:date>" not in svg()


def test_axes_are_labelled():
    _, ax = figures.figure("steps T", "ε")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("steps T", "ε")
    _, axes = figures.figure(["a", "b", "c", "d"], "ε", rows=2, columns=2)
    assert [ax.get_xlabel() for ax in axes] == ["a", "b", "c", "d"]
    assert {ax.get_ylabel() for ax in axes} == {"ε"}


def luminance(colour):
    """Relative luminance of WCAG 2."""
    rgb = np.array(matplotlib.colors.to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_lines_differ_in_style_as_well_as_colour():
    figures.use_style()
    cycle = list(matplotlib.rcParams["axes.prop_cycle"])
    first = cycle[:4]
    assert len({str(entry["linestyle"]) for entry in first}) == len(first)
    assert len({str(entry) for entry in cycle}) == len(cycle)


def test_colours_stand_out_on_the_white_card():
    contrast = [1.05 / (luminance(colour) + 0.05) for colour in figures.COLORS]
    assert min(contrast[:4]) > 2.5 and matplotlib.rcParams["figure.facecolor"] == "white"
