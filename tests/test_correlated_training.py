"""The noise source for trainers, and the recorded comparison of chapter 23."""

import json
from importlib.resources import files

import numpy as np
import pytest
import record_correlated
import torch

from dpteach.correlated import prefix_root, toeplitz
from dpteach.run import NoisySGD
from dpteach.training import update
from dpteach.training.correlated import CorrelatedNoise


def test_noise_is_the_inverse_matrix_times_independent_noise():
    steps, shapes = 12, [torch.zeros(3, 2, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)]
    for bands in (1, 3, 12):
        source = CorrelatedNoise(prefix_root(bands), torch.Generator().manual_seed(3))
        drawn = [torch.cat([w.ravel() for w in source(shapes)]).numpy() for _ in range(steps)]
        again = torch.Generator().manual_seed(3)
        z = [
            torch.cat([torch.normal(0.0, 1.0, s.shape, dtype=s.dtype, generator=again).ravel()
                       for s in shapes])
            for _ in range(steps)
        ]
        solved = np.linalg.solve(toeplitz(prefix_root(bands), steps), torch.stack(z).numpy())
        assert np.allclose(np.array(drawn), solved, atol=1e-12)


def test_the_rings_covariance_over_many_runs():
    c, steps, many = prefix_root(4), 6, 200_000
    source = CorrelatedNoise(c, torch.Generator().manual_seed(1))
    w = torch.stack([source([torch.zeros(many)])[0] for _ in range(steps)]).numpy()
    matrix = toeplitz(c, steps)
    assert np.allclose(w @ w.T / many, np.linalg.inv(matrix.T @ matrix), atol=0.02)


def test_one_band_is_noisy_sgd_to_the_bit():
    run = NoisySGD(n=4, batch_size=2, steps=3, noise_multiplier=1.3, clip_norm=0.7)
    model = torch.nn.Linear(3, 2)
    start = [p.detach().clone() for p in model.parameters()]
    totals = [torch.full_like(p, 0.25) for p in start]
    theirs = torch.Generator().manual_seed(9)
    for _ in range(3):
        update(model, totals, run, 0.5, theirs)
    source, ours = CorrelatedNoise([1.0], torch.Generator().manual_seed(9), 1.3 * 0.7), start
    for _ in range(3):
        noise = source(ours)
        for theta, total, w in zip(ours, totals, noise, strict=True):
            theta.sub_(total + w, alpha=0.5 / 2)
    assert all(torch.equal(a, b) for a, b in zip(ours, model.parameters(), strict=True))


def test_the_memory_is_the_ring():
    source = CorrelatedNoise(prefix_root(5), torch.Generator())
    for _ in range(9):
        source([torch.zeros(3)])
    assert len(source.ring) == 4
    with pytest.raises(ValueError, match="coefficients"):
        CorrelatedNoise([0.0, 1.0], torch.Generator())


def test_recorded_runs_begin_as_they_did():
    kept = json.loads((files("dpteach") / "classroom/data/correlated.json").read_text("utf-8"))
    assert len(kept["runs"]) == len(record_correlated.GRID)
    training, _ = record_correlated.load()
    for run in kept["runs"][:: len(kept["runs"]) // 4]:
        facts = {key: run[key] for key in record_correlated.GRID[0]}
        theta = record_correlated.train(data=training, stop_after=20, **facts)
        assert float(theta.norm()) == pytest.approx(run["norm_after_20"], rel=1e-4)
