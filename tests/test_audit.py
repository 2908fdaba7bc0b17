"""Audits against exact intervals, enumeration, 40 digits, and planted bugs in the real step."""

import ast
import json
import math
from datetime import date
from itertools import product
from pathlib import Path

import jupytext
import mpmath
import numpy as np
import pytest
import record_audits
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, ks_2samp, norm

from dpteach.audit import (
    Audit,
    audit_scores,
    best_threshold,
    clopper_pearson,
    guess,
    held_out_audit,
    one_run_epsilon,
    one_run_tail,
)
from dpteach.guarantees import GaussianGuarantee, f_epsilon_delta, gaussian_tradeoff
from dpteach.laws import PoissonLaw, SubsampledLaw
from dpteach.run import NoisySGD
from dpteach.tensor_power import TensorPower
from dpteach.training import noisy_step

CHAPTER = Path(__file__).parents[1] / "book" / "18-auditing.md"
KEPT = json.loads(record_audits.FILE.read_text("utf-8"))
quick = settings(deadline=None, derandomize=True, max_examples=60)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def chapter():
    """The functions of the chapter, as they stand there."""
    tree = ast.parse("\n".join(c.source for c in jupytext.read(CHAPTER).cells
                               if c.cell_type == "code"))
    return {node.name: ast.unparse(node) for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)}


@pytest.fixture(scope="module")
def lab(chapter):
    """The chapter's attacks on the real step, ready to call."""
    from dataclasses import replace

    from dpteach.laws import mixture_loss
    from dpteach.training import sampling

    names = ["linear_loss", "blocks", "observe", "likelihood_ratio", "spread", "replaced_blocks",
             "pair_score",
             "half_the_noise", "no_clipping", "noise_reused", "drawn_size_divisor"]  # fmt: skip
    space = {"np": np, "torch": torch, "nn": torch.nn, "sampling": sampling,
             "mixture_loss": mixture_loss,
             "noisy_step": noisy_step, "replace": replace}  # fmt: skip
    for name in names:
        exec(compile(chapter[name], str(CHAPTER), "exec"), space)
    return space


# --- Clopper-Pearson ---------------------------------------------------------------------------


def at_least(count, trials, p):
    """P[X ≥ count] for X ~ Binomial(trials, p), term by term in the caller's digits."""
    p, term, total = mpmath.mpf(p), mpmath.mpf(0), mpmath.mpf(0)
    for k in range(count, trials + 1):
        first = term == 0
        step = (trials - k + 1) * p / (k * (1 - p)) if k else 0
        term = mpmath.binomial(trials, k) * p**k * (1 - p) ** (trials - k) if first else term * step
        total += term
    return total


def test_limits_in_forty_digits():
    """P[X ≥ count] at the lower limit, P[X ≤ count] at the upper one are `miss`, to 1e-8 of it."""
    rng = np.random.default_rng(0)
    with mpmath.workdps(40):
        for _ in range(60):
            trials = int(np.exp(rng.uniform(0, np.log(3000))))
            count, miss = int(rng.integers(0, trials + 1)), float(10 ** rng.uniform(-12, -0.31))
            low, high = (float(end) for end in clopper_pearson(count, trials, miss))
            if count > 0:
                assert abs(at_least(count, trials, low) / miss - 1) < 1e-8
            if count < trials:  # as many failures, each with probability 1 - high
                failures = at_least(trials - count, trials, 1 - mpmath.mpf(high))
                assert abs(failures / miss - 1) < 1e-8


def test_textbook_limits():
    """10 of 20 at 95 %: (27.20 %, 72.80 %); 0 of 30: at most 11.57 %; the rule of three."""
    low, high = clopper_pearson(10, 20, 0.025)
    assert (round(float(low), 4), round(float(high), 4)) == (0.2720, 0.7280)
    assert round(float(clopper_pearson(0, 30, 0.025)[1]), 4) == 0.1157
    assert float(clopper_pearson(0, 100, 0.05)[1]) == pytest.approx(1 - 0.05 ** (1 / 100),
                                                                    rel=1e-12)


@pytest.mark.theorem("lem-18-cp")
@pytest.mark.parametrize("trials", [1, 7, 40])
def test_coverage_is_exact_at_every_probability(trials):
    """Enumerated, not simulated: the probability that a limit is wrong is at most `miss`."""
    counts = np.arange(trials + 1)
    for miss in (0.025, 0.1, 0.5):
        low, high = clopper_pearson(counts, trials, miss)
        for p in np.linspace(0.001, 0.999, 97):
            mass = binom.pmf(counts, trials, p)
            assert mass[high < p].sum() <= miss + 1e-12 and mass[low > p].sum() <= miss + 1e-12
        assert np.all(np.diff(high) > 0) and np.all(np.diff(low) > 0) and np.all(low <= high)


# --- one audit ---------------------------------------------------------------------------------


def test_an_audit_by_hand():
    result = Audit(false_positives=3, absent=1000, false_negatives=400, present=500, confidence=0.9)
    alpha = binomtest(3, 1000).proportion_ci(0.9, method="exact").high
    beta = binomtest(400, 500).proportion_ci(0.9, method="exact").high
    assert (result.alpha, result.beta) == pytest.approx((alpha, beta), rel=1e-10)
    assert result.epsilon(1e-3) == pytest.approx(math.log((1 - 1e-3 - beta) / alpha), rel=1e-10)
    assert result.mu == pytest.approx(norm.isf(alpha) - norm.ppf(beta), rel=1e-10)
    assert result.kind == "lower bound" and result.details(0.1)["confidence"] == 0.9
    assert float(result.delta(1.5)) == pytest.approx(1 - beta - math.exp(1.5) * alpha, rel=1e-10)
    turned = Audit(false_positives=400, absent=500, false_negatives=3, present=1000, confidence=0.9)
    assert turned.epsilon(1e-3) == pytest.approx(result.epsilon(1e-3), rel=1e-12)
    assert turned.mu == pytest.approx(result.mu, rel=1e-10)
    assert float(turned.delta(1.5)) == pytest.approx(float(result.delta(1.5)), rel=1e-10)


@pytest.mark.theorem("thm-18-corner")
@quick
@given(st.integers(1, 3000), st.integers(1, 3000), st.floats(0, 1), st.floats(0, 1),
       st.sampled_from([0.0, 1e-5, 0.1]))
def test_the_three_views_agree(absent, present, first, second, delta):
    result = Audit(
        false_positives=round(first * absent), absent=absent,
        false_negatives=round(second * present), present=present
    )
    epsilon = result.epsilon(delta)
    assert 0 <= epsilon < math.inf and result.mu >= 0
    if epsilon > 0:  # δ(ε) of the audit is δ again, and (ε, δ)-DP touches the corner
        assert float(result.delta(epsilon)) == pytest.approx(delta, abs=1e-9)
        claimed = f_epsilon_delta(epsilon, delta, [result.alpha, result.beta])
        assert np.all(claimed <= np.array([result.beta, result.alpha]) + 1e-9)
        assert np.max(claimed - [result.beta, result.alpha]) == pytest.approx(0, abs=1e-9)
    if result.mu > 0:
        assert gaussian_tradeoff(result.mu, result.alpha) == pytest.approx(result.beta, abs=1e-9)
    grid = np.linspace(0, 1, 101)
    f = result.f(grid)
    assert np.all(np.diff(f) <= 1e-12) and np.all(f <= 1 - grid + 1e-12) and np.all(f >= 0)
    assert np.all(np.diff(f, 2) >= -1e-9)  # convex
    assert float(result.f(result.alpha)) <= result.beta + 1e-12


def test_every_valid_guarantee_passes_below_the_chords():
    """At the true errors of a Gaussian's tests the polygon lies above the curve, and touches it at
    the corner."""
    for mu, alpha in product((0.5, 2.0), (0.01, 0.2)):
        beta = float(gaussian_tradeoff(mu, alpha))
        runs = 10**9
        result = Audit(false_positives=int(alpha * runs), absent=runs,
                       false_negatives=int(beta * runs), present=runs)
        grid = np.linspace(0, 1, 501)
        assert np.all(result.f(grid) >= gaussian_tradeoff(mu, grid) - 1e-9)
        assert float(result.f(alpha)) == pytest.approx(beta, abs=5e-4)
        assert result.mu == pytest.approx(mu, abs=2e-3)
        assert result.epsilon(1e-6) <= GaussianGuarantee(mu=mu).epsilon(1e-6)


def test_counts_and_choice_of_a_threshold():
    absent, present = [0.0, 1.0, 2.0, 3.0], [1.0, 2.5, 4.0]
    result = audit_scores(absent, present, 2.0)  # a score equal to the threshold means absent
    assert (result.false_positives, result.false_negatives, result.absent, result.present) == (1, 1,
                                                                                               4, 3)
    assert audit_scores(absent, present, math.inf).false_negatives == 3
    rng = np.random.default_rng(1)
    absent, present = rng.normal(0, 1, 300), rng.normal(2, 1, 200)
    best = max((audit_scores(absent, present, t).epsilon(0.01), t)
               for t in np.concatenate([absent, present]))
    assert audit_scores(absent, present,
                        best_threshold(absent, present,
                                       0.01)).epsilon(0.01) == pytest.approx(best[0])
    held = held_out_audit(absent, present, 0.01)
    threshold = best_threshold(absent[::2], present[::2], 0.01)
    assert held == audit_scores(absent[1::2], present[1::2], threshold)


# --- one run -----------------------------------------------------------------------------------


def tail_by_enumeration(correct, guesses, epsilon, canaries, delta):
    """The bound of Steinke, Nasr and Jagielski, term by term from binomial coefficients."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    mass = [math.comb(guesses, k) * p**k * (1 - p) ** (guesses - k) for k in range(guesses + 1)]
    extra = max((sum(mass[correct - i : correct]) / i for i in range(1, correct + 1)), default=0.0)
    return min(1.0, sum(mass[correct:]) + 2 * canaries * delta * extra)


@pytest.mark.parametrize("guesses", [1, 4, 30])
def test_one_run_tail_by_enumeration(guesses):
    """Relative accuracy 1e-9, also in the far tail."""
    for correct, epsilon, delta in product(range(guesses + 1), (0.0, 0.7, 3.0), (0.0, 1e-5, 1e-3)):
        want = tail_by_enumeration(correct, guesses, epsilon, 2 * guesses, delta)
        got = one_run_tail(correct, guesses, epsilon, canaries=2 * guesses, delta=delta)
        assert got == pytest.approx(want, rel=1e-9, abs=0)


def test_one_run_tail_in_forty_digits():
    rng = np.random.default_rng(0)
    with mpmath.workdps(40):
        for _ in range(40):
            guesses, epsilon = int(np.exp(rng.uniform(0, np.log(3000)))), float(rng.uniform(0, 8))
            correct = int(rng.integers(1, guesses + 1))
            want = at_least(correct, guesses, 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon))))
            got = one_run_tail(correct, guesses, epsilon, canaries=guesses)
            assert abs(got - want) <= 1e-9 * want + mpmath.mpf(10) ** -300


def best_tail(table, right, v):
    """Largest P[at least v right] of a table P[o | s], guesses chosen for each output, coins
    fair."""
    return ((right >= v) @ table).max(axis=0).sum() / len(table)


@pytest.mark.theorem("thm-18-one-run")
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.5])
def test_no_pure_mechanism_beats_the_binomial_and_randomised_response_attains_it(epsilon):
    rng = np.random.default_rng(0)
    coins = np.array(list(product((0, 1), repeat=3)))
    answers = np.array(list(product((-1, 0, 1), repeat=3)))
    right = (answers[:, None] == 1) & (coins == 1) | (answers[:, None] == -1) & (coins == 0)
    hits = right.sum(axis=2)
    p = 1 / (1 + math.exp(-epsilon))
    response = np.array([[math.prod(p if a == b else 1 - p for a, b in zip(s, o, strict=True))
                          for o in coins]
                         for s in coins])  # fmt: skip
    for guesses, v in ((g, v) for g in (1, 2, 3) for v in range(g + 1)):
        right = hits[np.abs(answers).sum(axis=1) == guesses]
        bound = one_run_tail(v, guesses, epsilon, canaries=3)
        assert best_tail(response, right, v) == pytest.approx(bound, rel=1e-12)
        for _ in range(40):
            # weights within e^{ε/2}: ε-DP after scaling
            table = np.exp(epsilon / 2 * rng.random((8, 5)))
            assert best_tail(table / table.sum(axis=1, keepdims=True), right, v) <= bound + 1e-12


def test_the_approximate_bound_holds_where_the_law_is_known():
    """Two (ε, δ)-DP mechanisms: each coin shown with probability δ, or all at once with probability
    δ."""
    for m, epsilon, delta in product((1, 5, 60), (0.0, 1.0), (1e-4, 1e-2)):
        p = 1 / (1 + math.exp(-epsilon))
        for v in range(m + 1):
            bound = one_run_tail(v, m, epsilon, canaries=m, delta=delta)
            assert binom.sf(v - 1, m, delta + (1 - delta) * p) <= bound + 1e-12
            assert (1 - delta) * binom.sf(v - 1, m, p) + delta <= bound + 1e-12 or bound == 1


@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-3])
def test_one_run_epsilon_is_where_the_tail_meets_five_percent(delta):
    facts = {"canaries": 400, "delta": delta}
    for correct in (50, 62, 75, 95, 100):
        bound = one_run_epsilon(correct, 100, **facts)
        if bound == 0:
            assert one_run_tail(correct, 100, 0.0, **facts) > 0.05 or correct == 50
            continue
        below = [one_run_tail(correct, 100, e, **facts) for e in np.linspace(0, bound, 60)]
        assert np.all(np.diff(below) > 0) and below[-1] <= 0.05
        assert one_run_tail(correct, 100, bound + 1e-6, **facts) > 0.05
    assert one_run_epsilon(100, 100, canaries=100, confidence=0.9) == pytest.approx(
        -math.log(0.1 ** (-1 / 100) - 1), rel=1e-9
    )


def test_one_run_covers_randomised_response():
    """Exact: the probability that the bound exceeds ε is at most 5 %."""
    for epsilon, guesses in product((0.0, 0.5, 2.0), (10, 80)):
        p = 1 / (1 + math.exp(-epsilon))
        wrong = [v for v in range(guesses + 1)
                 if one_run_epsilon(v, guesses, canaries=guesses) > epsilon + 1e-9]
        assert sum(binom.pmf(wrong, guesses, p)) <= 0.05


def test_guesses_are_the_extremes():
    scores = [0.2, 9.0, -3.0, 4.0, -1.0]
    assert guess(scores, 3).tolist() == [0, 1, -1, 1, 0]
    assert guess(scores, 5).tolist() == [1, 1, -1, 1, -1]
    assert np.abs(guess(np.zeros(10), 4)).sum() == 4


# --- audits of correct code --------------------------------------------------------------------

ALLOWED = binom.ppf(0.99, 200, 0.05)  # of 200 audits, when each errs with probability 5 %


@pytest.mark.theorem("thm-18-corner")
@pytest.mark.parametrize("delta", [0.01, 0.1])
@pytest.mark.parametrize(("q", "sigma", "steps"), [(0.9, 2.0, 4), (0.5, 1.0, 2), (1.0, 3.0, 6)])
def test_two_hundred_audits_of_drawn_losses(q, sigma, steps, delta):
    remove, add = PoissonLaw(q, sigma, "remove"), PoissonLaw(q, sigma, "add")
    truth = TensorPower(laws=(remove, add), steps=steps).lower.epsilon(delta)
    exceeding = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        with_record = remove.sample(2000 * steps, rng).reshape(-1, steps).sum(axis=1)
        without = -add.sample(2000 * steps, rng).reshape(-1, steps).sum(axis=1)
        exceeding += audit_scores(without, with_record, truth).epsilon(delta) > truth
    assert exceeding <= ALLOWED


def test_two_hundred_audits_of_the_symmetric_law():
    """C_p(G): the loss under P has the law of minus the loss under Q."""
    law, steps, delta = SubsampledLaw(0.5, 1.0), 3, 0.02
    truth = TensorPower(laws=(law,), steps=steps).lower.epsilon(delta)
    bounds = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        p, q = (law.sample(2000 * steps, rng).reshape(-1, steps).sum(axis=1) for _ in range(2))
        bounds.append(audit_scores(-q, p, truth).epsilon(delta))
    assert np.sum(np.array(bounds) > truth) <= ALLOWED and np.median(bounds) > 0.5 * truth


def test_two_hundred_audits_of_the_code_under_replace_one(lab):
    run = NoisySGD(n=4, batch_size=3, steps=2, noise_multiplier=4.0, sampling="fixed-size")
    laws = tuple(PoissonLaw(0.75, 2.0, way) for way in ("remove", "add"))
    truth = TensorPower(laws=laws, steps=2).lower.epsilon(0.05)
    flags, exceeding, seen = np.arange(200) % 2 == 1, 0, []
    for seed in range(200):
        sums = lab["replaced_blocks"](noisy_step, run, 200, flags, seed)
        score = lab["mixture_loss"](0.75, (2 * sums - 2) / 4.0**2).sum(axis=1)
        exceeding += audit_scores(score[~flags], score[flags], truth).epsilon(0.05) > truth
        seen.append(score)
    assert exceeding <= ALLOWED
    for which, law, sign in ((flags, laws[0], 1), (~flags, laws[1], -1)):
        drawn = sign * law.sample(40_000, np.random.default_rng(5)).reshape(-1, 2).sum(axis=1)
        assert ks_2samp(np.concatenate([s[which] for s in seen]), drawn).pvalue > 1e-3


# --- planted bugs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "score"),
    [("half_the_noise", "likelihood_ratio"), ("no_clipping", "likelihood_ratio"),
     ("noise_reused", "spread")],
)
def test_a_planted_bug_is_found_and_correct_code_is_not_accused(lab, step, score):
    run = NoisySGD(n=1000, batch_size=900, steps=4, noise_multiplier=2.0)
    claimed = TensorPower(laws=run.laws("add-remove"), steps=4).epsilon(0.01)
    found = {step: 0, "noisy_step": 0}
    for name, seed in product(found, range(5)):
        sums = lab["observe"](lab[name], run, 5, 20_000 + 5 * seed)
        found[name] += held_out_audit(*map(lab[score], sums), 0.01).epsilon(0.01) > claimed
    assert found == {step: 5, "noisy_step": 0}


def test_records_of_the_divisor(lab):
    kept = KEPT["divisor"]
    assert kept["audits"] == len(kept["counts"]) >= 20
    run = NoisySGD(**kept["run"])
    claimed = TensorPower(laws=run.laws("add-remove"), steps=1).epsilon(kept["delta"])
    runs = kept["runs"]
    bounds = [Audit(false_positives=a, absent=runs, false_negatives=b,
                    present=runs).epsilon(kept["delta"])
              for a, b in kept["counts"]]  # fmt: skip
    assert np.mean(np.array(bounds) > claimed) >= 0.9
    seeds = range(2 * runs, 2 * runs + 60)  # a prefix of the second audit's runs
    score = [record_audits.small_run(record_audits.drawn_size_divisor, run, False, s)
             for s in seeds]
    assert np.mean(score) == pytest.approx(-1, abs=0.6)  # the wrong divisor turns 9 into 10
    assert np.mean([record_audits.small_run(noisy_step, run, False, s)
                    for s in seeds]) == pytest.approx(0, abs=0.6)


def test_records_of_the_image_are_made_again():
    kept = KEPT["image"]
    run, runs = NoisySGD(**kept["run"]), kept["runs"]
    assert len(kept["scores"]) == 2 * runs
    x, y = record_audits.image_data()
    for seed in (2, runs + 2):
        fresh = record_audits.image_run(x, y, run, seed >= runs, seed, kept["learning_rate"])
        assert np.allclose(fresh, kept["scores"][seed], rtol=1e-2, atol=1e-2)
    white = np.array(kept["scores"])[:, 1]  # N(∓2, 2²) for mu = 2: the worst case is attained
    assert ks_2samp(white[:runs], norm.rvs(-2, 2, size=20_000, random_state=0)).pvalue > 1e-3
    assert ks_2samp(white[runs:], norm.rvs(2, 2, size=20_000, random_state=1)).pvalue > 1e-3


@pytest.mark.parametrize("name", ["divisor", "image"])
def test_a_record_says_how_it_was_made(name):
    kept = KEPT[name]
    assert date.fromisoformat(kept["date"]) and {"torch", "numpy",
                                                 "python"} <= set(kept["versions"])
    want = record_audits.DIVISOR if name == "divisor" else record_audits.IMAGE
    assert {key: kept[key] for key in want} == want


def test_the_chapter_shows_the_recorded_code(chapter):
    tree = ast.parse(Path(record_audits.__file__).read_text("utf-8"))
    tool = {node.name: ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    shown = ["linear_loss", "drawn_size_divisor", "small_run", "small_scores", "image_data",
             "image_model", "image_run"]
    assert [name for name in shown if tool[name].split() != chapter[name].split()] == []


# --- bad input ---------------------------------------------------------------------------------

GOOD = {"false_positives": 1, "absent": 10, "false_negatives": 2, "present": 10}


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("false_positives", lambda: Audit(**{**GOOD, "false_positives": 11})),
        ("false_negatives", lambda: Audit(**{**GOOD, "false_negatives": -1})),
        ("absent", lambda: Audit(**{**GOOD, "absent": 0})),
        ("confidence", lambda: Audit(**GOOD, confidence=1.0)),
        ("delta", lambda: Audit(**GOOD).epsilon(1.0)),
        ("epsilon", lambda: Audit(**GOOD).delta(-1.0)),
        ("alpha", lambda: Audit(**GOOD).f(1.5)),
        ("miss", lambda: clopper_pearson(1, 10, 0.0)),
        ("count", lambda: clopper_pearson(11, 10, 0.1)),
        ("absent", lambda: audit_scores([math.nan], [1.0], 0.0)),
        ("present", lambda: best_threshold([1.0], [], 0.0)),
        ("threshold", lambda: audit_scores([0.0], [1.0], math.nan)),
        ("absent", lambda: held_out_audit([1.0], [2.0, 3.0], 0.0)),
        ("guesses", lambda: guess([1.0, 2.0], 3)),
        ("correct", lambda: one_run_tail(3, 2, 1.0, canaries=5)),
        ("canaries", lambda: one_run_tail(1, 2, 1.0, canaries=1)),
        ("epsilon", lambda: one_run_tail(1, 2, -1.0, canaries=2)),
        ("delta", lambda: one_run_epsilon(1, 2, canaries=2, delta=1.0)),
        ("confidence", lambda: one_run_epsilon(1, 2, canaries=2, confidence=0.0)),
    ],
)
def test_bad_input_is_refused_by_name(name, call):
    with pytest.raises(ValueError, match=name):
        call()
