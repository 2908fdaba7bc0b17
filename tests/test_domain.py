"""Argument checks: what is taken, what is refused, and that a refusal says the four facts."""

import math

import numpy as np
import pytest
import torch

from dpteach import domain

NOT_NUMBERS = [
    "0.5",
    b"1",
    None,
    True,
    np.True_,
    1j,
    [],
    {},
    object,
    torch.tensor(True),
    np.array("1"),
]


@pytest.mark.parametrize(
    "value",
    [
        0.5,
        np.float32(0.5),
        np.float64(0.5),
        np.array(0.5),
        torch.tensor(0.5),
        torch.tensor(0.5).double(),
    ],
    ids=repr,
)
def test_real_takes_every_kind_of_scalar(value):
    number = domain.number("q", value, "(0, 1]")
    assert number == 0.5 and type(number) is float


@pytest.mark.parametrize("value", [1, np.int8(1), np.uint64(1), torch.tensor(1), 1.0], ids=repr)
def test_whole_takes_every_kind_of_whole_number(value):
    number = domain.whole_number("steps", value)
    assert number == 1 and type(number) is int


@pytest.mark.parametrize(
    "value", [*NOT_NUMBERS, math.nan, math.inf, -math.inf, [0.5], np.array([0.5])], ids=repr
)
def test_real_refuses(value):
    with pytest.raises(
        ValueError, match=r"^q = .* isn't allowed: it must be a number in \(0, 1\]; the rate$"
    ):
        domain.number("q", value, "(0, 1]", "the rate")


@pytest.mark.parametrize(
    "value", [*NOT_NUMBERS, math.nan, math.inf, -math.inf, 2.5, -1, [3]], ids=repr
)
def test_whole_refuses(value):
    with pytest.raises(
        ValueError, match=r"^steps = .* isn't allowed: it must be a whole number in \[0, inf\)$"
    ):
        domain.whole_number("steps", value)


@pytest.mark.parametrize(
    "value",
    [*NOT_NUMBERS, math.nan, [0.5, math.nan], [0.5, "a"], [[1], [1, 2]], [0.5, 1.5], [True]],
    ids=repr,
)
def test_reals_refuses(value):
    with pytest.raises(
        ValueError, match=r"^alpha = .* isn't allowed: it must be numbers in \[0, 1\]"
    ):
        domain.numbers("alpha", value, "[0, 1]")


def test_reals_keeps_the_shape():
    assert domain.numbers("alpha", [[0.0, 1.0]], "[0, 1]").shape == (1, 2)
    assert domain.numbers("alpha", torch.tensor([0.25, 1.0])).tolist() == [0.25, 1.0]
    assert domain.numbers("alpha", 3).dtype == np.float64


@pytest.mark.parametrize(
    "interval, inside, outside",
    [
        ("(0, 1]", [5e-324, 1], [0, -0.0, 1 + 1e-15]),
        ("[0, 1)", [0, 1 - 1e-16], [-5e-324, 1]),
        ("[0, inf)", [0, 1e308], [math.inf]),
        ("(-inf, inf)", [-1e308], [-math.inf, math.nan]),
    ],
)
def test_ends_of_an_interval(interval, inside, outside):
    for value in inside:
        assert domain.number("x", value, interval) == value
    for value in outside:
        with pytest.raises(ValueError, match="^x = "):
            domain.number("x", value, interval)


def test_numbers_beyond_floats():
    """Whole numbers that no float holds are kept exactly or refused, never rounded in silence."""
    assert domain.whole_number("steps", 2**63 + 1) == 2**63 + 1
    for check_one in (domain.whole_number, domain.number, domain.numbers):
        with pytest.raises(ValueError, match="^x = "):
            check_one("x", 10**400)


@pytest.mark.parametrize(
    "value", ["Poisson", "", None, 1, ["poisson"], np.str_("shuffle")], ids=repr
)
def test_choice_refuses(value):
    with pytest.raises(
        ValueError, match="^sampling = .*'poisson', 'fixed-size'; shuffling isn't covered$"
    ):
        domain.one_of("sampling", value, ("poisson", "fixed-size"), "shuffling isn't covered")


def test_a_long_value_is_cut():
    with pytest.raises(ValueError) as refusal:
        domain.number("q", np.eye(30))
    assert len(str(refusal.value)) < 150 and "\n" not in str(refusal.value)
