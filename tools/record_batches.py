"""Train MNIST with each of the five samplers at equal noise; keep the results for chapter 21.

    python tools/record_batches.py               # all that's missing, about two minutes each
    python tools/record_batches.py shuffled-2    # one again

They go to dpteach/classroom/data/mnist-batches.json. Each record has what's needed to make it
again, and a prefix: the first steps of the same run, which the tests run again and compare.
"""

from __future__ import annotations

import datetime
import json
import platform
import sys
from dataclasses import asdict

import torch

from dpteach.classroom.runs import RECORDS, train_mnist
from dpteach.run import SAMPLINGS, NoisySGD

FILE = RECORDS.with_name("mnist-batches.json")
LEARNING_RATE, SEEDS, EPOCHS, PREFIX = 0.25, (1, 2, 3), 5, 20
FACTS = {"n": 60000, "batch_size": 250, "noise_multiplier": 1.3, "clip_norm": 1.5}


def run_of(sampling: str) -> NoisySGD:
    """Five epochs at the noise of chapter 15's runs; 250 divides 60000, as shuffling wants."""
    largest = {"largest_batch": 300} if sampling == "truncated-poisson" else {}
    return NoisySGD.for_epochs(epochs=EPOCHS, sampling=sampling, **FACTS, **largest)


RUNS = {f"{sampling}-{seed}": (sampling, seed) for seed in SEEDS for sampling in SAMPLINGS}


def prefix(run: NoisySGD, seed: int) -> dict:
    """Accuracy after the first steps, and the norm of each parameter."""
    result = train_mnist(
        run, learning_rate=LEARNING_RATE, seed=seed, stop_after=PREFIX, evaluate_at=[PREFIX]
    )
    norms = [round(p.double().norm().item(), 6) for p in result.model.parameters()]
    return {"steps": PREFIX, "accuracy": result.history[-1].value, "parameter_norms": norms}


def record(sampling: str, seed: int) -> dict:
    """One run with its history, as plain values."""
    run = run_of(sampling)
    per_epoch = run.steps // EPOCHS
    result = train_mnist(
        run, learning_rate=LEARNING_RATE, seed=seed,
        evaluate_at=range(per_epoch, run.steps + 1, per_epoch),
    )  # fmt: skip
    return {
        "run": {key: value for key, value in asdict(run).items() if value is not None},
        "learning_rate": LEARNING_RATE,
        "seed": seed,
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "date": datetime.date.today().isoformat(),
        "skipped": result.skipped,
        "history": [[e.step, round(e.value, 2)] for e in result.history],
        "prefix": prefix(run, seed),
    }


def main(names: list[str]) -> None:
    unknown = set(names) - set(RUNS)
    if unknown:
        sys.exit(f"unknown run {', '.join(sorted(unknown))}; there are: {', '.join(RUNS)}")
    records = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in names or [name for name in RUNS if name not in records]:
        print(name, file=sys.stderr)
        records[name] = record(*RUNS[name])
        FILE.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
