"""From a run to all its guarantees: other programs' numbers, reasons, warnings, the limits."""

import dataclasses
import math

import numpy as np
import pytest
from golden import records, value
from numpy.testing import assert_allclose
from points import points

from dpteach.accountants import (
    NAMES,
    account,
    answer,
    assumptions,
    proved,
    run_under,
    summary,
    warnings_for,
)
from dpteach.guarantees import KINDS, Bracket, GaussianGuarantee, NothingProved
from dpteach.run import NoisySGD

RUNS = {"A": (15, 1.3), "B": (60, 1.1), "C": (45, 0.7)}


def mnist(letter, relation):
    epochs, sigma = RUNS[letter]
    return run_under(relation, n=60000, batch_size=256, epochs=epochs, sigma=sigma)


def of_mnist(letter, relation, **options):
    return account(mnist(letter, relation), relation, **options)


# --- moments, against the tail bound over another program's Rényi divergences


@pytest.mark.parametrize("steps, printed", [(10000, 1.2586), (40000, 2.5759)])
def test_headline(steps, printed):
    run = NoisySGD.abadi16(rate=0.01, sigma=4.0, steps=steps)
    moments = account(run, "add-remove")["moments"]
    expected, order = value("tail bound (alpha", T=steps)
    assert_allclose(moments.epsilon(1e-5), expected, rtol=1e-10)
    assert round(moments.epsilon(1e-5), 4) == printed
    assert moments.details(1e-5) == {"order": order, "orders": "integer"}


@pytest.mark.parametrize("letter, least", [("A", 1.1912), ("B", 3.0084), ("C", 7.0980)])
def test_moments_of_the_three_runs(letter, least):
    """At most 0.003 above the least value over all real orders, and never below it."""
    moments = of_mnist(letter, "add-remove", orders="real")["moments"]
    assert least - 5e-5 <= moments.epsilon(1e-5) <= least + 0.003
    grid, order = value("Mironov conversion, TF-privacy 2019", run=letter)  # coarse orders
    assert moments.epsilon(1e-5) <= grid + 1e-9 <= moments.epsilon(1e-5) + 0.03
    assert abs(moments.details(1e-5)["order"] + 1 - order) < 1.5
    for direction in ("rem direction", "add direction"):  # brackets by an independent computation
        assert moments.epsilon(1e-5) > value(direction, run=letter)[1]
    found = value("symmetrised pair C_p(G)", run=letter)[0]  # rounded to 4 digits there
    assert_allclose(of_mnist(letter, "replace-one")["moments"].epsilon(1e-5), found, atol=6e-5)


# --- central limits, against another program's, which takes E·n/m steps without rounding up


@pytest.mark.parametrize("name, relation", [("uniform", "replace-one"), ("poisson", "add-remove")])
def test_limits_agree_with_another_program(name, relation):
    for letter, (epochs, _) in RUNS.items():
        clt = of_mnist(letter, relation)["clt"]
        unrounded = clt.mu * math.sqrt(epochs * 60000 / 256 / mnist(letter, relation).steps)
        assert_allclose(unrounded, value(f"compute_mu_{name}", run=letter), rtol=1e-12)
        assert_allclose(clt.epsilon(1e-5), value(f"compute_eps_{name}", run=letter), rtol=2e-4)
        assert clt.kind == "asymptotic" and clt.details(1e-5)["mu"] == clt.mu


def test_a_limit_that_says_nothing():
    clt = account(NoisySGD.abadi16(rate=0.5, sigma=0.05, steps=10), "add-remove")["clt"]
    assert isinstance(clt, NothingProved) and clt.kind == "asymptotic" and clt.name == "clt"
    assert clt.epsilon(1e-5) == math.inf and "mu = " in clt.reason
    assert "poisson" in clt.assumptions


# --- account


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_account_is_a_lazy_mapping(relation, monkeypatch):
    run = mnist("A", relation)
    found = account(run, relation)
    assert tuple(found) == NAMES and len(found) == len(NAMES) and "clt" in found
    assert found["moments"] is found["moments"]
    for name, g in found.items():
        assert g.name == name and g.kind in KINDS
        assert relation in g.assumptions and run.sampling in g.assumptions
        assert isinstance(g, Bracket) == (name == "tensor-power")
    with pytest.raises(KeyError):
        found["pld"]
    monkeypatch.setattr("dpteach.tensor_power.TensorPower.__post_init__", lambda self: 1 / 0)
    account(run, relation)["moments"].epsilon(1e-5)  # asks nobody else
    with pytest.raises(ZeroDivisionError):
        account(run, relation)["tensor-power"]


def test_one_loop_asks_them_all():
    """Numbers and arrays, whatever the guarantee; where nothing is proved, the safe ends."""
    alpha = np.array([0.0, 0.1, 0.5, 1.0])
    for name, g in of_mnist("A", "add-remove").items():
        epsilon, f = g.epsilon(1e-5), g.f(alpha)
        assert type(epsilon) is float and type(g.delta(1.0)) is float
        if name == "berry-esseen":
            assert (epsilon, g.delta(1.0)) == (math.inf, 1.0) and np.all(f == 0) and g.reason
            continue
        assert_allclose(g.delta(epsilon), 1e-5, rtol=1e-2 if name == "tensor-power" else 1e-4)
        assert f[0] > 0.99 and np.all(np.diff(f) <= 0) and np.all(f <= 1 - alpha + 1e-12)


def test_numbers_anywhere():
    """Random runs of the whole domain: an upper bound is never below the bracket's lower end."""
    for k, (rate, sigma, steps, delta) in enumerate(points(8, "rate", "sigma", "steps", "delta")):
        relation = ("add-remove", "replace-one")[k % 2]
        found = account(run_under(relation, rate=rate, sigma=sigma, steps=steps), relation)
        low = found["tensor-power"].lower.epsilon(delta)
        for name in ("tensor-power", "moments", "rdp", "strong-composition", "berry-esseen"):
            epsilon = found[name].epsilon(delta)
            assert low <= epsilon * (1 + 1e-9) and epsilon >= 0, (name, rate, sigma, steps, delta)
            assert math.isfinite(epsilon) or answer(found[name], delta)["reason"]


@pytest.mark.parametrize("more", [{"noise_multiplier": 1}, {"ways": "poisson"}, {"Sigma": 2}])
def test_other_facts_are_refused_by_name(more):
    name = next(iter(more))
    with pytest.raises(ValueError, match=f"^{name} = .* left out; .*sigma is noise std / sensitiv"):
        run_under("add-remove", rate=0.1, sigma=1.0, steps=3, **more)


def test_questions_that_are_refused():
    run = mnist("A", "add-remove")
    for arguments, message in (
        ((dataclasses.replace(run, sampling="fixed-size"), "add-remove"), "isn't covered"),
        ((run, "add-remove", "all"), "^orders = 'all'"),
        ((run, "both"), "^relation = 'both'"), ((3, "add-remove"), "^run = 3 .*NoisySGD"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            account(*arguments)


def test_assumptions_name_everything():
    assert assumptions(mnist("A", "replace-one"), "replace-one") == (
        "replace-one neighbours, fixed-size batches, "
        "noise std 2.6 × clip_norm on the sum (sigma = 1.3)"
    )


def test_rows_for_json():
    gaussian = GaussianGuarantee(mu=1.0)
    row, epsilon = answer(gaussian, 1e-5), gaussian.epsilon(1e-5)
    assert row == {"name": "gaussian", "kind": "exact", "epsilon": epsilon, "mu": 1.0}
    power = of_mnist("A", "replace-one")["tensor-power"]
    ends = [power.lower.epsilon(1e-5), power.upper.epsilon(1e-5)]
    assert answer(power, 1e-5)["epsilon"] == ends and ends[0] <= 1.067030 <= ends[1]
    rows = [answer(power, 1e-5), {"name": "x", "kind": "asymptotic", "epsilon": 0.1},
            {"name": "y", "kind": "upper bound", "epsilon": None}, row]  # fmt: skip
    least = [(r["name"], r["epsilon"]) for r in proved(rows)]
    assert least == [("tensor-power", ends[1]), ("gaussian", row["epsilon"])]


def test_warnings():
    run = mnist("A", "add-remove")
    assert warnings_for(run, 1e-5) == [] == summary(run, "add-remove", 1e-5)["warnings"]
    for delta in (1 / 60000, 1e-3):
        assert any("at least 1/n" in text for text in warnings_for(run, delta))
    assert any("small" in text for text in warnings_for(run, 1e-8))
    unknown = NoisySGD.at_rate(0.01, steps=1, noise_multiplier=1.0)
    assert any("n isn't known" in text for text in warnings_for(unknown, 1e-5))


def test_reference_numbers_are_all_there():
    assert len(records("")) == 156
