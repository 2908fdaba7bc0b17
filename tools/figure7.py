"""Train Figure 7 of Dong, Roth and Su: runs A, B and C; keep the results in
dpteach/classroom/data/figure7.json.

    make figure7                                      # all that isn't recorded yet
    python tools/figure7.py --only A                  # one configuration
    python tools/figure7.py --only C --noise 2        # ... with Algorithm 1's own noise, 2σC
    python tools/figure7.py --seeds 4 5               # more seeds
    python tools/figure7.py --sampling shuffled       # TF-Privacy's sampler: accuracies only

Each run is trained on all 60,000 images with fixed-size batches and with noise σC on the sum of
clipped gradients, then with noise 2σC. A record holds what is needed to make it again: parameters,
seed, versions, threads, date; and a prefix, the first steps with what they led to, which the tests
run again and compare.

What is recorded is skipped, so the command can be stopped at any moment and called again: the file
is written aside and then renamed, and a training goes on from its last checkpoint (in
.cache/figure7). Two calls at once share the work.

Chapters 16 and 17 quote whatever is recorded. After adding records renew what they print:
make outputs ONLY=book/16-figure-7.md, and the same for book/17-which-noise.md.

Shuffled batches live in this file and not in `dpteach`: no analysis in the package applies to them,
so `NoisySGD` can't name them. There's no ε in such a record.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import json
import os
import platform
import sys
from pathlib import Path
from unittest import mock

import torch
from filelock import FileLock, Timeout

from dpteach.run import NoisySGD
from dpteach.training import Training, accuracy, mnist, sampling, train

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "dpteach" / "classroom" / "data" / "figure7.json"
CHECKPOINTS = ROOT / ".cache" / "figure7"
N, BATCH, SEEDS, PREFIX = 60000, 256, (1, 2, 3), 40
#: name: (σ as printed, epochs, learning rate, clipping norm C)
FIGURE_7 = {"A": (1.3, 15, 0.25, 1.5), "B": (1.1, 60, 0.15, 1.0), "C": (0.7, 45, 0.25, 1.5)}


def key(name: str, factor: int, seed: int, batches: str = "fixed-size") -> str:
    """A record's name, such as `A-1-seed1`, or `A-1-shuffled-seed1`; factor 2 means noise 2σC."""
    middle = "" if batches == "fixed-size" else f"-{batches}"
    return f"{name}-{factor}{middle}-seed{seed}"


def the_run(name: str, factor: int) -> NoisySGD:
    """The configuration with noise factor·σC on the sum, fixed-size batches."""
    sigma, epochs, _, clip_norm = FIGURE_7[name]
    return NoisySGD.for_epochs(
        n=N,
        batch_size=BATCH,
        epochs=epochs,
        noise_multiplier=factor * sigma,
        clip_norm=clip_norm,
        sampling="fixed-size",
    )


class Shuffled:
    """Consecutive batches of m from fresh permutations, one after the other, without end.

    It stands in for `sampling.draw`; steps are taken in order, so a generator's state and a
    position are enough, and both are rebuilt from the seed when a training is resumed.
    """

    def __init__(self) -> None:
        self.left = torch.empty(0, dtype=torch.int64)

    def __call__(self, run: NoisySGD, generator: torch.Generator, step: int = 0) -> torch.Tensor:
        if len(self.left) < run.batch_size:
            self.left = torch.cat([self.left, torch.randperm(run.n, generator=generator)])
        drawn, self.left = self.left[: run.batch_size], self.left[run.batch_size :]
        return drawn


@functools.cache
def images() -> mnist.Mnist:
    """MNIST, read and checked once."""
    return mnist.load()


def trained(
    name: str, factor: int, seed: int, batches: str, *, prefix: bool = False, progress: bool = False
) -> Training:
    """One training, or its first PREFIX steps with two evaluations."""
    data = images()
    run, rate = the_run(name, factor), FIGURE_7[name][2]
    shuffled = batches == "shuffled"
    checkpoint = CHECKPOINTS / f"{key(name, factor, seed, batches)}.pt"
    with mock.patch.object(sampling, "draw", Shuffled()) if shuffled else contextlib.nullcontext():
        return train(
            mnist.tutorial_cnn(torch.Generator().manual_seed(seed)),
            run,
            data.x_train,
            data.y_train,
            learning_rate=rate,
            seed=seed,
            evaluate=lambda net: accuracy(net, data.x_test, data.y_test),
            evaluate_at=[PREFIX // 2, PREFIX] if prefix else None,
            stop_after=PREFIX if prefix else None,
            progress=progress,
            # a permutation isn't in a checkpoint
            checkpoint=None if prefix or shuffled else checkpoint,
        )


def first_steps(name: str, factor: int, seed: int, batches: str = "fixed-size") -> dict:
    """Accuracy during the first PREFIX steps, and the norm of each parameter after them."""
    result = trained(name, factor, seed, batches, prefix=True)
    return {
        "steps": result.steps,
        "accuracy": [e.value for e in result.history],
        "parameter_norms": [round(p.double().norm().item(), 6) for p in result.model.parameters()],
    }


def record(name: str, factor: int, seed: int, batches: str) -> dict:
    """One training as plain values: what was run, and what came out."""
    run = the_run(name, factor)
    start = first_steps(name, factor, seed, batches)
    result = trained(name, factor, seed, batches, progress=sys.stderr.isatty())
    return {
        "run": {
            "n": run.n,
            "batch_size": run.batch_size,
            "steps": run.steps,
            "noise_multiplier": run.noise_multiplier,
            "clip_norm": run.clip_norm,
            "sampling": batches,
        },
        "learning_rate": FIGURE_7[name][2],
        "seed": seed,
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "threads": torch.get_num_threads(),
        "date": datetime.date.today().isoformat(),
        "steps": result.steps,
        "skipped": result.skipped,
        "history": [[e.step, round(e.value, 2)] for e in result.history],
        "prefix": start,
    }


def kept() -> dict[str, dict]:
    """All records by name."""
    return json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}


def lock(name: str, timeout: float = -1) -> FileLock:
    """A lock that the operating system lets go of when its holder dies."""
    CHECKPOINTS.mkdir(parents=True, exist_ok=True)
    return FileLock(CHECKPOINTS / f"{name}.lock", timeout=timeout)


def keep(name: str, value: dict) -> None:
    """Add one record: the file is whole at any moment, one record to a line."""
    with lock("file"):
        records = kept() | {name: value}
        lines = (f'"{k}": {json.dumps(records[k], separators=(",", ":"))}' for k in sorted(records))
        aside = FILE.with_name(f"figure7.json.{os.getpid()}")
        try:
            aside.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
            aside.replace(FILE)
        finally:
            aside.unlink(missing_ok=True)  # the disk was full


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=sorted(FIGURE_7), default=sorted(FIGURE_7))
    parser.add_argument(
        "--noise", nargs="+", type=int, choices=(1, 2), default=(1, 2), help="times σC"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--sampling", choices=("fixed-size", "shuffled"), default="fixed-size")
    asked = parser.parse_args(arguments)
    for factor in asked.noise:
        for seed in asked.seeds:
            for name in asked.only:
                what = key(name, factor, seed, asked.sampling)
                with contextlib.suppress(Timeout), lock(what, timeout=0):
                    if what not in kept():
                        print(what, file=sys.stderr, flush=True)
                        keep(what, record(name, factor, seed, asked.sampling))
                        (CHECKPOINTS / f"{what}.pt").unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1:])
