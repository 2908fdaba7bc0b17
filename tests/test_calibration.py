"""Calibration asked back through `account`: never above the target, near it, honest elsewhere."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpteach.accountants import account, run_under
from dpteach.calibration import calibrate
from dpteach.guarantees import GaussianGuarantee
from dpteach.laws import gaussian_delta
from dpteach.numerics.roots import safe_root

SETTINGS = settings(max_examples=5, deadline=None, derandomize=True)
RELATIONS = ("add-remove", "replace-one")
MNIST = {"n": 60000, "batch_size": 256}
QUICK = ("tensor-power", "moments", "rdp", "clt")


def asked(name, relation, delta, **facts):
    """ε through the public path: what `account` says of a run made anew from the parameters."""
    return account(run_under(relation, **facts), relation)[name].epsilon(delta)


@pytest.mark.parametrize("name", QUICK)
@SETTINGS
@given(
    relation=st.sampled_from(RELATIONS), target=st.floats(0.05, 10), log_delta=st.floats(-20, -2),
    rate=st.sampled_from([1e-4, 0.004, 0.05, 1.0]), steps=st.integers(1, 20000),
)  # fmt: skip
def test_sigma_round_trip(name, relation, target, log_delta, rate, steps):
    delta, facts = math.exp(log_delta), {"rate": rate, "steps": steps}
    try:
        found = calibrate("sigma", name, relation, epsilon=target, delta=delta, **facts)
    except ValueError as refusal:  # with hardly any noise no epsilon is proved, or all are below
        assert str(refusal).startswith("epsilon = ") and "isn't reached" in str(refusal)
        return
    epsilon = asked(name, relation, delta, sigma=found.value, **facts)
    assert epsilon == found.epsilon and target - 1e-3 <= epsilon <= target
    assert asked(name, relation, delta, sigma=found.value * 0.99, **facts) > target - 1e-3


@pytest.mark.parametrize("name, steps", [
    ("optimal-composition", 100), ("strong-composition", 100), ("edgeworth", 3516)
])  # fmt: skip
def test_sigma_round_trip_of_the_others(name, steps):
    facts = {"steps": steps, **MNIST}
    found = calibrate("sigma", name, "replace-one", epsilon=2.0, delta=1e-5, **facts)
    epsilon = asked(name, "replace-one", 1e-5, sigma=found.value, **facts)
    assert 2 - 1e-3 <= epsilon <= 2 and epsilon == found.epsilon


@pytest.mark.parametrize("name", QUICK)
@SETTINGS
@given(relation=st.sampled_from(RELATIONS), target=st.floats(0.3, 8), sigma=st.floats(0.7, 4))
def test_steps_and_batch_are_maximal(name, relation, target, sigma):
    facts = {"steps": {"rate": 0.01}, "batch_size": {"n": 5000, "steps": 300}}
    for sought, rest in facts.items():
        ask = lambda k, s=sought, rest=rest: asked(  # noqa: E731
            name, relation, 1e-6, sigma=sigma, **rest, **{s: k}
        )
        target_ = {"epsilon": target, "delta": 1e-6}
        try:
            found = calibrate(sought, name, relation, **target_, sigma=sigma, **rest)
        except ValueError as refusal:
            assert ask(1) > target, refusal
            continue
        assert ask(found.value) == found.epsilon <= target
        assert found.value == rest.get("n") or ask(found.value + 1) > target


def test_steps_by_counting():
    """Full batches compose to a Gaussian, μ = √T/σ: the largest T with δ_μ(ε) ≤ δ."""
    target = dict(epsilon=3.0, delta=1e-5)
    found = calibrate("steps", "tensor-power", "add-remove", **target, rate=1.0, sigma=9.0)
    by_hand = max(t for t in range(1, 500) if gaussian_delta(math.sqrt(t) / 9, 3.0) <= 1e-5)
    assert found.value == by_hand > 10


def test_sigma_of_one_full_step_is_the_analytic_gaussian():
    """μ = 1 has ε = 4.37718 at δ = 1e-5 (Balle and Wang 2018); μ = 10 at δ = 0.5."""
    wide = GaussianGuarantee(mu=10).epsilon(0.5)
    for mu, delta, epsilon in ((1, 1e-5, 4.37718), (10, 0.5, wide)):
        target = dict(epsilon=epsilon, delta=delta)
        found = calibrate("sigma", "tensor-power", "add-remove", **target, rate=1.0, steps=1)
        assert abs(found.value * mu - 1) < 3e-4


def test_the_published_noise_comes_back():
    """Run A: σ = 1.3 has ε = 1.1922644 by the moments accountant with whole orders."""
    target = dict(epsilon=1.1923, delta=1e-5)
    found = calibrate("sigma", "moments", "add-remove", **target, epochs=15, **MNIST)
    assert abs(found.value - 1.3) < 1.5e-3 and found.run.steps == 3516


def test_hard_corners_are_answered():
    rest = {"steps": 100, **MNIST}
    epsilon = asked("tensor-power", "replace-one", 1e-5, sigma=0.1, **rest)
    target = dict(epsilon=0.99 * epsilon, delta=1e-5)
    found = calibrate("sigma", "tensor-power", "replace-one", **target, **rest)
    assert 0.1 < found.value < 0.102 and found.epsilon <= target["epsilon"]
    target = dict(epsilon=0.5, delta=0.5)
    found = calibrate("sigma", "tensor-power", "add-remove", **target, rate=0.5, steps=1000)
    assert 0.499 <= found.epsilon <= 0.5
    target = dict(epsilon=1e3, delta=1e-5)
    full = calibrate("batch_size", "clt", "add-remove", **target, n=100, steps=1, sigma=5.0)
    assert full.value == 100


@pytest.mark.parametrize("sought, name, facts, reason", [
    ("sigma", "berry-esseen", {"epsilon": 1, **MNIST, "steps": 3516}, "delta never falls below"),
    ("sigma", "tensor-power", {"epsilon": 9e4, **MNIST, "steps": 10}, "sigma = 0.05 it's already"),
    ("sigma", "rdp", {"epsilon": 1e-4, "rate": 0.5, "steps": 9**6}, "sigma = 1000 it's still"),
    ("steps", "moments", {"epsilon": 0.01, **MNIST, "sigma": 0.5}, "steps = 1 it's already"),
    ("steps", "rdp", {"epsilon": 50, "rate": 1e-9, "sigma": 1e3}, "steps = 1e.09 it's still only"),
    ("batch_size", "moments", {"epsilon": 0.1, "n": 10, "steps": 1000, "sigma": 0.5}, "size = 1 "),
])  # fmt: skip
def test_unreachable_targets_are_refused_with_the_reason(sought, name, facts, reason):
    start = f"^epsilon = .* isn't reached at delta = 1e-05 by {name}: .*"
    with pytest.raises(ValueError, match=start + reason):
        calibrate(sought, name, "replace-one", delta=1e-5, **facts)


@pytest.mark.parametrize("change, name", [
    ({"sought": "noise"}, "sought"), ({"guarantee": "pld"}, "guarantee"),
    ({"relation": "both"}, "relation"), ({"epsilon": 0}, "epsilon"), ({"epsilon": -1}, "epsilon"),
    ({"epsilon": math.nan}, "epsilon"), ({"delta": 0}, "delta"), ({"delta": None}, "delta"),
    ({"orders": "all"}, "orders"), ({"sigma": 1.0}, "sigma"), ({"steps": None}, "steps"),
    ({"n": None}, "n"), ({"sought": "steps"}, "steps"), ({"sought": "batch_size"}, "batch_size"),
    ({"sought": "batch_size", "batch_size": None, "steps": None, "epochs": 2}, "epochs"),
    ({"sought": "batch_size", "batch_size": None, "n": None, "sigma": 1.0}, "n"),
    ({"noise_multiplier": 1.0}, "noise_multiplier"), ({"sampling": "sorted"}, "sampling"),
])  # fmt: skip
def test_bad_arguments_are_named(change, name):
    good = {"sought": "sigma", "guarantee": "clt", "relation": "add-remove"}
    good |= {"epsilon": 1.0, "delta": 1e-5, "steps": 9, **MNIST}
    with pytest.raises(ValueError, match=f"^{name} = "):
        calibrate(**{**good, **change})


def test_safe_root_ends_on_the_safe_side():
    for excess, infeasible, feasible in (
        (lambda x: 1 - x, 0.0, 50.0),
        (lambda x: x - 0.3, 1.0, -1.0),
        (lambda x: 1.0 if x < math.pi else -1.0, 0.0, 10.0),  # a jump
    ):
        x = safe_root(excess, infeasible=infeasible, feasible=feasible, tolerance=1e-6)
        assert excess(x) <= 0 and min(infeasible, feasible) <= x <= max(infeasible, feasible)
        assert excess(x + 1e-5 * math.copysign(1, infeasible - feasible)) > 0
