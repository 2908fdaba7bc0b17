"""Trainings on MNIST that the chapters read: kept on disk once they're made, or recorded in the package."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from dpteach import domain
from dpteach.classroom import kept
from dpteach.run import NoisySGD
from dpteach.training import (
    Evaluation,
    Training,
    accuracy,
    evaluation_steps,
    mnist,
    preparation,
    train,
)

__all__ = ["RECORDS", "recorded", "train_mnist"]

RECORDS = Path(__file__).parent / "data" / "mnist-runs.json"
# What a result depends on; the run is among the parameters.
_SOURCES = tuple(
    f"training/{name}"
    for name in (
        "mnist",
        "sampling",
        "records",
        "pieces",
        "formulas",
        "engines",
        "clipping",
        "preparation",
        "loop",
    )
)


def train_mnist(
    run: NoisySGD, *, learning_rate: float, seed: int, stop_after: int | None = None,
    evaluate_at: Iterable[int] | None = None, progress: bool = False,
) -> Training:  # fmt: skip
    """The tutorial network trained on all of MNIST, with its accuracy on the test images in
    percent.

    Trained once for each version of the code: the result is kept on disk (folder $DPTEACH_CACHE,
    else the user's cache folder), and later calls with the same arguments read it. Two processes
    that ask at once train once.

    Arguments as for `dpteach.training.train`; `run.n` must be 60,000. `recorded` has finished runs
    that need no training.

    >>> run = NoisySGD(n=60000, batch_size=256, steps=3516, noise_multiplier=1.3, clip_norm=1.5)
    >>> train_mnist(run, learning_rate=0.25, seed=1).steps  # doctest: +SKIP
    3516
    """
    whole = torch.empty(60000, 0)
    preparation.check_run(run, whole, whole)
    steps = preparation.steps_to_make(run, stop_after)
    learning_rate = domain.number("learning_rate", learning_rate)
    seed = domain.whole_number("seed", seed, "[0, 4.6e18]")
    at = evaluation_steps(run) if evaluate_at is None else sorted(evaluate_at)
    parameters = {"run": preparation.facts_of(run), "learning_rate": learning_rate, "seed": seed}
    parameters |= {"stop_after": steps, "evaluate_at": at}
    model = mnist.tutorial_cnn(torch.Generator().manual_seed(seed))

    def compute() -> dict[str, Any]:
        data = mnist.load()
        result = train(
            model, run, data.x_train, data.y_train, learning_rate=learning_rate, seed=seed, stop_after=steps,
            evaluate=lambda net: accuracy(net, data.x_test, data.y_test), evaluate_at=at, progress=progress,
        )  # fmt: skip
        assert result.model is not None  # as after every training; only a recorded one has none
        history = [tuple(asdict(e).values()) for e in result.history]
        facts = {"steps": result.steps, "skipped": result.skipped, "history": history}
        return facts | {"model": result.model.state_dict()}

    found = kept.cached("mnist", parameters, _SOURCES, compute)
    model.load_state_dict(found["model"])
    history = tuple(Evaluation(*e) for e in found["history"])
    return Training(run, seed, found["steps"], history, model, found["skipped"])


def recorded(name: str) -> Training:
    """A run of the tutorial network on MNIST that was trained before: its history, without a model.

    The records are in data/mnist-runs.json, with seeds, versions, dates and the first steps of
    each run, by which a test checks that the code still makes them.

    >>> result = recorded("a-algorithm-1")
    >>> result.steps, result.run.noise_multiplier, result.model is None
    (3516, 2.6, True)
    """
    records = json.loads(RECORDS.read_text())
    record = records[domain.one_of("name", name, tuple(records))]
    run = NoisySGD(**record["run"])
    history = tuple(Evaluation(s, s * run.sampling_rate, value) for s, value in record["history"])
    return Training(run, record["seed"], record["steps"], history, None, record["skipped"])
