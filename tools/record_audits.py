"""Carry out the audits of chapter 18 that take minutes; keep their results in
dpteach/classroom/data/audits.json.

    python tools/record_audits.py              # all, some minutes
    python tools/record_audits.py divisor      # one of: divisor, image

Each record has what is needed to make it again: parameters, seeds (0, 1, 2, ...), versions, date.
The tests and the chapter run a prefix again and compare. The functions here stand in the chapter
word for word; a test compares them.
"""

from __future__ import annotations

import datetime
import json
import platform
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from dpteach.audit import audit_scores
from dpteach.run import NoisySGD
from dpteach.training import mnist, noisy_step
from dpteach.training.clipping import clipped_sum

FILE = Path(__file__).parents[1] / "dpteach" / "classroom" / "data" / "audits.json"
DIVISOR = {"audits": 40, "runs": 1000, "threshold": -2.0, "delta": 0.01}
IMAGE = {"runs": 500, "learning_rate": 4.0}


def linear_loss(output, sign):
    """A loss whose gradient is the input itself, whatever the parameters are."""
    return (sign * output[:, 0]).sum()


def drawn_size_divisor(model, loss, x, y, run, eta, noise):
    """Planted: divides by the drawn batch's size instead of the public m."""
    return noisy_step(model, loss, x, y, replace(run, batch_size=len(x)), eta, noise)


def small_run(step, run, present, seed):
    """One step on n - 1 records with gradient C and, if present, a canary with -C; the score, in
    units of C."""
    size = run.n if present else run.n - 1
    signs = torch.ones(size, dtype=torch.float64)
    signs[run.n - 1 :] = -1.0
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    noise = torch.Generator().manual_seed(seed)
    step(model, linear_loss, torch.ones(size, 1, dtype=torch.float64), signs, run, 1.0, noise)
    moved = -model.weight.item() * run.batch_size / run.clip_norm
    return run.n - 1 - moved


def small_scores(step, run, runs, first_seed):
    """Scores of `runs` runs without the canary and as many with it; each run has a seed of its
    own."""
    seeds = range(first_seed, first_seed + 2 * runs)
    absent = [small_run(step, run, False, seed) for seed in seeds[:runs]]
    present = [small_run(step, run, True, seed) for seed in seeds[runs:]]
    return np.array(absent), np.array(present)


def image_data():
    """50 MNIST images, and a canary: the next image with a wrong label."""
    data = mnist.load()
    x, y = data.x_train[:51].flatten(1), data.y_train[:51].clone()
    y[50] = (y[50] + 5) % 10
    return x, y


def image_model():
    """A network with 16 hidden units, the same initial weights each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))


def image_run(x, y, run, present, seed, learning_rate):
    """Full-batch noisy SGD; the canary's final loss (negative), and the white-box log likelihood
    ratio."""
    model, noise = image_model(), torch.Generator().manual_seed(seed)
    size = run.n if present else run.n - 1
    std, white = run.noise_multiplier * run.clip_norm, 0.0
    for _ in range(run.steps):
        others = clipped_sum(model, F.cross_entropy, x[: run.n - 1], y[: run.n - 1],
                             run.clip_norm).gradients
        canary = clipped_sum(model, F.cross_entropy, x[run.n - 1 :], y[run.n - 1 :],
                             run.clip_norm).gradients
        before = [p.detach().clone() for p in model.parameters()]
        noisy_step(model, F.cross_entropy, x[:size], y[:size], run, learning_rate, noise)
        for old, p, rest, v in zip(before, model.parameters(), others, canary, strict=True):
            seen = (old - p.detach()) * (run.batch_size / learning_rate) - rest
            white += float((seen * v).sum() - (v * v).sum() / 2) / std**2
    with torch.no_grad():
        black = -float(F.cross_entropy(model(x[run.n - 1 :]), y[run.n - 1 :]))
    return black, white


DIVISOR_RUN = NoisySGD(n=10, batch_size=10, steps=1, noise_multiplier=1.0)
IMAGE_RUN = NoisySGD(n=51, batch_size=51, steps=5, noise_multiplier=np.sqrt(5.0) / 2, clip_norm=1.0)


def divisor() -> dict:
    """False positives and false negatives of audits 0, 1, 2, ... of the wrong divisor."""
    counts = []
    for audit in range(DIVISOR["audits"]):
        absent, present = small_scores(drawn_size_divisor, DIVISOR_RUN, DIVISOR["runs"],
                                       2 * DIVISOR["runs"] * audit)
        result = audit_scores(absent, present, DIVISOR["threshold"])
        counts.append([result.false_positives, result.false_negatives])
        print(f"divisor {audit + 1}/{DIVISOR['audits']}", file=sys.stderr)
    return {**DIVISOR, "counts": counts}


def image() -> dict:
    """Black-box and white-box scores of trainings without the canary image (first half of the
    seeds) and with it."""
    x, y = image_data()
    scores = []
    for seed in range(2 * IMAGE["runs"]):
        pair = image_run(x, y, IMAGE_RUN, seed >= IMAGE["runs"], seed, IMAGE["learning_rate"])
        scores.append([round(value, 5) for value in pair])
        if seed % 100 == 99:
            print(f"image {seed + 1}/{2 * IMAGE['runs']}", file=sys.stderr)
    return {**IMAGE, "scores": scores}


RECORDS = {"divisor": (divisor, DIVISOR_RUN), "image": (image, IMAGE_RUN)}


def main(names: list[str]) -> None:
    unknown = set(names) - set(RECORDS)
    if unknown:
        sys.exit(f"unknown record {', '.join(sorted(unknown))}; there are: {', '.join(RECORDS)}")
    torch.set_num_threads(1)  # the trainings are tiny
    kept = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    for name in names or RECORDS:
        compute, run = RECORDS[name]
        facts = {"n": run.n, "batch_size": run.batch_size, "steps": run.steps,
                 "clip_norm": run.clip_norm}
        kept[name] = {
            "run": {**facts, "noise_multiplier": float(run.noise_multiplier),
                    "sampling": run.sampling},
            "versions": {"torch": torch.__version__, "numpy": np.__version__,
                         "python": platform.python_version()},
            "date": datetime.date.today().isoformat(),
            **compute(),
        }
        FILE.write_text(json.dumps(kept, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
