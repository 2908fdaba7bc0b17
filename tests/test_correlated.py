"""Correlated noise against brute force, dense matrices and published coefficients."""

import itertools
import math

import numpy as np
import pytest
from scipy.linalg import sqrtm

from dpteach.correlated import (
    CorrelatedSGD,
    inverse_coefficients,
    momentum_root,
    nuclear_bound,
    prefix_root,
    sensitivity,
    toeplitz,
    workload_error,
)
from dpteach.laws import gaussian_delta


def patterns(steps, gap, participations):
    """Every admissible set of steps."""
    for size in range(1, participations + 1):
        for chosen in itertools.combinations(range(steps), size):
            if all(b - a >= gap for a, b in itertools.pairwise(chosen)):
                yield list(chosen)


def test_root_is_the_published_series_and_squares_to_the_prefix_sums():
    assert prefix_root(5).tolist() == [1, 1 / 2, 3 / 8, 5 / 16, 35 / 128]
    root = toeplitz(prefix_root(40), 40)
    assert np.allclose(root @ root, np.tri(40), atol=1e-13)
    assert np.allclose(root, np.real(sqrtm(np.tri(40))), atol=1e-5)  # a defective matrix: few digits
    assert inverse_coefficients(prefix_root(5), 5) == pytest.approx(
        [1, -1 / 2, -1 / 8, -1 / 16, -5 / 128], rel=1e-14
    )


@pytest.mark.parametrize(("steps", "landau"), [(10, 1.79134394), (1000, 3.26500308)])
def test_single_participation_is_landaus_constant(steps, landau):
    assert sensitivity(prefix_root(steps), steps, steps, 1) ** 2 == pytest.approx(landau, rel=1e-8)


@pytest.mark.parametrize(
    ("bands", "steps", "gap", "participations", "known"),
    [(8, 8, 3, 3, 2.72563112), (4, 16, 4, 4, 2.43990266), (4, 15, 4, 4, 2.41980759)],
)
def test_reference_sensitivities(bands, steps, gap, participations, known):
    assert sensitivity(prefix_root(bands), steps, gap, participations) == pytest.approx(known, rel=1e-8)


@pytest.mark.theorem("prop-23-toeplitz")
@pytest.mark.parametrize("seed", range(20))
def test_sensitivity_is_the_worst_of_all_patterns(seed):
    rng = np.random.default_rng(seed)
    steps, gap = int(rng.integers(2, 13)), int(rng.integers(1, 6))
    participations, bands = int(rng.integers(1, 5)), int(rng.integers(1, steps + 1))
    c = np.sort(rng.random(bands))[::-1]
    matrix = toeplitz(c, steps)
    worst = max(
        np.linalg.norm(matrix[:, chosen].sum(axis=1))
        for chosen in patterns(steps, gap, participations)
    )
    assert sensitivity(c, steps, gap, participations) == pytest.approx(worst, rel=1e-12)


def test_no_vector_valued_change_exceeds_the_sensitivity():
    rng = np.random.default_rng(1)
    steps, gap, participations = 12, 3, 3
    c = prefix_root(12)
    matrix, bound = toeplitz(c, steps), sensitivity(c, steps, gap, participations)
    every = list(patterns(steps, gap, participations))
    for _ in range(10_000):
        change = np.zeros((steps, 3))
        chosen = every[rng.integers(len(every))]
        unit = rng.standard_normal((len(chosen), 3))
        change[chosen] = unit / np.linalg.norm(unit, axis=1, keepdims=True)
        assert np.linalg.norm(matrix @ change) <= bound * (1 + 1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_errors_are_those_of_dense_matrices(momentum):
    steps = 64
    workload = np.tri(steps)
    if momentum:
        k = np.arange(steps)
        workload = toeplitz((1 - momentum ** (k + 1)) / (1 - momentum), steps)
    for c in (np.ones(1), prefix_root(5), momentum_root(steps, momentum)):
        rows = np.linalg.norm(workload @ np.linalg.inv(toeplitz(c, steps)), axis=1)
        found = workload_error(c, steps, momentum)
        assert found == pytest.approx((math.sqrt(np.mean(rows**2)), rows.max()), rel=1e-10)


def test_momentum_reference_numbers():
    c = momentum_root(64, 0.9)
    assert sensitivity(c, 64, 64, 1) == pytest.approx(3.77660150, rel=1e-8)
    assert workload_error([1.0], 64, 0.9)[1] == pytest.approx(70.91147602, rel=1e-8)
    root = toeplitz(c, 64)
    k = np.arange(64)
    assert np.allclose(root @ root, toeplitz((1 - 0.9 ** (k + 1)) / 0.1, 64), rtol=1e-12)


def test_prefix_errors_of_a_thousand_steps():
    root, sens = prefix_root(1024), sensitivity(prefix_root(1024), 1024, 1024, 1)
    rmse, most = workload_error(root, 1024)
    assert (sens * rmse, sens * most) == pytest.approx((3.109790, 3.272554), abs=1e-6)
    assert nuclear_bound(1024) == pytest.approx(2.909584, abs=1e-6)
    singular = np.linalg.svd(np.tri(64), compute_uv=False)
    assert nuclear_bound(64) == pytest.approx(singular.mean(), rel=1e-12)


@pytest.mark.parametrize(
    ("bands", "known"),
    [(1, 164.3396), (2, 122.526), (4, 91.743), (16, 51.518), (64, 29.257), (240, 18.394),
     (3600, 24.431)],
)  # fmt: skip
def test_errors_over_fifteen_epochs(bands, known):
    c = prefix_root(bands)
    found = sensitivity(c, 3600, 240, 15) * workload_error(c, 3600)[0]
    assert found == pytest.approx(known, rel=3e-5)


@pytest.mark.theorem("thm-23-adaptive")
def test_an_adaptive_attacker_gains_nothing():
    """T = 3, gradients that keep, flip or stop after what was seen: δ stays below G_mu's."""
    rng = np.random.default_rng(5)
    c, sigma, epsilon, size = prefix_root(3), 1.0, 0.5, 400_000
    matrix = toeplitz(c, 3)
    mu = sensitivity(c, 3, 1, 3) / sigma
    bound = float(gaussian_delta(mu, epsilon))
    rules = {
        "keep": lambda y: np.ones(size),
        "flip": lambda y: np.sign(y[-1]) if y else np.ones(size),
        "stop": lambda y: (y[-1] < 0.5).astype(float) if y else np.ones(size),
    }
    for name, rule in rules.items():
        z = sigma * rng.standard_normal((3, size))
        outputs, changes, loss = [], [], np.zeros(size)
        for t in range(3):
            changes.append(rule(outputs))
            moved = sum(matrix[t, s] * changes[s] for s in range(t + 1))
            outputs.append(moved + z[t])  # the world with the record
            loss += (moved * z[t] + moved**2 / 2) / sigma**2
        share = np.maximum(0, 1 - np.exp(epsilon - loss))
        error = 4 * share.std() / math.sqrt(size)
        assert share.mean() <= bound + error
        if name == "keep":
            assert share.mean() >= bound - error


def test_a_run_is_exactly_gaussian_and_independent_noise_is_the_composition():
    facts = {"n": 60000, "batch_size": 250, "epochs": 15}
    run = CorrelatedSGD(noise_multiplier=5.0, **facts)
    assert run.mu("zero-out") == pytest.approx(math.sqrt(15) / 5, rel=1e-14)
    assert run.mu("replace-one") == pytest.approx(2 * math.sqrt(15) / 5, rel=1e-14)
    wished = CorrelatedSGD.for_mu(1.0, "replace-one", bands=64, **facts)
    guarantee = wished.guarantee("replace-one")
    assert guarantee.mu == pytest.approx(1.0, rel=1e-14)
    assert guarantee.epsilon(1e-5) == pytest.approx(4.37718, abs=1e-5)
    assert "fixed batches" in guarantee.assumptions


@pytest.mark.parametrize(
    ("call", "name"),
    [(lambda: sensitivity([1.0, 2.0], 4, 1, 1), "coefficients"),
     (lambda: sensitivity([0.0], 4, 1, 1), "coefficients"),
     (lambda: prefix_root(0), "bands"), (lambda: momentum_root(3, 1.0), "momentum"),
     (lambda: CorrelatedSGD(n=10, batch_size=11, epochs=1, noise_multiplier=1.0), "batch_size"),
     (lambda: CorrelatedSGD(n=10, batch_size=5, epochs=1.5, noise_multiplier=1.0), "epochs"),
     (lambda: CorrelatedSGD(n=10, batch_size=5, epochs=1, noise_multiplier=math.nan), "noise_mult"),
     (lambda: CorrelatedSGD(n=10, batch_size=5, epochs=1, noise_multiplier=1.0).mu("add-remove"),
      "relation")],
)  # fmt: skip
def test_refusals(call, name):
    with pytest.raises(ValueError, match=name):
        call()
