"""The domain and the argument checks: what is taken, what is refused, and in which words."""

import datetime
import decimal
import fractions
import math

import numpy as np
import pytest
import torch

from dpteach import domain

NOT_NUMBERS = [
    "0.5", b"1", None, True, np.True_, 1j, [], {}, object, torch.tensor(True), np.array("1"),
    decimal.Decimal("0.5"), fractions.Fraction(1, 2), datetime.datetime(2020, 1, 1), np.ma.masked,
    np.array([]), np.array([None]), [1, [2, 3]], torch.tensor(0.5, requires_grad=True), 10**400,
]  # fmt: skip
NOT_FINITE = [math.nan, math.inf, -math.inf, np.longdouble("1e4000")]

# Each argument's check, its ends, and numbers just outside; the table of the module's docstring.
TABLE = {
    "sigma": (domain.sigma, 0.05, 1e3, [0.0499, 1001, 0, -1]),
    "rate": (domain.rate, 1e-9, 1, [0.9e-9, 1.0001, 0, -0.1]),
    "steps": (domain.steps, 0, 10**9, [-1, 10**9 + 1, 2.5]),
    "delta": (domain.delta, 1e-30, 0.999, [0.9e-30, 1, 0, -1e-5]),
    "epsilon": (domain.epsilon, 0, 1e5, [-1e-9, 100001]),
    "mu": (domain.mu, 1e-6, 100, [0.9e-6, 101, 0, -1]),
    "alpha": (domain.alpha, 0, 1, [-1e-9, 1.1]),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_domain(name):
    check, low, high, outside = TABLE[name]
    assert (check(low), check(high)) == (low, high)
    for bad in [*outside, *NOT_NUMBERS, *NOT_FINITE]:
        with pytest.raises(ValueError, match=f"^{name} = .* isn't allowed: it must be a .*number"):
            check(bad)
    assert f"\n{name} " in domain.__doc__


def test_the_domain_for_arrays():
    assert domain.epsilons([0, 1e5]).tolist() == [0, 1e5] and domain.alphas(0.5).shape == ()
    for check, name, bad in ((domain.epsilons, "epsilon", [1, -1]), (domain.alphas, "alpha", [2])):
        with pytest.raises(ValueError, match=f"^{name} = "):
            check(bad)
    with pytest.raises(ValueError, match=r"^steps = 0 .*\[1, 1e9\]"):
        domain.steps(0, least=1)


HALVES = [
    0.5, np.float32(0.5), np.float64(0.5), np.array(0.5), torch.tensor(0.5),
    torch.tensor(0.5).double(), torch.tensor(0.5, dtype=torch.float16), np.float16(0.5),
]  # fmt: skip


@pytest.mark.parametrize("value", HALVES, ids=repr)
def test_every_kind_of_scalar_is_a_number(value):
    number = domain.number("x", value, "(0, 1]")
    assert number == 0.5 and type(number) is float


@pytest.mark.parametrize("value", [1, np.int8(1), np.uint64(1), torch.tensor(1), 1.0], ids=repr)
def test_every_kind_of_whole_number(value):
    number = domain.whole_number("steps", value)
    assert number == 1 and type(number) is int


def test_whole_numbers_beyond_floats_are_kept_exactly():
    assert domain.whole_number("steps", 2**63 + 1) == 2**63 + 1


@pytest.mark.parametrize(
    "value", [*NOT_NUMBERS, math.nan, [0.5, math.nan], [0.5, "a"], [0.5, 1.5], [True]], ids=repr
)
def test_what_is_no_array_of_numbers(value):
    with pytest.raises(ValueError, match=r"^x = .* isn't allowed: it must be numbers in \[0, 1\]"):
        domain.numbers("x", value, "[0, 1]")


def test_numbers_keep_their_shape():
    assert domain.numbers("x", [[0.0, 1.0]], "[0, 1]").shape == (1, 2)
    assert domain.numbers("x", torch.tensor([0.25, 1.0])).tolist() == [0.25, 1.0]
    assert domain.numbers("x", 3).dtype == np.float64
    with pytest.raises(ValueError, match="^x = "):
        domain.numbers("x", np.ma.array([0.1, 0.2], mask=[True, False]))


@pytest.mark.parametrize("interval, inside, outside", [
    ("(0, 1]", [5e-324, 1], [0, -0.0, 1 + 1e-15]),
    ("[0, 1)", [0, 1 - 1e-16], [-5e-324, 1]),
    ("[0, inf)", [0, 1e308], [math.inf]),
    ("(-inf, inf)", [-1e308], [-math.inf, math.nan]),
])  # fmt: skip
def test_ends_of_an_interval(interval, inside, outside):
    for value in inside:
        assert domain.number("x", value, interval) == value
    for value in outside:
        with pytest.raises(ValueError, match="^x = "):
            domain.number("x", value, interval)


@pytest.mark.parametrize("value", ["Poisson", "", None, 1, ["poisson"], np.str_("x")], ids=repr)
def test_one_of_refuses(value):
    with pytest.raises(ValueError, match="^sampling = .*'poisson', 'fixed-size'; no shuffling$"):
        domain.one_of("sampling", value, ("poisson", "fixed-size"), "no shuffling")


@pytest.mark.parametrize("value", ["", " ", "a\nb", 3, None, "x" * 61], ids=repr)
def test_text_refuses(value):
    with pytest.raises(ValueError, match="^unit = .* one line of 1 to 60 printable letters"):
        domain.text("unit", value)


@pytest.mark.parametrize("values", [(), None, 3, ("a", 1), "ab", {"a"}], ids=repr)
def test_instances_refuses(values):
    with pytest.raises(ValueError, match="^names = .* at least one; give for example x$"):
        domain.instances("names", values, str, "x")


def test_a_refusal_is_one_short_sentence():
    """Short, on one line, also for arrays and numbers that Python doesn't print."""
    for value in (np.zeros((40, 40)), 10**5000, "x" * 1000, [0.5] * 100):
        with pytest.raises(ValueError) as refusal:
            domain.number("x", value, "(0, 1)", "say why")
        text = str(refusal.value)
        assert "\n" not in text and len(text) < 130
        assert text.endswith("isn't allowed: it must be a number in (0, 1); say why")
