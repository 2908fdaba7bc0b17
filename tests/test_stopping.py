"""Filters against adversaries that use all that they may, and the naive odometer's failure."""

import math

import numpy as np
import pytest

from dpteach.laws import PoissonLaw, gaussian_delta
from dpteach.moments import log_moment
from dpteach.stopping import (
    GaussianFilter,
    RenyiFilter,
    naive_odometer_delta,
    pure_filter_epsilon,
    renyi_budget,
)


@pytest.mark.theorem("thm-22-renyi-filter")
def test_renyi_budget_and_the_steps_that_fit_in_it():
    budget = renyi_budget(1.0, 1e-5, 16.5)
    assert budget == pytest.approx(0.500613, abs=1e-6)
    step = float(log_moment(PoissonLaw(256 / 60000, 1.3), 15.5)) / 15.5
    spent, made = RenyiFilter(16.5, budget), 0
    while spent.spend(step):
        made += 1
    assert made == 3856
    assert spent.epsilon(1e-5) == pytest.approx(1.0, rel=1e-12)
    with pytest.raises(ValueError, match="order"):
        renyi_budget(0.1, 1e-5, 2.0)


@pytest.mark.theorem("thm-22-gdp-filter")
def test_an_adversary_within_a_gdp_budget_gains_nothing():
    """Noise chosen after each output; the budget is used up exactly."""
    rng, size, epsilon = np.random.default_rng(4), 400_000, 1.0
    loss, left, spent = np.zeros(size), np.ones(size), GaussianFilter(1.0)
    for _ in range(6):  # a bolder step after a promising output
        step = np.sqrt(left * np.where(loss > 0.2, 0.7, 0.2))
        loss += step * (rng.standard_normal(size) + step) - step**2 / 2
        left -= step**2
    loss += np.sqrt(left) * (rng.standard_normal(size) + np.sqrt(left)) - left / 2
    share = np.maximum(0, 1 - np.exp(epsilon - loss))
    error = 5 * share.std() / math.sqrt(size)
    assert share.mean() == pytest.approx(float(gaussian_delta(1.0, epsilon)), abs=error)
    assert spent.spend(0.6) and not spent.spend(0.9) and spent.spend(0.8)
    assert spent.guarantee().delta(1.0) == pytest.approx(0.126936738, abs=1e-9)


def test_pure_filter():
    assert pure_filter_epsilon(0.1, 1e-5) == pytest.approx(1.567427, abs=1e-6)


@pytest.mark.theorem("prop-22-odometer")
def test_the_naive_odometer_breaks_its_promise():
    assert naive_odometer_delta(1.0, 1e-5, 2) == pytest.approx(1.86735e-5, rel=1e-4)
    assert naive_odometer_delta(0.3, 0.01, 1) == pytest.approx(0.01, rel=1e-9)  # one step: no choice
    grown = [naive_odometer_delta(0.1, 0.01, horizon) for horizon in (1, 3, 10, 60)]
    assert sorted(grown) == grown and grown[-1] > 0.02


def test_the_odometers_delta_is_what_a_simulation_finds():
    rng, size, mu, delta, horizon = np.random.default_rng(7), 300_000, 0.5, 0.05, 5
    from dpteach.guarantees import GaussianGuarantee

    loss = np.cumsum(rng.normal(mu**2 / 2, mu, (horizon, size)), axis=0)
    limits = [GaussianGuarantee(mu=mu * math.sqrt(t)).epsilon(delta) for t in range(1, horizon + 1)]
    over = loss > np.array(limits)[:, None]
    first = over.argmax(axis=0)
    gained = 1 - np.exp(np.array(limits)[first] - loss[first, np.arange(size)])
    share = np.where(over.any(axis=0), gained, 0.0)
    error = 4 * share.std() / math.sqrt(size)
    assert naive_odometer_delta(mu, delta, horizon) == pytest.approx(share.mean(), abs=error)


@pytest.mark.parametrize(
    ("call", "name"),
    [(lambda: RenyiFilter(1.0, 1.0), "order"), (lambda: RenyiFilter(2.0, 1.0).spend(-1.0), "diverg"),
     (lambda: GaussianFilter(0.0), "mu"), (lambda: pure_filter_epsilon(math.nan, 0.1), "budget"),
     (lambda: naive_odometer_delta(1.0, 0.1, 0), "horizon")],
)  # fmt: skip
def test_refusals(call, name):
    with pytest.raises(ValueError, match=name):
        call()
