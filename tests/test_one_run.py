"""One-run audits of whole curves, against recorded numbers, closed forms and enumeration."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpteach import NoisySGD, account
from dpteach.guarantees import GaussianGuarantee, Guarantee
from dpteach.one_run import (
    _by_singletons,
    _by_tails,
    _rates,
    least_correct,
    one_run_mu,
    one_run_p_value,
    one_run_sigma,
)

SMALL = NoisySGD.abadi16(rate=0.9, sigma=2.0, steps=4)


class Profile(Guarantee):
    """A guarantee from a function of ε."""

    name, kind, assumptions = "profile", "exact", "none"

    def __init__(self, delta):
        self.of = delta

    def profile(self, epsilon):
        return float(self.of(epsilon))

    def least_epsilon(self, delta):
        raise NotImplementedError


def test_recorded_numbers():
    """By other code (recorded reference numbers), level 0.05."""
    mu = one_run_mu(167, 200, canaries=1000)
    assert mu == pytest.approx(0.518558, abs=2e-6)
    assert GaussianGuarantee(mu=mu).epsilon(1e-5) == pytest.approx(2.0759, abs=1e-4)
    mu = one_run_mu(80, 100, canaries=100)
    assert mu == pytest.approx(0.530689, abs=2e-6)
    assert GaussianGuarantee(mu=mu).epsilon(1e-5) == pytest.approx(2.1303, abs=1e-4)
    rates = _rates(GaussianGuarantee(mu=0.5))
    assert _by_tails(rates, 15, 20, 20) == pytest.approx(0.278133, abs=1e-6)
    assert _by_singletons(rates, 15, 20, 20) == pytest.approx(0.510602, abs=1e-6)


def test_the_run_s_own_family():
    sigma = one_run_sigma(SMALL, "add-remove", 167, 200, canaries=1000)
    assert 3.50 < sigma < 3.57  # recorded: 3.52, ±0.01 in ε
    assert one_run_sigma(SMALL, "add-remove", 90, 200, canaries=1000) == math.inf


@pytest.mark.theorem("thm-18-f-one-run")
@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_one_coin_is_exact(mu):
    """The best guess of one coin is right with probability Φ(mu/2)."""
    found = one_run_p_value(GaussianGuarantee(mu=mu), 1, 1, canaries=1)
    assert found == pytest.approx(norm.cdf(mu / 2), rel=1e-6)


@pytest.mark.theorem("thm-18-f-one-run")
@pytest.mark.parametrize("epsilon, r", [(0.5, 5), (1.0, 12), (2.0, 30)])
def test_randomised_response_attains_it(epsilon, r):
    """Its own profile, max(0, p - e^ε(1 - p)); the count is binomial."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    claim = Profile(lambda e: max(0.0, p - math.exp(e) * (1 - p)))
    for c in (1, r // 2, r - 1, r):
        tail = binom.sf(c - 1, r, p)
        assert one_run_p_value(claim, c, r, canaries=r) == pytest.approx(tail, rel=1e-5)


def best_tail(table, guesses, c, only_in):
    """The largest probability of c right guesses among all ways to guess, by enumeration."""
    coins = np.array(list(product((0, 1), repeat=3)))
    ways = np.array([w for w in product((0, 1) if only_in else (-1, 0, 1), repeat=3)
                     if np.abs(w).sum() == guesses])
    right = ((ways[:, None] == 1) & (coins == 1)) | ((ways[:, None] == -1) & (coins == 0))
    return ((right.sum(axis=2) >= c) @ table).max(axis=0).sum() / len(coins)


@pytest.mark.theorem("thm-18-f-one-run")
@pytest.mark.parametrize("only_in", [False, True])
def test_no_mechanism_beats_it(only_in):
    """Random mechanisms on three coins, against the profile of their own neighbours."""
    rng = np.random.default_rng(8)
    neighbours = [(s, s ^ (1 << k)) for s in range(8) for k in range(3)]
    tight = 0
    for trial in range(60):
        table = rng.dirichlet(np.full(6, rng.choice([0.3, 1.0, 5.0])), size=8)
        claim = Profile(lambda e, t=table: max(
            np.maximum(t[a] - math.exp(e) * t[b], 0).sum() for a, b in neighbours))
        guesses = 1 + trial % 3
        for c in range(1, guesses + 1):
            truth = best_tail(table, guesses, c, only_in)
            bound = one_run_p_value(claim, c, guesses, canaries=3, only_in=only_in)
            assert truth <= bound * (1 + 1e-9)
            tight += bound < 1.3 * truth
    assert tight > 20


def test_only_present_guesses_give_a_smaller_bound():
    g = GaussianGuarantee(mu=0.7)
    for c, r, m in ((10, 10, 100), (18, 20, 100), (9, 10, 10)):
        assert (one_run_p_value(g, c, r, canaries=m, only_in=True)
                <= one_run_p_value(g, c, r, canaries=m))
    assert one_run_mu(10, 10, canaries=100, only_in=True) > one_run_mu(10, 10, canaries=100)


def test_order():
    g = GaussianGuarantee(mu=0.8)
    values = [one_run_p_value(g, c, 20, canaries=40) for c in range(21)]
    assert values[0] == 1 and np.all(np.diff(values) <= 1e-9)
    louder = [one_run_p_value(GaussianGuarantee(mu=mu), 18, 20, canaries=40)
              for mu in (0.01, 0.5, 1, 2, 5, 50)]
    assert np.all(np.diff(louder) >= -1e-9) and louder[-1] == 1


def test_the_least_correct_is_where_the_p_value_passes():
    g = GaussianGuarantee(mu=1.0)
    c = least_correct(g, 50, canaries=100)
    assert one_run_p_value(g, c, 50, canaries=100) <= 0.05
    assert one_run_p_value(g, c - 1, 50, canaries=100) > 0.05
    assert least_correct(GaussianGuarantee(mu=50.0), 5, canaries=5) == 6  # nothing refutes it


def test_coverage_and_an_invalid_audit_that_it_would_catch():
    """2000 audits of exactly 1-GDP scores; with the truth understated the alarms are many."""
    rng, g = np.random.default_rng(9), GaussianGuarantee(mu=1.0)
    inside = rng.random((2000, 200)) < 0.5
    scores = rng.normal(size=inside.shape) + inside
    order = scores.argsort(axis=1)
    right = ((~np.take_along_axis(inside, order[:, :20], 1)).sum(1)
             + np.take_along_axis(inside, order[:, -20:], 1).sum(1))
    assert np.mean(right >= least_correct(g, 40, canaries=200)) <= 0.05
    assert np.mean(right >= least_correct(GaussianGuarantee(mu=0.05), 40, canaries=200)) > 0.5


def test_a_claimed_run_by_its_own_curve():
    claim = account(SMALL, "add-remove")["tensor-power"]
    assert one_run_p_value(claim, 167, 200, canaries=1000) > 0.05
    boast = account(NoisySGD.abadi16(rate=0.9, sigma=8.0, steps=4), "add-remove")["tensor-power"]
    assert one_run_p_value(boast, 167, 200, canaries=1000) < 0.05


@pytest.mark.parametrize("call", [
    lambda: one_run_p_value(3, 1, 1, canaries=1),
    lambda: one_run_p_value(GaussianGuarantee(mu=1.0), 3, 2, canaries=5),
    lambda: one_run_p_value(GaussianGuarantee(mu=1.0), 1, 6, canaries=5),
    lambda: one_run_mu(1, 0, canaries=5), lambda: one_run_mu(1, 2, canaries=5, confidence=1.0),
    lambda: least_correct(GaussianGuarantee(mu=1.0), 1.5, canaries=5),
])
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError, match="isn't allowed"):
        call()
