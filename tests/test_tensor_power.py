"""The tensor power's bracket: against other programs, closed forms, simulation and its own promises."""

import math
import warnings
from dataclasses import replace

import golden
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import norm

from dpteach import tensor_power
from dpteach.guarantees import delta_from_tradeoff, epsilon_from_delta, gaussian_tradeoff
from dpteach.laws import GaussianLaw, PoissonLaw, SubsampledLaw, gaussian_delta
from dpteach.limits import clt_guarantee
from dpteach.moments import MomentsGuarantee
from dpteach.numerics.lattice import Lattice, tails
from dpteach.tensor_power import (
    _TILTS,
    Profile,
    TensorPower,
    _bracket,
    _epsilon_bracket,
    _log_deltas,
    _polygon,
    _tilt,
    compose,
)
from dpteach.tradeoff import subsampled_gaussian

SETTINGS = settings(max_examples=25, deadline=None, derandomize=True)
P = 256 / 60000
RUNS = {"A": (1.3, 3516), "B": (1.1, 14063), "C": (0.7, 10547)}  # sigma, steps
WIDTH = 1e-3
run_names = pytest.mark.parametrize("name", "ABC")


def replace_one(name, halved=False):
    sigma, steps = RUNS[name]
    return TensorPower(laws=(SubsampledLaw(P, sigma / 2 if halved else sigma),), steps=steps)


def add_remove(q, sigma, steps, *directions):
    laws = tuple(PoissonLaw(q, sigma, direction) for direction in directions or ("remove", "add"))
    return TensorPower(laws=laws, steps=steps)


def assert_contains(bracket, low, high=None):
    """The bracket meets [low, high], a number known to its last printed digit, and is narrow."""
    assert bracket[0] <= (low if high is None else high) and low <= bracket[1], bracket
    assert bracket[1] - bracket[0] <= WIDTH * bracket[1], bracket


# --- numbers that others computed


@pytest.mark.theorem("thm-drs-5-1")
@pytest.mark.parametrize(
    ("name", "halved", "delta", "epsilon"),
    [
        ("A", False, 1e-5, 1.067030), ("B", False, 1e-5, 3.068629), ("C", False, 1e-5, 7.208338),
        ("A", False, 1e-8, 1.486489), ("B", False, 1e-8, 4.111234), ("C", False, 1e-8, 9.644024),
        ("A", True, 1e-5, 5.087204), ("B", True, 1e-5, 18.454432), ("C", True, 1e-5, 87.3004),
    ],
)  # fmt: skip
def test_replace_one(name, halved, delta, epsilon):
    assert_contains(replace_one(name, halved).epsilon_ends(delta), epsilon)


@run_names
def test_add_remove(name):
    """Both directions by themselves; the run's bracket is that of removal."""
    remove = {"A": 0.86454, "B": 2.38169, "C": 5.639683}[name]
    add = {"A": 0.801446, "B": 2.243651, "C": 4.294415}[name]
    run = add_remove(P, *RUNS[name])
    assert_contains(run.epsilon_ends(1e-5), remove)
    directions = run.details(1e-5)["directions"]
    assert_contains(directions["remove"], remove)
    assert_contains(directions["add"], add)


@pytest.mark.parametrize(
    ("q", "sigma", "steps", "low", "high"),
    [
        (0.01, 4.0, 10_000, 0.94675, 0.94685),
        (0.01, 4.0, 40_000, 2.03307, None),
        (0.01, 0.3, 1_000, 69.8157, None),
    ],
)
def test_seed_examples(q, sigma, steps, low, high):
    assert_contains(add_remove(q, sigma, steps).epsilon_ends(1e-5), low, high)


def test_tiny_delta():
    """A tilted computation of another program, and a bound below the floor of a plain FFT."""
    assert_contains(add_remove(0.01, 1.0, 1000).epsilon_ends(1e-12), 3.914299 - 1e-5, 3.914299 + 1e-5)
    law = SubsampledLaw(P, 1.3)
    run = TensorPower(laws=(law,), steps=3516)
    low, high = run.epsilon_ends(1e-30)
    assert low <= high <= (1 + WIDTH) * low
    moments = MomentsGuarantee(law=law, steps=3516, orders="real", conversion="renyi").epsilon(1e-30)
    assert 0.92 * moments < low < moments  # the conversion loses 7 % here, 4 % at δ = 1e-50
    with pytest.raises(ValueError, match=r"delta = 1e-200 .* must be a number in \[1e-30, 1\)"):
        run.epsilon(1e-200)


def test_reference_brackets_overlap():
    found = golden.records("bracket", peer="reference computation")
    assert len(found) >= 9
    for record in found:
        params, function = record["params"], record["function"]
        if "C_p" in function:
            law = SubsampledLaw(params["q"], params["sigma"])
        else:
            law = PoissonLaw(params["q"], params["sigma"], "add" if "add dir" in function else "remove")
        assert_contains(TensorPower(laws=(law,), steps=params["T"]).epsilon_ends(params["delta"]), *record["value"])


@pytest.mark.parametrize("peer", ["dp-accounting", "dp-accounting (PLD engine) + own one-step"])
def test_a_pessimistic_estimate_lies_above_and_near(peer):
    """dp-accounting connects the dots at a step of 1e-4: an upper bound, up to its rounding."""
    function = "PLD.from_gaussian_mechanism(h=1e-4)" if peer == "dp-accounting" else "create_pmf_pessimistic"
    found = [r for r in golden.records(function, peer=peer) if "replace-one (distance" not in r["adjacency"]]
    assert len(found) >= 3
    for record in found:
        params, theirs = record["params"], record["value"]
        if record["sampling"] == "fixed-size":
            run = TensorPower(laws=(SubsampledLaw(params["q"], params["sigma"]),), steps=params["T"])
        else:
            run = add_remove(params["q"], params["sigma"], params["T"])
        low, high = run.epsilon_ends(params["delta"])
        assert low * (1 - 1e-9) <= theirs <= high * (1 + 6e-4), record


def test_delta_of_another_program():
    for record in golden.records("PLD.get_delta_for_epsilon(h=1e-4)"):
        params = record["params"]
        low, high = add_remove(params["q"], params["sigma"], params["T"]).delta_ends(params["eps"])
        assert low * (1 - 1e-9) <= record["value"] <= high * (1 + 2e-3), record


# --- closed forms


@pytest.mark.parametrize(
    "law",
    [
        GaussianLaw(1 / 0.7), SubsampledLaw(P, 1.3), SubsampledLaw(0.5, 1 / 3.0), PoissonLaw(0.01, 0.3, "remove"),
        PoissonLaw(0.2, 1.0, "add"),
    ],
    ids=str,
)  # fmt: skip
def test_one_step_is_the_closed_form(law):
    run = TensorPower(laws=(law,), steps=1)
    for epsilon in (0.0, 0.1, 1.0, 4.0):
        assert_allclose(run.delta_ends(epsilon), float(law.delta(epsilon)), rtol=1e-12)
    for delta in (1e-12, 1e-5, 0.1):
        exact = epsilon_from_delta(lambda e: float(law.delta(e)), delta)
        assert_allclose(run.epsilon_ends(delta), exact, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("law", [GaussianLaw(50.0), PoissonLaw(1.0, 50.0, "add"), SubsampledLaw(1.0, 50.0)], ids=str)
@pytest.mark.parametrize("steps", [2, 900, 10_000, 1_000_000])
def test_without_sampling_the_lattice_itself_finds_the_gaussian(law, steps):
    """Through discretisation, FFT, tilt, and two stages (10,000 steps and more): no closed form is used."""
    mu = 0.02 * math.sqrt(steps)
    for delta in (1e-3, 1e-5, 1e-11):
        exact = epsilon_from_delta(lambda e: float(gaussian_delta(mu, e)), delta)
        assert_contains(_epsilon_bracket(law, steps, delta), exact)
    lower, upper = _bracket(law, steps, 0.0, 1e-12 / steps, 24)
    epsilon = np.linspace(0, mu**2 / 2 + 5 * mu, 41)
    exact = gaussian_delta(mu, epsilon)
    assert np.all(lower.delta(epsilon) <= exact) and np.all(exact <= upper.delta(epsilon))
    assert np.max(upper.delta(epsilon) - lower.delta(epsilon)) < 4e-3
    closed = TensorPower(laws=(law,), steps=steps)
    assert_allclose(closed.delta_ends(mu), float(gaussian_delta(mu, mu)), rtol=1e-12)
    alpha = np.linspace(0, 1, 21)
    for end, sign in zip(closed.tradeoff_ends(alpha), (-1, 1), strict=True):
        assert np.all(sign * (end - gaussian_tradeoff(mu, alpha)) >= -1e-12)
        assert_allclose(end, gaussian_tradeoff(mu, alpha), atol=1e-3)


@pytest.mark.theorem("prop-11-floor")
@pytest.mark.parametrize("steps", [3, 400, 50_000])
def test_no_tilt_and_every_tilt_agree(steps):
    """Brackets at five tilts all meet: each is a bracket of the same number."""
    law = PoissonLaw(0.02, 2.0, "remove")
    ends = []
    for tilt in (0.0, 0.5, 3.0, 10.0, 30.0):
        lower, upper = _bracket(law, steps, tilt, 1e-12 / steps, 24)
        ends.append((lower.epsilon(1e-4), upper.epsilon(1e-4)))
        assert ends[-1][0] <= ends[-1][1]
    assert max(low for low, _ in ends) <= min(high for _, high in ends)


@pytest.mark.parametrize("steps", [16, 20, 23])
def test_two_stages_and_the_rest(monkeypatch, steps):
    """Two stages for a short run too: 23 = 4 · 5 + 3 steps must be 23 steps."""
    monkeypatch.setattr(tensor_power, "_ONE_STAGE", 0)
    mu, epsilon = 0.3 * math.sqrt(steps), np.linspace(0, 4, 9)
    for side, sign in (("lower", -1), ("upper", 1)):
        lattice = compose(GaussianLaw(1 / 0.3), steps, 0.0, 1e-14, 96, side)
        found = Profile(lattice, side, *tails(lattice)).delta(epsilon)
        assert np.all(sign * (found - gaussian_delta(mu, epsilon)) >= 0)
        assert_allclose(found, gaussian_delta(mu, epsilon), atol=2e-3)


@pytest.mark.parametrize("law", [GaussianLaw(2.0), SubsampledLaw(0.2, 1.0), SubsampledLaw(0.9, 1 / 0.7)], ids=str)
def test_two_steps_are_one_integral(law):
    """δ of two steps is E δ₁(ε - L): condition on the first loss."""
    for epsilon in (0.0, 0.1, 0.4, 1.5):
        nodes = law.nodes(corner=epsilon)
        exact = float(np.exp(nodes.log_p) @ law.delta(epsilon - nodes.loss))
        low, high = TensorPower(laws=(law,), steps=2).delta_ends(epsilon)
        assert low <= exact * (1 + 1e-6) and exact * (1 - 1e-6) <= high <= low * (1 + 5e-3)


# --- simulation


@pytest.mark.parametrize(
    ("law", "steps"),
    [
        (SubsampledLaw(0.1, 1.0), 50), (PoissonLaw(0.1, 1.5, "remove"), 150), (PoissonLaw(0.1, 0.8, "add"), 40),
        (GaussianLaw(1 / 0.3), 9),
    ],
    ids=str,
)  # fmt: skip
def test_simulated_sums(law, steps):
    """δ(ε) = E[(1 - e^{ε - S})_+] over sums S of drawn losses, within five standard errors."""
    rng = np.random.default_rng(11)
    sums = sum(law.sample(40_000, rng) for _ in range(steps))
    run = TensorPower(laws=(law,), steps=steps)
    for epsilon in (0.0, 0.3, 1.0, 1.5):
        excess = -np.expm1(np.minimum(epsilon - sums, 0.0))
        error = 5 * excess.std() / math.sqrt(excess.size)
        low, high = run.delta_ends(epsilon)
        assert excess.mean() > 2 * error and low - error <= excess.mean() <= high + error


# --- what must hold for every input


@st.composite
def inputs(draw):
    log_uniform = lambda low, high: math.exp(draw(st.floats(math.log(low), math.log(high))))  # noqa: E731
    sigma, rate = log_uniform(0.05, 100), min(1.0, log_uniform(1e-6, 1))
    steps, delta = round(log_uniform(1, 1e8)), log_uniform(1e-12, 0.5)
    kind = draw(st.sampled_from(["subsampled", "remove", "add"]))
    law = SubsampledLaw(rate, sigma) if kind == "subsampled" else PoissonLaw(rate, sigma, kind)
    return law, steps, delta


@SETTINGS
@given(inputs())
def test_lower_is_below_upper_and_below_the_moments(drawn):
    law, steps, delta = drawn
    run = TensorPower(laws=(law,), steps=steps)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            low, high = run.epsilon_ends(delta)
        except ValueError as refused:
            assert "larger" in str(refused)
            return
    assert 0 <= low <= high < math.inf
    moments = MomentsGuarantee(law=law, steps=steps, orders="real").epsilon(delta)
    assert low <= moments * (1 + 1e-9)


@SETTINGS
@given(inputs(), st.floats(0, 20))
def test_delta_is_a_bracket_too(drawn, epsilon):
    law, steps, _ = drawn
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            low, high = TensorPower(laws=(law,), steps=steps).delta_ends(epsilon)
        except ValueError as refused:
            assert "larger" in str(refused)
            return
    assert 0 <= low <= high <= 1


def test_refusals_say_what_to_ask():
    law = SubsampledLaw(0.01, 1.0)
    for steps in (0, 2.5, 10**10, True):
        with pytest.raises(ValueError, match="steps"):
            TensorPower(laws=(law,), steps=steps)
    run = TensorPower(laws=(law,), steps=10)
    for delta in (0.0, 1.0, math.nan, 1e-300, "small"):
        with pytest.raises(ValueError, match=r"delta = .* must be a number in \[1e-30, 1\)"):
            run.epsilon(delta)
    for epsilon in (-1.0, math.nan):
        with pytest.raises(ValueError, match="epsilon"):
            run.delta(epsilon)
    with pytest.raises(ValueError, match="alpha"):
        run.f([0.5, 1.5])
    with pytest.raises(ValueError, match="sigma = 0.01 isn't allowed"):
        TensorPower(laws=(SubsampledLaw(0.01, 0.01),), steps=10).epsilon_ends(1e-5)


# --- the trade-off function


@run_names
def test_f_is_a_bracket_that_delta_agrees_with(name):
    run = replace_one(name)
    alpha = np.concatenate([[0.0], np.geomspace(1e-9, 1e-3, 200), np.linspace(0.002, 1, 800)])
    lower, upper = run.tradeoff_ends(alpha)
    assert np.all(lower <= upper) and np.max(upper - lower) < 1e-3
    assert np.all(upper <= 1 - alpha + 1e-15) and np.all(lower >= 0)
    for epsilon in (0.0, 0.2, 1.0):
        low, high = run.delta_ends(epsilon)
        line = 1 - np.exp(epsilon) * alpha
        assert np.all(upper >= line - high - 1e-12)  # every dual line of the guarantee lies below
        assert np.max(line - upper) <= high + 1e-12 and np.max(line - lower) >= low - 1e-6
        assert abs(delta_from_tradeoff(lambda a: run.tradeoff_ends(a)[1], epsilon, grid=2001) - low) < 1e-4


@run_names
def test_f_of_a_symmetric_law_is_convex_and_its_own_inverse(name):
    run = replace_one(name)
    alpha = np.linspace(0, 1, 401)
    for end in run.tradeoff_ends(alpha):
        assert np.min(np.diff(end, 2)) > -1e-9 and np.all(np.diff(end) <= 1e-15)
        inside = (end > 1e-3) & (end < 1 - 1e-3)
        for back in run.tradeoff_ends(end[inside]):
            assert_allclose(back, alpha[inside], atol=2e-3)


def test_f_of_few_steps_is_exact_or_nearly():
    """One step is C_p(G), in three closed pieces; two steps lie below it."""
    alpha = np.linspace(0, 1, 101)
    for rate, mu in ((0.3, 1.0), (0.01, 2.0)):
        law = SubsampledLaw(rate, 1 / mu)
        lower, upper = TensorPower(laws=(law,), steps=1).tradeoff_ends(alpha)
        exact = subsampled_gaussian(rate, mu, alpha)
        assert np.all(lower <= exact + 1e-12) and np.all(exact <= upper + 1e-12)
        assert_allclose(lower, upper, atol=1e-3)
        assert np.all(TensorPower(laws=(law,), steps=2).tradeoff_ends(alpha)[0] <= exact)


def test_two_directions_share_the_worse_curve():
    alpha = np.linspace(0, 1, 51)
    both = add_remove(0.05, 1.0, 100)
    single = [add_remove(0.05, 1.0, 100, direction) for direction in ("remove", "add")]
    for end in (0, 1):
        assert_allclose(both.tradeoff_ends(alpha)[end], np.minimum(*(one.tradeoff_ends(alpha)[end] for one in single)))
        assert both.delta_ends(1.0)[end] == max(one.delta_ends(1.0)[end] for one in single)
        assert both.epsilon_ends(1e-5)[end] == max(one.epsilon_ends(1e-5)[end] for one in single)
    assert single[0].details(1e-5) == {}


# --- long runs


@pytest.mark.parametrize(("p", "sigma"), [(P * math.sqrt(14063 / 1e8), 1.1), (1e-6, 1.1), (1e-6, 2.0)])
def test_a_hundred_million_steps(p, sigma):
    """Narrow, and where the central limit has long set in."""
    law = SubsampledLaw(p, sigma)
    low, high = TensorPower(laws=(law,), steps=10**8).epsilon_ends(1e-5)
    assert high - low <= WIDTH * high
    limit = clt_guarantee(law, 10**8).epsilon(1e-5)
    assert low * (1 - 2e-3) <= limit <= high * (1 + 2e-3)


# --- found by changing the code in small ways


def profile_of(weights, step, offset, side, tilt=0.0, infinite=0.0, error=1e-13):
    """Losses offset, offset + step, … with P masses `weights`."""
    z = offset + step * np.arange(len(weights))
    tilted = np.array(weights) * np.exp(tilt * z)
    lattice = Lattice(tilted / tilted.sum(), 0, step, offset, tilt, math.log(tilted.sum()), infinite, error)
    return Profile(lattice, side, *tails(lattice))


@pytest.mark.parametrize("tilt", [0.0, 0.7, 5.0])
def test_what_may_be_wrong_is_added_or_taken_off(tilt):
    """Mass `error` of the tilted law at the worst z: its share of δ is maximised on a grid here."""
    weights, error, infinite, epsilon = [0.3, 0.2, 0.4], 1e-4, 0.1, 0.4
    z = np.array([-1.0, 0.0, 1.0])
    inside = np.sum(weights * np.maximum(1 - np.exp(epsilon - z), 0))
    x = np.linspace(0, 30, 300_001)
    mass = np.sum(weights * np.exp(tilt * z))
    worst = error * mass * np.max(np.exp(-tilt * (x + epsilon)) * -np.expm1(-x))
    for side, sign in (("upper", 1), ("lower", -1)):
        found = profile_of(weights, 1.0, -1.0, side, tilt, infinite, error).delta(epsilon)
        assert_allclose(found, inside + sign * (infinite + worst), rtol=1e-9)


def test_epsilon_between_and_beyond_the_points():
    """P(2)(1 - e^{ε-2}) = δ between the last two points; a δ below the infinite mass is never reached."""
    for side in ("upper", "lower"):
        bound = profile_of([0.25, 0.25, 0.5], 1.0, 0.0, side)
        for delta in (0.1, 0.01):
            assert_allclose(bound.epsilon(delta), 2 + math.log1p(-delta / 0.5), rtol=1e-9)
        first = (0.25 + 0.5 - 0.6) / (0.25 * math.exp(-1) + 0.5 * math.exp(-2))  # e^ε of the cell before
        assert_allclose(bound.epsilon(0.6), max(0.0, math.log(first)), atol=1e-9)
        assert bound.epsilon(0.9) == 0
        assert bound.delta(2.5) <= 1e-12 and bound.delta(np.array([1.9, 7.0]))[1] <= 1e-12
    assert profile_of([0.4, 0.4], 1.0, 0.0, "upper", infinite=0.2).epsilon(0.1) == math.inf
    assert profile_of([0.4, 0.4], 1.0, 0.0, "upper", infinite=0.2).epsilon(0.25) < math.inf


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_f_of_randomised_response(epsilon):
    """Two losses ±ε make f_{ε,0}, whose corner is the polygon's only vertex."""
    p, alpha = 1 / (1 + math.exp(-epsilon)), np.linspace(0, 1, 41)
    wanted = np.maximum(1 - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - alpha))
    for side in ("upper", "lower"):
        assert_allclose(_polygon(profile_of([1 - p, p], 2 * epsilon, -epsilon, side), alpha), wanted, atol=1e-12)


def test_saddle_points_of_normal_losses():
    """400 steps of N(0.05, 1) against N(0, 1) are one of mu = 1: log δ is guessed to a quarter well beyond the mean."""
    epsilons, log_deltas, _ = _log_deltas(GaussianLaw(20.0), 400, 1e-20)
    beyond = (epsilons > 3) & (epsilons < 8)
    assert beyond.sum() > 2
    assert_allclose(log_deltas[beyond], np.log(gaussian_delta(1.0, epsilons[beyond])), atol=0.25)


def test_the_bracket_is_narrowed():
    """One lattice isn't enough here: the width asked for is 4e-4 of ε."""
    low, high = TensorPower(laws=(PoissonLaw(0.565, 2.11, "add"),), steps=6).epsilon_ends(3e-7)
    assert 0 < low <= high <= (1 + 4e-4) * low


def test_next_to_no_sampling_is_refused():
    with pytest.raises(ValueError, match="rate = 1e-16 isn't allowed"):
        TensorPower(laws=(SubsampledLaw(1e-16, 1.0),), steps=2).epsilon_ends(1e-5)


def test_full_batches_have_the_gaussian_s_own_curve():
    alpha = np.array([0.0, 0.01, 0.3, 0.9])
    lower, upper = TensorPower(laws=(GaussianLaw(10.0),), steps=100).tradeoff_ends(alpha)
    assert np.array_equal(lower, upper)
    assert_allclose(lower, norm.cdf(norm.isf(alpha) - 1.0), rtol=1e-12)


def test_no_loss_at_all_at_a_large_delta():
    assert TensorPower(laws=(SubsampledLaw(0.01, 10.0),), steps=2).epsilon_ends(0.5) == (0.0, 0.0)


def test_a_delta_near_1():
    """Little noise, nearly always in the batch: most outputs of four steps give the record away."""
    low, high = TensorPower(laws=(SubsampledLaw(0.9, 0.25),), steps=4).delta_ends(0.0)
    assert 0.97 < low <= high <= 1


@pytest.mark.parametrize("kind", ["error", "infinite"])
def test_the_lattice_s_error_widens_the_curve_by_twice_itself(kind):
    lattice = compose(SubsampledLaw(0.3, 1.0), 4, 0.0, 1e-12, 24, "upper")
    for side, sign in (("upper", -1), ("lower", 1)):
        plain, wide = (Profile(kept, side, *tails(kept)) for kept in (lattice, replace(lattice, **{kind: 0.01})))
        moved = _polygon(wide, np.array([0.2])) - _polygon(plain, np.array([0.2]))
        assert_allclose(moved, sign * 0.02, atol=1e-8)


def test_no_epsilon_where_the_rest_exceeds_delta():
    lattice = replace(compose(SubsampledLaw(0.3, 1.0), 4, 0.0, 1e-12, 24, "upper"), infinite=0.2)
    profile = Profile(lattice, "upper", *tails(lattice))
    assert profile.epsilon(0.1) == math.inf and profile.epsilon(0.25) < math.inf


def test_a_bound_on_delta_is_a_probability():
    """Nearly all losses are large, and what may be wrong comes on top."""
    assert profile_of([1.0], 1.0, 50.0, "upper", error=0.01).delta(0.0) == 1
    assert profile_of([0.9], 1.0, 1.0, "upper", infinite=0.9).delta(0.0) == 1


def test_epsilon_is_on_its_side_to_the_last_bit():
    for delta in (0.3, 0.1, 0.01):
        upper, lower = (profile_of([0.25, 0.25, 0.5], 1.0, 0.0, side) for side in ("upper", "lower"))
        high, low = upper.epsilon(delta), lower.epsilon(delta)
        assert upper.delta(high) <= delta < upper.delta(math.nextafter(high, 0))
        assert lower.delta(math.nextafter(low, 9)) <= delta < lower.delta(low)


def test_losses_below_0_make_no_vertex_of_f():
    """f is the largest of the lines that δ(ε), ε ≥ 0, stands for, and δ(ε) sees no negative loss."""
    loss, p, alpha = np.array([-0.8, -0.4, 0.0, 0.4, 0.8]), np.array([0.05, 0.35, 0.0, 0.1, 0.5]), np.linspace(0, 1, 41)
    lines = [np.zeros_like(alpha)]
    for epsilon in (0.0, 0.4, 0.8):
        rest = 1 - np.sum(p * np.maximum(-np.expm1(epsilon - loss), 0))
        lines += [rest - math.exp(epsilon) * alpha, math.exp(-epsilon) * (rest - alpha)]
    for side in ("upper", "lower"):
        assert_allclose(_polygon(profile_of(p, 0.4, -0.8, side), alpha), np.max(lines, axis=0), atol=1e-12)


def test_a_guess_of_delta_that_was_far_too_large_is_corrected():
    """δ of two rarely sampled steps is 1e-17: the first lattice, for a larger δ, sees a few 1e-15 only."""
    law, epsilon = SubsampledLaw(0.001, 1 / 0.7), 0.2
    nodes = law.nodes(corner=epsilon)
    exact = float(np.exp(nodes.log_p) @ law.delta(epsilon - nodes.loss))
    low, high = TensorPower(laws=(law,), steps=2).delta_ends(epsilon)
    assert low <= exact <= high <= 1.05 * low


@pytest.mark.parametrize("law", [SubsampledLaw(0.1, 1.0), PoissonLaw(0.3, 1.0, "remove")], ids=str)
def test_f_is_as_sharp_as_delta(law):
    """The brackets of δ and of what f says of it are equally wide."""
    run, alpha = TensorPower(laws=(law,), steps=20), np.linspace(0, 1, 4001)
    for epsilon in (0.0, 0.5, 1.0):
        low, high = run.delta_ends(epsilon)
        most, least = (np.max(1 - math.exp(epsilon) * alpha - end) for end in run.tradeoff_ends(alpha))
        assert_allclose(most - least, high - low, rtol=0.1)


def test_f_of_finite_losses_begins_at_1():
    """What is rounded away in thousands of steps is still next to nothing."""
    lower, upper = TensorPower(laws=(SubsampledLaw(0.02, 1.0),), steps=2000).tradeoff_ends(0.0)
    assert 1 - 1e-9 < lower <= upper == 1


@pytest.mark.parametrize("delta", [1e-5, 1e-10, 1e-12, 1e-20])
def test_the_least_tilt_that_keeps_the_floor_away(delta):
    """A hundred steps of N(0.1, 1), mu = 1. Floor: what an error of 1e-10 of the tilted mass can do to δ(ε)."""
    epsilon, x = epsilon_from_delta(lambda e: float(gaussian_delta(1.0, e)), delta), np.geomspace(1e-9, 50, 2001)
    tilted = (_TILTS + _TILTS**2) / 2 - _TILTS * epsilon  # log E e^{tilt (L - ε)}
    gain = np.array([np.max(np.log(-np.expm1(-x)) - tilt * x) for tilt in _TILTS])
    enough = math.log(1e-10 + 1e-13 * 100) + tilted + gain <= math.log(1e-4 * delta)
    found = _tilt(GaussianLaw(10.0), 100, 1e-7 * delta, tilted, math.log(delta))
    assert enough.any()
    assert_allclose(found, _TILTS[np.argmax(enough)], rtol=5e-3)


def test_a_billion_steps_fit_into_the_memory():
    """Fewer points than 2^18: the steps together are N(500, 1000), on a coarser lattice than one step."""
    lattice = compose(GaussianLaw(1e3), 10**9, 0.0, 1e-21, 24, "upper")
    mean, deviation = lattice.moments()
    assert lattice.weights.size < 2**18
    assert_allclose(deviation * lattice.step, math.sqrt(1000), rtol=1e-3)
    assert_allclose(mean * lattice.step + lattice.offset, 500, rtol=1e-3)


@pytest.mark.parametrize("most", [4000, 5000])
def test_the_last_refinement_goes_to_twice_the_most_points(monkeypatch, most):
    """A width that can't be had: the lattice is refined as far as it may be, and no further."""
    sizes = []

    def bracket(*question):
        lower, upper = _bracket(*question)
        sizes.append(max(end.lattice.weights.size for end in (lower, upper)))
        return lower, upper

    monkeypatch.setattr(tensor_power, "_bracket", bracket)
    monkeypatch.setattr(tensor_power, "_TOLERANCE", 1e-12)
    monkeypatch.setattr(tensor_power, "_MOST_POINTS", most)
    low, high = _epsilon_bracket(SubsampledLaw(0.2, 1.0), 5, 1e-5 * most / 4000)  # a new question
    assert 0 < high - low < 1e-5 * high
    assert 1.9 * most < sizes[-1] < 2.1 * most


@pytest.mark.parametrize("q, sigma, steps", [(0.2, 0.5, 3), (0.05, 1.0, 5)])
def test_f_of_the_add_direction_alone(q, sigma, steps):
    """Its half of the curve may cross the diagonal; the mirror image then decides. f is the dual of δ(ε), ε ≥ 0."""
    run = TensorPower(laws=(PoissonLaw(q, sigma, "add"),), steps=steps)
    alpha = np.linspace(0, 1, 101)
    low, high = run.tradeoff_ends(alpha)
    grid = np.linspace(0, -steps * math.log1p(-q), 60)  # no loss is larger
    lower, upper = np.array([run.delta_ends(e) for e in grid]).T
    lines = [np.maximum(1 - d - np.exp(grid)[:, None].T * alpha[:, None], np.exp(-grid) * (1 - d - alpha[:, None]))
             for d in (upper, lower)]
    assert np.all(low <= high)
    assert np.all(high >= lines[0].max(axis=1) - 1e-9)  # what δ's upper ends promise
    assert np.all(low <= np.maximum(lines[1].max(axis=1), 0) + 2e-3)  # and hardly more than its lower ends allow
    assert np.all(np.diff(high, 2) > -1e-3)  # convex, but for the ends' error


def test_f_where_errors_underflow():
    """ε beyond 700: a type I error below 1e-300 isn't 0, and at 0 no one can do without a type II error of 1."""
    run = TensorPower(laws=(SubsampledLaw(0.3425, 0.3179 / 2),), steps=136)
    low, high = run.tradeoff_ends(np.array([0.0, 1e-320, 1e-300, 1e-10, 0.1]))
    assert np.all(low <= high) and np.all(np.diff(high) <= 0) and high[0] == 1


@pytest.mark.parametrize("q, sigma, steps, delta", [
    (0.0062, 0.05, 52, 1.64e-5), (0.001, 0.06, 20, 0.01), (0.001, 0.06, 20, 1e-5), (0.3, 0.05, 3, 1e-3),
    (0.1, 0.05, 500, 1e-5), (1e-6, 0.05, 100, 1e-5),
])
def test_added_with_hardly_any_noise(q, sigma, steps, delta):
    """The record's batches are seen: all that's lost is that there were none, so e^ε = (1-δ)(1-q)^-T."""
    low, high = TensorPower(laws=(PoissonLaw(q, sigma, "add"),), steps=steps).epsilon_ends(delta)
    exact = -steps * math.log1p(-q) + math.log1p(-delta)
    assert low <= exact * (1 + 1e-9) and exact * (1 - 1e-9) <= high
    assert high - low < 1e-6 * high


@pytest.mark.parametrize("q, sigma, steps, delta", [
    (0.5184, 0.067, 392, 2.6e-8), (3.8e-5, 0.0884, 262, 1.4e-5), (0.106, 0.0529, 500, 7e-8), (2e-4, 0.0873, 461, 4e-7),
])
def test_rare_and_huge_losses_are_bracketed(q, sigma, steps, delta):
    """A standard deviation's worth of lattice points would be too many: coarser ones are tried."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low, high = TensorPower(laws=(PoissonLaw(q, sigma, "add"),), steps=steps).epsilon_ends(delta)
    assert 0 <= low <= high <= -steps * math.log1p(-q) * (1 + 1e-6)


@pytest.mark.parametrize("q, sigma, steps, delta", [(0.3, 0.08, 3, 1e-3), (0.05, 0.08, 4, 1e-4)])
def test_what_does_not_fit_is_tried_on_a_coarser_lattice(monkeypatch, q, sigma, steps, delta):
    """With room for 2^14 points: most steps lose -log(1-q), and few lose more, which asks for a wide lattice."""
    monkeypatch.setattr("dpteach.numerics.lattice._MAX_POINTS", 2**14)
    _bracket.cache_clear()
    low, high = TensorPower(laws=(PoissonLaw(q, sigma, "add"),), steps=steps).epsilon_ends(delta)
    _bracket.cache_clear()
    exact = -steps * math.log1p(-q) + math.log1p(-delta)
    assert low <= exact * (1 + 1e-9) and exact * (1 - 1e-9) <= high
    assert high - low < 1e-6 * high
