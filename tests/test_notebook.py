"""Recorded numbers: how they're written, printed and stored for the text."""

import numpy as np
import pytest

from dpteach.classroom.recorded import format_number, record


@pytest.mark.parametrize("value, text", [
    (1.258643, "1.259"), (0.28470001, "0.2847"), (60000, "60000"), (3515.625, "3516"),
    (123456.7, "123500"), (0.00001234567, "1.235e-05"), (1e-5, "1e-05"), (0.5, "0.5"),
    (-0.0, "0"), (0.0, "0"), (-1.25, "-1.25"), (True, "True"), (12, "12"),
    (np.float64(1.258643), "1.259"), (np.int64(19), "19"), (np.array([1.0, 2.5]), "1, 2.5"),
    ([1.06699, 1.06812], "1.067, 1.068"), (float("inf"), "∞"), ("upper bound", "upper bound"),
    (2e9, "2e+09"), (10**12, "1000000000000"),
])
def test_numbers_are_written_with_four_significant_digits(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize("value, down, up", [
    (1.19124, "1.191", "1.192"), (2.06892, "2.068", "2.069"), (0.3, "0.3", "0.3"),
    (-1.25001, "-1.251", "-1.25"),
    (1.23456e-5, "1.234e-05", "1.235e-05"), (60000, "60000", "60000"), (99999.5, "99990", "100000"),
    (0.0, "0", "0"),
])
def test_bounds_are_rounded_to_their_safe_side(value, down, up):
    assert format_number(value, side="down") == down and format_number(value, side="up") == up
    assert format_number((value, value)) == f"{down}, {up}"  # a bracket still holds what it held
    assert format_number([value, value], side="up") == f"{up}, {up}"
    with pytest.raises(ValueError, match="side"):
        format_number(value, side="safe")


def test_digits_can_be_chosen():
    assert format_number(1.258643, 6) == "1.25864" and format_number(1.258643, 2) == "1.3"


@pytest.mark.parametrize("value", [float("nan"), None, 1j, object(), (1.0, float("nan"))])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ValueError, match="value"):
        format_number(value)


def test_record_prints_even_without_a_notebook(capsys):
    record("ch03-eps", 1.258643)
    assert capsys.readouterr().out == "ch03-eps = 1.259\n"


def test_record_stores_the_number_for_the_text(monkeypatch, capsys):
    import IPython
    import myst_nb
    glued = {}
    monkeypatch.setattr(IPython, "get_ipython", lambda: object())
    monkeypatch.setattr(myst_nb, "glue", lambda name, value, display: glued.update({name: value}))
    record("a", 1.258643)
    record("b", 1.2345678e-7)
    record("c", 2.5e9)
    record("d", [1.0, 2e-9, 3.5])
    record("e", (1.0669, 1.0671))
    record("f", "one, two")
    assert {name: repr(value) for name, value in glued.items()} == {
        "a": "1.259", "b": "1.235 × 10⁻⁷", "c": "2.5 × 10⁹",
        "d": "1, 2 × 10⁻⁹ and 3.5", "e": "[1.066, 1.068]", "f": "one, two"}
