"""Hidden iterates against covariance recursions, a quadratic programme and simulation."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dpteach.hidden import (
    average_loss_bound,
    contraction,
    hidden_mu,
    projected_mu,
    quadratic_mu,
    shifted_mu,
)


def gaussian_mu_of_recursion(c, steps):
    """mu between the laws of X_T for φ = cx and φ' = cx + 1, noise 1: by mean and variance."""
    mean = variance = 0.0
    for _ in range(steps):
        mean, variance = c * mean + 1, c * c * variance + 1
    return mean / math.sqrt(variance)


@pytest.mark.parametrize(
    ("steps", "known"), [(10, 0.31609611), (100, 0.96101374), (1000, 1.41061270)]
)
def test_reference_numbers(steps, known):
    assert hidden_mu(0.1, 0.99, steps) == pytest.approx(known, rel=1e-7)
    assert hidden_mu(0.1, 0.99, 10**9) == pytest.approx(1.41067360, rel=1e-8)


@pytest.mark.theorem("thm-24-shifted")
@pytest.mark.parametrize("c", [0.0, 0.3, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 7, 500])
def test_equal_steps_are_attained_by_one_contraction(c, steps):
    assert hidden_mu(1.0, c, steps) == pytest.approx(gaussian_mu_of_recursion(c, steps), rel=1e-10)
    if c >= 1e-3:
        assert shifted_mu([1.0] * steps, c) == pytest.approx(hidden_mu(1.0, c, steps), rel=1e-10)


@pytest.mark.parametrize("seed", range(15))
def test_the_minorant_is_the_best_choice_of_shifts(seed):
    """Against a solver: minimise Σ a² with z_k = c z_{k-1} + s_k - a_k ≥ 0 and z_T = 0."""
    rng = np.random.default_rng(seed)
    steps, c = int(rng.integers(2, 8)), float(rng.uniform(0.5, 1))
    s = rng.random(steps) * (rng.random(steps) < 0.7)
    powers = np.tril(c ** np.maximum(np.subtract.outer(np.arange(steps), np.arange(steps)), 0))
    left = lambda a: powers @ (s - a)  # noqa: E731
    found = minimize(
        lambda a: a @ a, s, bounds=[(0, None)] * steps, method="SLSQP", tol=1e-14,
        constraints=[{"type": "ineq", "fun": lambda a: left(a)[:-1]},
                     {"type": "eq", "fun": lambda a: left(a)[-1]}],
    )  # fmt: skip
    assert shifted_mu(s, c) == pytest.approx(math.sqrt(found.x @ found.x), abs=1e-5)


def test_a_record_used_once_is_hidden_by_the_steps_after_it():
    for steps, at in [(20, 5), (9, 9), (50, 1)]:
        shifts = [0.0] * steps
        shifts[at - 1] = 1.0
        assert shifted_mu(shifts, 1.0) == pytest.approx((steps - at + 1) ** -0.5, rel=1e-12)


def test_cyclic_batches_have_the_published_form():
    c, length, epochs = 0.97, 5, 7
    shifts = ([0.0] * (length - 1) + [1.0]) * epochs
    ratio = (1 - c * c) / (1 - c**length) ** 2
    ratio *= (1 - c ** (length * (epochs - 1))) / (1 + c ** (length * (epochs - 1)))
    known = math.sqrt(1 + c ** (2 * length - 2) * ratio)
    assert shifted_mu(shifts, c) == pytest.approx(known, rel=1e-10)


@pytest.mark.theorem("prop-24-quadratic")
def test_the_bound_lies_above_the_exact_curve_and_composition_passes_it():
    rng = np.random.default_rng(3)
    passed = 0
    for _ in range(500):
        d, steps = int(rng.integers(1, 6)), int(rng.integers(1, 400))
        curvature, eta = rng.uniform(0.01, 2.0, d), float(rng.uniform(0.01, 0.9))
        v = rng.standard_normal(d)
        v *= rng.random() / np.linalg.norm(v)
        exact = quadratic_mu(1.0, 1 - eta * curvature, v, steps)
        bound = hidden_mu(1.0, contraction(eta, curvature.min(), curvature.max()), steps)
        assert exact <= bound * (1 + 1e-12) <= math.sqrt(steps) * (1 + 1e-9)
        passed += bound < 0.9 * math.sqrt(steps)
    assert passed > 100


def test_quadratic_reference_and_its_simulated_law():
    v = np.full(3, 3**-0.5)
    h = np.array([0.2, 1.0, 4.0])
    assert quadratic_mu(1.0, 1 - h / 4, v, 50) == pytest.approx(3.71605036, rel=1e-8)
    assert hidden_mu(1.0, contraction(0.25, 0.2, 4.0), 50) == pytest.approx(5.78161732, rel=1e-8)
    rng = np.random.default_rng(8)
    size, steps, c = 200_000, 6, 1 - 0.25 * h
    theta = np.zeros((2, size, 3))
    for _ in range(steps):
        theta = c * theta + rng.standard_normal(theta.shape)
        theta[1] += v
    spread = theta[0].std(axis=0)
    gap = (theta[1] - theta[0]).mean(axis=0) / spread
    assert np.linalg.norm(gap) == pytest.approx(quadratic_mu(1.0, c, v, steps), rel=0.01)


def test_projection_and_its_limits():
    for steps in (80, 1000):  # D = 1, η = 0.1, Δ/n = 0.5, noise 8: s = 0.05, mu_1 = 1/16
        assert projected_mu(1 / 16, 20.0, steps) == pytest.approx(0.55901699, rel=1e-7)
    assert projected_mu(0.1, 1e9, 100) == pytest.approx(1.0)
    brute = min((37.5 + k) / math.sqrt(k) for k in range(1, 1000))
    assert projected_mu(1.0, 37.5, 999) == pytest.approx(brute, rel=1e-14)


def closed_forms(n, d, mu, steps):
    """E F of the average on F = λ‖θ‖²/2, R = L = 1 (chapter 24), and the mean of E F(θ_t)."""
    s = 2 * math.sqrt(steps) / (n * mu)
    eta = 1 / math.sqrt(steps * (1 + d * s * s))
    c = 1 - eta * 2 * math.sqrt(d) / (n * mu)
    j = np.arange(steps)
    tail = ((1 - c ** (steps - 1 - j)) / (1 - c)) ** 2
    average = ((1 - c**steps) / (steps * (1 - c))) ** 2 + d * (eta * s / steps) ** 2 * tail.sum()
    return (1 - c) / eta / 2 * average


@pytest.mark.theorem("thm-24-convergence")
@pytest.mark.parametrize(
    ("facts", "bound", "average"),
    [((2000, 20, 1.0, 50_000), 0.00632456, 0.0013759), ((1000, 10, 0.5, 390), 0.052193, 0.0050938)],
)
def test_convergence_reference_numbers(facts, bound, average):
    assert average_loss_bound(*facts) == pytest.approx(bound, rel=1e-5)
    assert closed_forms(*facts) == pytest.approx(average, rel=1e-4)
    assert closed_forms(*facts) <= average_loss_bound(*facts)


@pytest.mark.parametrize(
    ("call", "name"),
    [(lambda: hidden_mu(0.1, 1.01, 10), "c = 1.01"), (lambda: hidden_mu(math.nan, 0.9, 1), "mu_1"),
     (lambda: hidden_mu(0.1, 0.9, 1.5), "steps"), (lambda: shifted_mu([-1.0], 0.9), "shifts"),
     (lambda: contraction(0.1, 2.0, 1.0), "smoothness"),
     (lambda: quadratic_mu(1.0, [0.5, 0.5], [1.0, 1.0], 3), "direction"),
     (lambda: average_loss_bound(10, 1, 1.0, 0), "steps")],
)  # fmt: skip
def test_refusals(call, name):
    with pytest.raises(ValueError, match=name):
        call()
