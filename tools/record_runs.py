"""Train the MNIST runs that chapter 15 quotes; keep their results in
dpteach/classroom/data/mnist-runs.json.

    python tools/record_runs.py              # all, about two minutes each on two cores
    python tools/record_runs.py a-poisson    # one

Each record has everything needed to make it again: parameters, seed, versions, date; and a prefix,
the first steps of the same run with what they led to, which the tests run again and compare.
"""

from __future__ import annotations

import datetime
import json
import platform
import sys
from dataclasses import asdict

import torch

from dpteach.classroom.runs import RECORDS, train_mnist
from dpteach.run import NoisySGD
from dpteach.training import Training

FILE = RECORDS
LEARNING_RATE, SEED, PREFIX = 0.25, 1, 40
RUN_A = {"n": 60000, "batch_size": 256, "epochs": 15, "clip_norm": 1.5}
RUNS = {
    "a-fixed-size": NoisySGD(**RUN_A, noise_multiplier=1.3, sampling="fixed-size"),
    "a-poisson": NoisySGD(**RUN_A, noise_multiplier=1.3, sampling="poisson"),
    "a-algorithm-1": NoisySGD(**RUN_A, noise_multiplier=2.6, sampling="fixed-size"),
}


def prefix(run: NoisySGD, seed: int) -> dict:
    """Accuracy during the first steps, and the norm of each parameter after them."""
    result = train_mnist(
        run, learning_rate=LEARNING_RATE, seed=seed, stop_after=PREFIX, evaluate_at=[20, PREFIX]
    )
    return {
        "steps": result.steps,
        "accuracy": [e.value for e in result.history],
        "parameter_norms": [round(p.double().norm().item(), 6) for p in result.model.parameters()],
    }


def record(run: NoisySGD, seed: int) -> dict:
    """One run with its history, as plain values."""
    result: Training = train_mnist(run, learning_rate=LEARNING_RATE, seed=seed, progress=True)
    return {
        "run": {k: v for k, v in asdict(run).items() if k not in ("epochs", "sampling_rate")},
        "learning_rate": LEARNING_RATE,
        "seed": seed,
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "date": datetime.date.today().isoformat(),
        "steps": result.steps,
        "skipped": result.skipped,
        "history": [[e.step, round(e.value, 2)] for e in result.history],
        "prefix": prefix(run, seed),
    }


def main(names: list[str]) -> None:
    unknown = set(names) - set(RUNS)
    if unknown:
        sys.exit(f"unknown run {', '.join(sorted(unknown))}; there are: {', '.join(RUNS)}")
    records = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in names or RUNS:
        print(name, file=sys.stderr)
        records[name] = record(RUNS[name], SEED)
        FILE.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
