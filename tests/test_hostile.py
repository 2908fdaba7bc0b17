"""Hostile arguments: every public number is either answered, finitely and in silence, or refused in one line.

Each entry of `FUNCTIONS` is a function with arguments that it takes. One of them at a time is replaced by a value of
the wrong type or far out of range; a `ValueError` must say which argument, its value and what's allowed.
"""

import fractions
import math
import pathlib
import re
import warnings

import numpy as np
import pytest
import torch
from hostile import (
    EXTREME,
    NOT_A_NUMBER,
    WRONG_OBJECTS,
    answer_or_refusal,
    names_called,
    public_names,
    watchdog,  # noqa: F401 (a fixture around each test)
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dpteach import accountants, bounds, composition, guarantees, laws, limits, moments, run, tensor_power, tradeoff
from dpteach.classroom import exercises
from dpteach.classroom import kept as _cache
from dpteach.classroom import recorded as notebook
from dpteach.numerics import lattice

POISSON = laws.PoissonLaw(0.01, 4.0)
SYMMETRIC = laws.SubsampledLaw(0.01, 1.0)


def answers(make):
    """ε, δ and details of a guarantee, as one function of its arguments and the questions'."""

    def ask(delta, epsilon, **arguments):
        guarantee = make(**arguments)
        return guarantee.epsilon(delta), guarantee.delta(epsilon), guarantee.details(delta)

    return ask


ASKED = {"delta": 1e-5, "epsilon": 1.0}
FUNCTIONS = {
    "gaussian_delta": (laws.gaussian_delta, {"mu": 1.0, "epsilon": 1.0}),
    "mixture_loss": (lambda **k: np.abs(laws.mixture_loss(**k)), {"q": 0.5, "x": 2.0}),
    "loss_range": (lambda tail: np.abs(laws.loss_range(SYMMETRIC, tail)), {"tail": 1e-3}),
    "poisson": (lambda q, sigma, epsilon: laws.PoissonLaw(q, sigma).delta(epsilon),
                {"q": 0.01, "sigma": 1.0, "epsilon": 1.0}),
    "subsampled": (lambda p, mu, epsilon: laws.SubsampledLaw(p, 1 / mu).delta(epsilon),
                   {"p": 0.01, "mu": 1.0, "epsilon": 1.0}),
    "nodes": (lambda order: POISSON.nodes(order).log_p * 0, {"order": 2.0}),
    "steps_for_epochs": (run.steps_for_epochs, {"n": 60000, "batch_size": 256, "epochs": 15}),
    "NoisySGD": (lambda **facts: run.NoisySGD(**facts).steps,
                 {"n": 600, "batch_size": 6, "epochs": 1, "noise_multiplier": 1.0, "clip_norm": 1.0}),
    "at_rate": (lambda **facts: run.NoisySGD.at_rate(**facts).steps, {"q": 0.1, "steps": 3, "noise_multiplier": 1.0}),
    "drs22": (lambda **facts: run.NoisySGD.drs22(**facts).noise_multiplier,
              {"sampling_rate": 0.1, "steps": 3, "sigma": 1.0}),
    "f_epsilon_delta": (guarantees.f_epsilon_delta, {"epsilon": 1.0, "delta": 0.1, "alpha": 0.2}),
    "gaussian_tradeoff": (guarantees.gaussian_tradeoff, {"mu": 1.0, "alpha": 0.2}),
    "epsilon_from_delta": (lambda delta: guarantees.epsilon_from_delta(lambda e: math.exp(-e), delta), {"delta": 0.1}),
    "delta_from_tradeoff": (lambda epsilon, grid: guarantees.delta_from_tradeoff(lambda a: 1 - a, epsilon, grid),
                            {"epsilon": 1.0, "grid": 99}),
    "gaussian_mu": (guarantees.gaussian_mu, {"epsilon": 1.0, "delta": 1e-5}),
    "GaussianGuarantee": (answers(guarantees.GaussianGuarantee), {"mu": 1.0, **ASKED}),
    "log_e2_integer": (moments.log_e2_integer, {"q": 0.01, "sigma": 1.0, "lam": 5}),
    "log_e2_series": (moments.log_e2_series, {"q": 0.01, "sigma": 1.0, "lam": 5.5, "tolerance": 1e-13}),
    "log_e1": (moments.log_e1, {"q": 0.01, "sigma": 1.0, "lam": 5}),
    "renyi_divergence": (lambda order: moments.renyi_divergence(POISSON, order), {"order": 5.0}),
    "tail_bound_epsilon": (moments.tail_bound_epsilon, {"alpha": 1.0, "lam": 2.0, "delta": 1e-5}),
    "tail_bound_delta": (moments.tail_bound_delta, {"alpha": 1.0, "lam": 2.0, "epsilon": 1.0}),
    "renyi_epsilon": (moments.renyi_epsilon, {"alpha": 1.0, "lam": 2.0, "delta": 1e-5}),
    "renyi_delta": (moments.renyi_delta, {"alpha": 1.0, "lam": 2.0, "epsilon": 1.0}),
    "MomentsGuarantee": (answers(lambda steps: moments.MomentsGuarantee(law=POISSON, steps=steps)),
                         {"steps": 1000, **ASKED}),
    "alpha": (lambda lam: moments.MomentsGuarantee(law=POISSON, steps=9).alpha(lam), {"lam": 3}),
    "lemma3_leading": (bounds.lemma3_leading, {"q": 0.01, "sigma": 4.0, "lam": 5}),
    "lemma3_bound": (bounds.lemma3_bound, {"q": 0.01, "sigma": 4.0, "lam": 5}),
    "lemma3_remainder": (bounds.lemma3_remainder, {"q": 0.01, "sigma": 4.0, "lam": 5}),
    "lemma3_k": (bounds.lemma3_k, {"s": 0.5, "xl": 0.1}),
    "verify_lemma3": (bounds.verify_lemma3, {"lam": 7, "constant": 0.5, "s": (0.25, 1.0), "q": (0, 1)}),
    "theorem1_order": (bounds.theorem1_order, {"epsilon": 1.0, "delta": 1e-5}),
    "theorem1_sigma": (bounds.theorem1_sigma, {"q": 0.01, "steps": 10000, "epsilon": 3.2, "delta": 1e-5}),
    "classical_sigma": (composition.classical_gaussian_sigma, {"epsilon": 1.0, "delta": 1e-5}),
    "amplify": (composition.amplify_by_sampling, {"epsilon_0": 1.0, "delta_0": 1e-5, "q": 0.01}),
    "optimal_delta": (composition.optimal_composition_delta, {"epsilon": 1.0, "epsilon_0": 0.1, "steps": 100}),
    "optimal_epsilon": (composition.optimal_composition_epsilon,
                        {"epsilon_0": 0.1, "steps": 100, "delta": 1e-5, "delta_0": 0.0}),
    "pure_dp_moment": (composition.pure_dp_moment, {"lam": 1.0, "epsilon": 1.0}),
    "pure_dp_moment_bound": (composition.pure_dp_moment_bound, {"lam": 1.0, "epsilon": 1.0}),
    "StrongComposition": (answers(lambda steps: composition.StrongComposition(laws=(POISSON,), steps=steps)),
                          {"steps": 100, **ASKED}),
    "OptimalComposition": (answers(lambda steps: composition.OptimalComposition(laws=(POISSON,), steps=steps)),
                           {"steps": 100, **ASKED}),
    "randomised_response": (lambda **k: tradeoff.TradeOff.randomised_response(**k)(0.3),
                            {"epsilon": 1.0, "steps": 3, "delta": 0.1}),
    "gaussian": (lambda **k: tradeoff.TradeOff.gaussian(**k)(0.3), {"mu": 1.0, "points": 50}),
    "TradeOff": (lambda alpha, epsilon, rate: (COIN(alpha), COIN.delta(epsilon), COIN.subsample(rate)(alpha)),
                 {"alpha": 0.2, "epsilon": 1.0, "rate": 0.3}),
    "power": (lambda steps, points: COIN.power(steps, points=points)(0.3), {"steps": 5, "points": 50}),
    "from_points": (lambda **k: tradeoff.TradeOff.from_points(**k)(0.3), {"alpha": [0.2], "beta": [0.4]}),
    "subsampled_epsilon_delta": (tradeoff.subsampled_epsilon_delta,
                                 {"rate": 0.1, "epsilon": 1.0, "delta": 0.1, "alpha": 0.2}),
    "subsampled_gaussian": (tradeoff.subsampled_gaussian, {"rate": 0.1, "mu": 1.0, "alpha": 0.2}),
    "chi2_plus": (limits.chi2_plus, {"mu": 1.0}),
    "subsampled_clt_mu": (limits.subsampled_clt_mu, {"p": 0.01, "sigma": 1.0, "steps": 100}),
    "poisson_clt_mu": (limits.poisson_clt_mu, {"q": 0.01, "sigma": 1.0, "steps": 100}),
    "BerryEsseen": (answers(lambda steps: limits.BerryEsseenGuarantee(law=SYMMETRIC, steps=steps)),
                    {"steps": 100, **ASKED}),
    "Edgeworth": (answers(lambda steps, order: limits.EdgeworthGuarantee(laws=(SYMMETRIC,), steps=steps, order=order)),
                  {"steps": 1000, "order": 2, **ASKED}),
    "TensorPower": (lambda steps, delta: tensor_power.TensorPower(laws=(SYMMETRIC,), steps=steps).epsilon(delta),
                    {"steps": 20, "delta": 1e-5}),
    "warnings_for": (lambda delta: accountants.warnings_for(run.NoisySGD.at_rate(0.1, steps=1, noise_multiplier=1),
                                                            delta), {"delta": 1e-5}),
}  # fmt: skip
COIN = tradeoff.TradeOff([0.75, 0.25], [0.25, 0.75])
OPTIONAL = {("NoisySGD", "epochs"), ("NoisySGD", "n"), ("NoisySGD", "batch_size")}  # None means: not given


LATTICE = lattice.discretise(SYMMETRIC, 0.1, 0.0, -2.0, 2.0, "upper")
RNG = np.random.default_rng(0)
FUNCTIONS |= {
    "lemma3_region": (bounds.lemma3_region, {"q": 0.01, "sigma": 4.0, "lam": 5}),
    "strong_epsilon": (composition.strong_composition_epsilon, {"epsilon_0": 0.1, "steps": 100, "delta_slack": 1e-5}),
    "log_e2": (moments.log_e2, {"q": 0.01, "sigma": 1.0, "lam": 5}),
    "log_moment": (lambda lam: moments.log_moment(POISSON, lam), {"lam": 5}),
    "clt_guarantee": (lambda steps: limits.clt_guarantee(SYMMETRIC, steps).mu, {"steps": 100}),
    "central_limit": (lambda steps: limits.central_limit([limits.functionals(SYMMETRIC)], steps), {"steps": 100}),
    "abadi16": (lambda **facts: run.NoisySGD.abadi16(**facts).noise_multiplier,
                {"sampling_rate": 0.1, "steps": 3, "sigma": 1.0}),
    "OneStep": (lambda epsilon: guarantees.OneStep(laws=(POISSON,)).delta(epsilon), {"epsilon": 1.0}),
    "f": (lambda alpha: guarantees.OneStep(laws=(POISSON,)).f(alpha), {"alpha": 0.1}),
    "tradeoff_from_delta": (lambda alpha, epsilons: guarantees.tradeoff_from_delta(POISSON.delta, alpha, epsilons),
                            {"alpha": 0.1, "epsilons": [0.0, 1.0]}),
    "GaussianLaw": (lambda mu, size: np.abs(laws.GaussianLaw(1 / mu).sample(size, RNG)[:9]), {"mu": 1.0, "size": 9}),
    "loss_masses": (lambda edges: laws.loss_masses(SYMMETRIC, edges), {"edges": [-1.0, 0.0, 1.0]}),
    "discretise": (lambda **k: lattice.discretise(law=SYMMETRIC, side="lower", **k).weights,
                   {"step": 0.1, "tilt": 0.0, "low": -2.0, "high": 2.0}),
    "lattice.power": (lambda n: lattice.power(LATTICE, n).weights, {"n": 3}),
    "regrid": (lambda factor: lattice.regrid(LATTICE, factor, "upper").weights, {"factor": 3}),
    "compose": (lambda **k: tensor_power.compose(law=SYMMETRIC, side="upper", **k).weights,
                {"steps": 20, "tilt": 0.0, "tail": 1e-10, "resolution": 12.0}),
}  # fmt: skip

# Functions that take objects: each argument is replaced by objects of another kind.
PIECES = limits.functionals(SYMMETRIC)
OBJECTS = {
    "log_moment": (moments.log_moment, {"law": POISSON, "lam": 2.0}),
    "renyi_divergence": (moments.renyi_divergence, {"law": POISSON, "order": 2.0}),
    "MomentsGuarantee": (moments.MomentsGuarantee,
                         {"law": POISSON, "steps": 3, "orders": "real", "conversion": "tail"}),
    "functionals": (limits.functionals, {"law": POISSON}),
    "clt_guarantee": (limits.clt_guarantee, {"law": POISSON, "steps": 3}),
    "central_limit": (limits.central_limit, {"parts": [PIECES], "steps": 3}),
    "BerryEsseenGuarantee": (limits.BerryEsseenGuarantee, {"law": SYMMETRIC, "steps": 3}),
    "EdgeworthGuarantee": (limits.EdgeworthGuarantee, {"laws": (SYMMETRIC,), "steps": 3}),
    "loss_range": (laws.loss_range, {"law": POISSON, "tail": 1e-3}),
    "loss_masses": (laws.loss_masses, {"law": POISSON, "edges": [0.0, 1.0]}),
    "sample": (lambda size, rng: SYMMETRIC.sample(size, rng), {"size": 3, "rng": RNG}),
    "sample of Poisson": (lambda size, rng: POISSON.sample(size, rng), {"size": 3, "rng": RNG}),
    "PoissonLaw": (lambda direction: laws.PoissonLaw(0.1, 1.0, direction), {"direction": "add"}),
    "epsilon_from_delta": (guarantees.epsilon_from_delta, {"profile": POISSON.delta, "delta": 1e-5}),
    "tradeoff_from_delta": (lambda profile: guarantees.tradeoff_from_delta(profile, 0.1, [0.0, 1.0]),
                            {"profile": POISSON.delta}),
    "delta_from_tradeoff": (guarantees.delta_from_tradeoff, {"f": lambda alpha: 1 - alpha, "epsilon": 1.0}),
    "gaussian": (tradeoff.TradeOff.gaussian, {"mu": 1.0, "side": "above"}),
    "power": (lambda steps, side: tradeoff.TradeOff([1.0], [1.0]).power(steps, side), {"steps": 2, "side": "above"}),
    "distance": (tradeoff.distance, {"f": COIN, "g": COIN}),
    "product": (lambda g: COIN @ g, {"g": COIN}),
    "discretise": (lattice.discretise, {"law": SYMMETRIC, "step": 0.1, "tilt": 0.0, "low": -2.0, "high": 2.0,
                                        "side": "lower"}),
    "lattice.power": (lattice.power, {"lattice": LATTICE, "n": 2}),
    "convolve": (lattice.convolve, {"a": LATTICE, "b": LATTICE}),
    "regrid": (lattice.regrid, {"lattice": LATTICE, "factor": 3, "side": "lower"}),
    "tails": (lattice.tails, {"lattice": LATTICE}),
    "compose": (tensor_power.compose, {"law": SYMMETRIC, "steps": 3, "tilt": 0.0, "tail": 1e-9, "resolution": 12.0,
                                       "side": "lower"}),
    "relation": (lambda relation: run.NoisySGD.at_rate(0.1, steps=3, noise_multiplier=1.0).laws(relation),
                 {"relation": "add-remove"}),
    "NoisySGD": (run.NoisySGD, {"sampling_rate": 0.1, "steps": 3, "noise_multiplier": 1.0, "sampling": "poisson"}),
    "record": (lambda name: notebook.record(name, 1.0), {"name": "ch00-x"}),
    "figure": (lambda rows, columns, xlabel: figures.figure(xlabel, "y", rows=rows, columns=columns),
               {"rows": 1, "columns": 1, "xlabel": "x"}),
}  # fmt: skip


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_of_another_kind_are_refused_by_name(name):
    function, arguments = OBJECTS[name]
    function(**arguments)
    figures.plt.close("all")
    for argument in arguments:
        right = arguments[argument]
        for wrong in WRONG_OBJECTS:
            if isinstance(right, str) and isinstance(wrong, str) and argument in ("name", "xlabel"):
                continue
            if isinstance(right, (int, float)) and isinstance(wrong, (int, torch.Tensor)):
                continue  # a number: the other grid's business
            shown = "f, g" if name == "distance" else argument
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with pytest.raises(ValueError, match=f"^{shown} "):
                    function(**{**arguments, argument: wrong})


# Made by the package itself, from checked arguments; or without arguments.
RECORDS = {"Functionals", "Lattice", "Nodes", "Profile", "ExerciseFailed", "Guarantee", "use_style"}
ELSEWHERE = {
    "accountants", "audit", "calibration", "clipping", "distributed", "mnist", "report", "sampling", "training",
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(pathlib.Path(laws.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_every_public_function_stands_in_the_grid(path):
    """The modules in ELSEWHERE have hostile inputs in their own tests."""
    if path.stem in ELSEWHERE or path.stem.startswith("_"):
        return
    covered = set().union(*(names_called(function) for function, _ in [*FUNCTIONS.values(), *OBJECTS.values()]))
    assert public_names(path) - covered - RECORDS - {"check", "format_number"} == set()  # those two: at this file's end


ANYTHING = st.one_of(
    st.floats(), st.integers(-(10**400), 10**400), st.text(max_size=5), st.binary(max_size=5), st.none(), st.booleans(),
    st.lists(st.floats(), max_size=4), st.complex_numbers(), st.floats(width=32).map(np.float32),
    st.integers(0, 255).map(np.uint8), st.floats(width=32).map(torch.tensor), st.lists(st.none(), max_size=2),
)  # fmt: skip


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(FUNCTIONS)), st.data())
def test_anything_is_answered_or_refused(name, data):
    function, arguments = FUNCTIONS[name]
    argument = data.draw(st.sampled_from(sorted(arguments)))
    numbers, refusal = answer_or_refusal(function, {**arguments, argument: data.draw(ANYTHING)})
    assert all(0 <= number < math.inf for number in numbers)
    assert refusal is None or "\n" not in refusal


@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_types_and_extreme_numbers(name):
    function, arguments = FUNCTIONS[name]
    assert answer_or_refusal(function, arguments)[1] is None
    for argument in arguments:
        for value in [*NOT_A_NUMBER, *EXTREME]:
            numbers, refusal = answer_or_refusal(function, {**arguments, argument: value})
            where = f"{name}({argument}={str(type(value))})"
            overflows = (name, argument) == ("strong_epsilon", "epsilon_0")  # e^ε0 does: documented, and a true bound
            assert all(0 <= number < math.inf or overflows and number == math.inf for number in numbers), where
            if any(value is bad for bad in NOT_A_NUMBER) and not (value is None and (name, argument) in OPTIONAL):
                assert refusal is not None, where
            if refusal:
                assert "\n" not in refusal and re.search(r"isn't allowed|must be|contradicts|shapes|:", refusal), where


def test_a_refusal_names_the_argument():
    for name, (function, arguments) in FUNCTIONS.items():
        for argument in set(arguments) - {"q", "s"} if name == "verify_lemma3" else arguments:
            refusal = answer_or_refusal(function, {**arguments, argument: "x"})[1]
            shown = {"at_rate": {"q": "sampling_rate"}}.get(name, {}).get(argument, argument)
            assert refusal.startswith(f"{shown} = 'x' isn't allowed: it must be "), (name, argument, refusal)


@pytest.mark.parametrize("wrong", [(), POISSON, None, [POISSON, 1], "laws", 3], ids=str)
def test_laws_must_be_a_tuple_of_laws(wrong):
    for make in (tensor_power.TensorPower, composition.StrongComposition, limits.EdgeworthGuarantee):
        with pytest.raises(ValueError, match="^laws = .*give for example NoisySGD"):
            make(laws=wrong, steps=3)
    with pytest.raises(ValueError, match="^laws = "):
        guarantees.OneStep(laws=wrong)
    with pytest.raises(ValueError, match="^law = "):
        moments.MomentsGuarantee(law=(POISSON, POISSON), steps=3)


def test_shapes_that_do_not_fit():
    for call in (
        lambda: tradeoff.TradeOff([1.0], [0.5, 0.5]),
        lambda: tradeoff.TradeOff.from_points([0.1, 0.2], [0.5]),
        lambda: bounds.verify_lemma3(7, 0.5, (0.1, 0.5, 1.0)),
    ):
        with pytest.raises(ValueError, match="have shapes .*: give the same number of values for each$"):
            call()
    with pytest.raises(ValueError, match="^edges must be"):
        laws.loss_masses(POISSON, [1.0, 0.0])


def test_a_masked_value_is_no_number():
    with pytest.raises(ValueError, match="^alpha = "):
        guarantees.gaussian_tradeoff(1.0, np.ma.array([0.1, 0.2], mask=[True, False]))


def test_numpy_and_torch_scalars_count_as_the_numbers_they_hold():
    """uint8 arithmetic wraps at 256: a stored count must be a Python int."""
    for make in (composition.OptimalComposition, limits.EdgeworthGuarantee, tensor_power.TensorPower):
        expected = make(laws=(SYMMETRIC,), steps=255).epsilon(1e-5)
        for steps in (np.uint8(255), torch.tensor(255), 255.0, np.array(255)):
            assert make(laws=(SYMMETRIC,), steps=steps).epsilon(np.array(1e-5)) == expected


# --- the table "Parameters" of inputs that break such software ------------------------------------


def every(relation="add-remove", **facts):
    make = run.NoisySGD.abadi16 if relation == "add-remove" else run.NoisySGD.drs22
    made = make(**facts)
    return {guarantee.name: guarantee for guarantee in accountants.account(made, relation)}


def test_one_full_batch_step_is_a_plain_gaussian():
    """q = 1: no log(0). 4.37718 is the inverse of Corollary 2.13; 4.7285 by Canonne-Kamath-Steinke."""
    found = {name: g.epsilon(1e-5) for name, g in every(rate=1.0, sigma=1.0, steps=1).items()}
    assert found["tensor-power"] == pytest.approx((4.37718, 4.37718), abs=5e-6)
    assert found["moments"] > found["rdp"] >= 4.7284
    lam = np.arange(1, 100) / 10  # a peer's grid of orders
    on_grid = moments.renyi_epsilon(moments.log_moment(laws.PoissonLaw(1.0, 1.0), lam), lam, 1e-5)
    assert np.min(on_grid) == pytest.approx(4.7285, abs=5e-5)


def test_small_noise_is_bracketed_around_the_truth():
    """σ = 0.3, q = 0.01, T = 1000: 69.8157; a peer's RDP gives 79.40 at order 1.3."""
    low, high = every(rate=0.01, sigma=0.3, steps=1000)["tensor-power"].epsilon(1e-5)
    assert low <= 69.8157 <= high and high - low < 1e-3 * high
    law = laws.PoissonLaw(0.01, 0.3)
    at_peers_order = float(moments.renyi_epsilon(1000 * moments.log_moment(law, 0.3), 0.3, 1e-5))
    assert at_peers_order == pytest.approx(79.40, rel=5e-3)  # the peer's fractional orders are a little off
    real = moments.MomentsGuarantee(law=law, steps=1000, orders="real", conversion="renyi").epsilon(1e-5)
    assert 69.8157 <= real <= at_peers_order


def test_a_large_delta_gives_zero():
    """δ = 0.5 above δ(0): ε = 0, not -0.67."""
    for name, guarantee in every(rate=0.01, sigma=4.0, steps=1).items():
        epsilon = guarantee.epsilon(0.5)
        assert epsilon is None or np.all(np.asarray(epsilon) == 0) or name in ("moments", "strong-composition")
        assert epsilon is None or np.min(epsilon) >= 0


def test_an_asymptotic_number_is_called_one():
    """q = 0.01, σ = 1, T = 1: the limit says 0.037, the truth is 0.19945."""
    found = every(rate=0.01, sigma=1.0, steps=1)
    assert found["clt"].kind == "asymptotic" and found["clt"].epsilon(1e-5) == pytest.approx(0.037, abs=5e-4)
    assert found["tensor-power"].epsilon(1e-5) == pytest.approx((0.19945, 0.19945), abs=5e-6)


def test_replace_one_with_noise_of_one_clipping_norm():
    """σ = 1 relative to C is 1/2 relative to the sensitivity 2C: 9.99726, not 4.73."""
    made = run.NoisySGD.at_rate(1.0, steps=1, noise_multiplier=1.0, sampling="fixed-size")
    power = accountants.account(made, "replace-one")[0]
    assert power.epsilon(1e-5) == pytest.approx((9.99726, 9.99726), abs=5e-6)


def test_shuffling_and_swapped_samplers_are_refused_with_a_reason():
    with pytest.raises(ValueError, match="shuffled batches aren't covered"):
        run.NoisySGD(n=10, batch_size=2, steps=1, noise_multiplier=1.0, sampling="shuffle")
    made = run.NoisySGD(n=10, batch_size=2, steps=1, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="isn't covered: no dominating pair for Poisson"):
        accountants.account(made, "replace-one")


def test_steps_are_the_noisy_updates_made():
    assert run.NoisySGD(n=60000, batch_size=256, epochs=15, noise_multiplier=1.3).steps == 3516


def test_very_small_delta_and_very_many_steps():
    """σ = 0.03, T = 1e9, δ = 1e-300: finite, or null with a reason."""
    for guarantee in every(rate=0.01, sigma=0.03, steps=10**9).values():
        row = accountants.answer(guarantee, 1e-300)
        assert row["epsilon"] is None and row["reason"] or 0 < np.min(row["epsilon"]) < math.inf


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.floats(-9, 0), st.floats(-9, 9), st.floats(0, 15), st.floats(-300, -0.01), st.sampled_from(run.RELATIONS)
)  # fmt: skip
def test_every_accountant_answers_or_says_why(log_q, log_sigma, log_steps, log_delta, relation):
    """Powers of ten, far beyond what's sane. The tensor power has tests of its own, and would take long here."""
    facts = {"sampling_rate": 10**log_q, "sigma": 10**log_sigma, "steps": int(10**log_steps)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, guarantee in every(relation, **facts).items():
            if name not in ("tensor-power", "optimal-composition", "strong-composition"):
                row = accountants.answer(guarantee, 10**log_delta)
                assert row["reason"] if row["epsilon"] is None else 0 <= row["epsilon"] < math.inf, row


# --- files and a student's answers ----------------------------------------------------------------


@pytest.mark.parametrize("junk", [b"", b"junk", b"PK\x03\x04", b"\x80\x02}.", bytes(range(256))], ids=repr)
def test_a_damaged_cache_file_counts_as_missing(tmp_path, junk):
    path = tmp_path / "result.pt"
    path.write_bytes(junk)
    assert _cache.load(path) in (None, {})


@pytest.mark.parametrize("value", [*NOT_A_NUMBER, math.inf, 10**400, "x"], ids=lambda value: str(type(value)))
def test_whatever_a_student_returns_is_a_failed_exercise(value):
    with pytest.raises(exercises.ExerciseFailed):
        exercises.check(lambda x: value, like=lambda x: 2.0 * x, on=[1.0, 2.0])


def test_numbers_for_the_book():
    assert notebook.format_number(fractions.Fraction(1, 3)) == "0.3333"
    for digits in (0, 2.5, "4", None, True, 10**400):
        with pytest.raises(ValueError, match="^digits = "):
            notebook.format_number(1.5, digits)
    with pytest.raises(ValueError, match="^rtol = "):
        exercises.check(lambda x: x, like=lambda x: x, on=[1.0], rtol=math.nan)
