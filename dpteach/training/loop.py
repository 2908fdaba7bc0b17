"""Algorithm 1, noisy SGD, for any `torch.nn` model and loss.

`noisy_step` is one line of the algorithm after another; `train` repeats it `run.steps` times. All
that privacy depends on comes from one `NoisySGD` object, the same that the accountants take, so
what is trained and what is accounted for can't differ. Steps accounted are noisy updates made: an
empty Poisson batch still steps, and a resumed training counts the steps it made before.

What is public: n, m, T, C, the noise multiplier, the learning rate. What is secret: the batches
and their sizes, the gradients' norms, and the seed, which here is an argument so that results can
be reproduced. Whoever knows the seed can subtract the noise: for real data draw it from
`secrets.randbits(64)` and forget it.

Not for: protecting real data against an attacker who sees the model's lowest bits. The noise is
floating-point and its generator isn't cryptographic.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpteach import domain
from dpteach.classroom import kept
from dpteach.run import RUN_EXAMPLE, NoisySGD
from dpteach.training import mnist, sampling
from dpteach.training.clipping import (
    ClippedSum,
    Loss,
    check_model,
    check_records,
    clipped_sum,
    keep_freed_memory,
    trainable,
)
from dpteach.training.clipping import _output as output_of

__all__ = [
    "Evaluation", "Training", "accuracy", "evaluation_steps", "noisy_step", "recorded", "train", "train_mnist",
    "update",
]  # fmt: skip

_RATES = "[0, 1e30]"  # beyond, θ overflows at once


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` said after `step` noisy updates, `epoch` = step · m/n passes.

    >>> recorded("a-poisson").history[-1].step
    3516
    """

    step: int
    epoch: float
    value: float


@dataclass(frozen=True)
class Training:
    """A finished (or stopped) training.

    `run` and `seed` say what was run; `steps` counts the noisy updates made, which is what must be
    accounted for; `history` holds the evaluations in order, `model` the trained copy. `skipped`
    counts records left out of a batch because their gradient wasn't finite, over all steps: it's
    secret, and 0 for healthy data.

    >>> kept = recorded("a-poisson")
    >>> kept.run.sampling, kept.seed, kept.skipped
    ('poisson', 1, 0)
    """

    run: NoisySGD
    seed: int
    steps: int
    history: tuple[Evaluation, ...]
    model: nn.Module | None
    skipped: int

    def last_epoch(self) -> np.ndarray:
        """Values of the evaluations in the last epoch: steps after ⌈T - n/m⌉.

        >>> len(recorded("a-poisson").last_epoch())
        4
        """
        start = math.ceil(self.steps - 1 / self.run.sampling_rate)
        return np.array([e.value for e in self.history if e.step > start])


def noisy_step(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, run: NoisySGD, learning_rate: float,
    noise: torch.Generator, *, engine: str = "fast", microbatch: int | None = None,
) -> ClippedSum:  # fmt: skip
    """One update θ ← θ - η · (Σ clipped gradients + noise)/m on a drawn batch, which may be empty.

    m is `run.batch_size`, the public expected size, never the drawn batch's: dividing by a size
    that depends on who is in the batch isn't covered by the analysis. The noise's standard
    deviation is `run.noise_multiplier * run.clip_norm` on the sum, drawn once.

    >>> run = NoisySGD(n=4, batch_size=2, steps=1, noise_multiplier=1.0)
    >>> model = nn.Linear(3, 1)
    >>> x, y, noise = torch.rand(0, 3), torch.rand(0, 1), torch.Generator().manual_seed(0)
    >>> noisy_step(model, F.mse_loss, x, y, run, 0.1, noise).skipped
    0
    """
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    clipped = clipped_sum(model, loss, inputs, targets, run.clip_norm, engine=engine, microbatch=microbatch)
    update(model, clipped.gradients, run, learning_rate, noise)
    return clipped


def update(
    model: nn.Module, totals: Iterable[Tensor], run: NoisySGD, learning_rate: float, noise: torch.Generator
) -> None:
    """θ ← θ - η · (total + noise)/m in place, for a whole clipped sum: the last two lines of Algorithm 1.

    >>> run = NoisySGD(n=4, batch_size=2, steps=1, noise_multiplier=1.0, clip_norm=1e-6)
    >>> model, noise = nn.Linear(1, 1, bias=False), torch.Generator().manual_seed(0)
    >>> before = model.weight.item()
    >>> update(model, [torch.ones(1, 1)], run, 0.5, noise)
    >>> round(before - model.weight.item(), 4)
    0.25
    """
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    rate = domain.number("learning_rate", learning_rate, _RATES, "it's η in Algorithm 1")
    domain.instance("noise", noise, torch.Generator, "torch.Generator().manual_seed(0)")
    m = domain.whole_number("run.batch_size", run.batch_size, "[1, inf)", "give n and batch_size, not the rate alone")
    std = run.noise_multiplier * run.clip_norm
    parameters = trainable(model).values()
    held = min(torch.finfo(theta.dtype).max for theta in parameters)
    domain.number("noise_multiplier · clip_norm", std, f"(0, {held / 1e6:.3g}]", "the parameters' type must hold it")
    totals = domain.instances("totals", totals, Tensor, "clipped_sum(...).gradients")
    fit = [t.shape for t in totals] == [p.shape for p in parameters] and all(t.isfinite().all() for t in totals)
    domain.require("totals", totals, fit, "a finite tensor of each parameter's shape")
    with torch.no_grad():
        for theta, total in zip(parameters, totals, strict=True):
            z = torch.normal(0.0, std, theta.shape, generator=noise, dtype=theta.dtype)
            theta.sub_(z.add_(total), alpha=rate / m)


def train(
    model: nn.Module, run: NoisySGD, inputs: Tensor, targets: Tensor,
    *, learning_rate: float | Callable[[int], float], seed: int, loss: Loss = F.cross_entropy,
    evaluate: Callable[[nn.Module], float] | None = None, evaluate_at: Iterable[int] | None = None,
    engine: str = "fast", microbatch: int | None = None, stop_after: int | None = None, progress: bool = False,
    checkpoint: str | Path | None = None, checkpoint_every: int = 200,
) -> Training:  # fmt: skip
    """Algorithm 1: `run.steps` noisy updates of a copy of `model`.

    Raises `ValueError` for a model that mixes records in train mode, for data that aren't n records,
    for a checkpoint of another run, seed, model, data, loss (told by its name) or learning rates, or
    with more steps than `stop_after`.

    Parameters
    ----------
    inputs, targets : all n = `run.n` records, in memory.
    learning_rate : η, or a function of the step t = 0, 1, … that returns η_t.
    seed : decides the batches, the noise and dropout, by separate streams; nothing global is read
        or changed.
    loss, engine, microbatch : see `dpteach.training.clipping.clipped_sum`.
    evaluate, evaluate_at : a function of the model, and the steps after which it's called;
        `evaluation_steps(run)` by default: each epoch's end, and four times in the last epoch.
    stop_after : make only the first so many steps of the run.
    progress : show a line on stderr that says how far it is.
    checkpoint : a file to continue from, if it's there, and to write every `checkpoint_every`
        steps. After a stop at any moment, the same call ends with the same parameters to the bit.
        The file holds the seed, the generators and parameters before the end: it's as secret as the
        data.

    >>> run = NoisySGD(n=8, batch_size=2, steps=4, noise_multiplier=1.0)
    >>> x, y = torch.ones(8, 3), torch.zeros(8, 1)
    >>> train(nn.Linear(3, 1), run, x, y, learning_rate=0.1, seed=0, loss=F.mse_loss).steps
    4
    """
    check_records(inputs, targets)
    eta, run_to = _checked(run, inputs, targets, learning_rate, stop_after)
    seed = domain.whole_number("seed", seed, "[0, inf)")
    model = _prepared(model, inputs)
    when = _evaluated_steps(run, evaluate, evaluate_at)
    batches, noise, layers = _streams(seed)
    state = _State(model, batches, noise)
    identity = {"run": _facts(run), "seed": seed, "eta": [eta(t) for t in (0, run.steps - 1)]}
    if checkpoint is not None:
        checkpoint_every = domain.whole_number("checkpoint_every", checkpoint_every, "[1, inf)")
        checkpoint = Path(domain.instance("checkpoint", checkpoint, str | Path, "'run-a.pt'"))
        identity["content"] = _content(model, inputs, targets, loss, [eta(t) for t in range(run.steps)])
        state.resume(checkpoint, identity, run_to)
    bar = _Progress(run_to, run.sampling_rate, progress)
    with torch.random.fork_rng(devices=[]):  # dropout reads the global generator: lend it a seeded one
        for t in range(state.step, run_to):
            torch.manual_seed((layers + t) % 2**63)
            drawn = sampling.draw(run, batches, t)
            batch = inputs[drawn], targets[drawn]
            clipped = noisy_step(model, loss, *batch, run, eta(t), noise, engine=engine, microbatch=microbatch)
            state.step, state.skipped = t + 1, state.skipped + clipped.skipped
            if evaluate is not None and state.step in when:
                value = domain.number("evaluate(model)", evaluate(model), advice=f"it was called after step {state.step}")
                state.history.append(Evaluation(state.step, state.step * run.sampling_rate, value))
            if checkpoint is not None and state.step % checkpoint_every == 0:
                state.keep(checkpoint, identity)
            bar.show(state)
    state.check_finite()
    if checkpoint is not None:
        state.keep(checkpoint, identity)
    return Training(run, seed, state.step, tuple(state.history), model, state.skipped)


def _prepared(model: nn.Module, inputs: Tensor) -> nn.Module:
    """A copy in train mode, checked as it will be trained. The check runs another copy, whose buffers may move."""
    model = copy.deepcopy(domain.instance("model", model, nn.Module, "torch.nn.Linear(4, 3)")).train()
    check_model(copy.deepcopy(model), inputs[:2])
    keep_freed_memory()
    return model


def _content(model: nn.Module, inputs: Tensor, targets: Tensor, loss: Loss, rates: list[float]) -> str:
    """A digest of what a run is given besides its facts: data, initial model, the loss's name, learning rates."""
    name = getattr(loss, "__qualname__", None) or (repr(loss) if isinstance(loss, nn.Module) else repr(type(loss)))
    digest = hashlib.sha256(repr((name, rates)).encode())
    for key, value in {"inputs": inputs, "targets": targets, **model.state_dict()}.items():
        held = isinstance(value, Tensor)
        digest.update(repr((key, value.shape, value.dtype) if held else (key, value)).encode())
        digest.update(value.detach().reshape(-1).contiguous().view(torch.uint8).numpy() if held else b"")
    return digest.hexdigest()


def _checked(
    run: NoisySGD, inputs: Any, targets: Any, learning_rate: Any, stop_after: int | None
) -> tuple[Callable[[int], float], int]:
    """η as a function of the step, and the number of steps to make."""
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    if len(inputs) != run.n or len(targets) != run.n:
        raise ValueError(
            f"run.n = {run.n}, but inputs has {len(inputs)} records and targets {len(targets)}:"
            " n, which privacy depends on, must be the number of records"
        )
    steps = run.steps
    if stop_after is not None:
        steps = domain.whole_number("stop_after", stop_after, f"[0, {steps}]", "the run has no more steps")
    if callable(learning_rate):
        return (lambda t: domain.number(f"learning_rate({t})", learning_rate(t), _RATES)), steps
    rate = domain.number("learning_rate", learning_rate, _RATES.replace("[", "("), "it's η in Algorithm 1")
    return (lambda t: rate), steps


def _evaluated_steps(run: NoisySGD, evaluate: Any, evaluate_at: Any) -> set[int]:
    if evaluate is None:
        return set()
    domain.instance("evaluate", evaluate, Callable, "lambda model: accuracy(model, inputs, targets)")
    if evaluate_at is None:
        return set(evaluation_steps(run))
    several = isinstance(evaluate_at, Iterable) and getattr(evaluate_at, "ndim", 1) > 0
    domain.require("evaluate_at", evaluate_at, several, "a list of steps")
    return {domain.whole_number("a step of evaluate_at", step, f"[1, {run.steps}]") for step in evaluate_at}


def _facts(run: NoisySGD) -> dict[str, Any]:
    """The run's facts, as they stand in a checkpoint."""
    return {k: v for k, v in asdict(run).items() if k != "rate"}


def _streams(seed: int) -> tuple[torch.Generator, torch.Generator, int]:
    """Independent generators for batches and noise, and a seed for dropout, all from one seed."""
    a, b, c = (int(s) for s in np.random.SeedSequence(seed).generate_state(3, np.uint64) >> 1)
    return torch.Generator().manual_seed(a), torch.Generator().manual_seed(b), c


@dataclass
class _State:
    """All that a training needs to go on: parameters, both generators, the steps made."""

    model: nn.Module
    batches: torch.Generator
    noise: torch.Generator
    step: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        self.history: list[Evaluation] = []

    def check_finite(self) -> None:
        """Parameters that have overflowed aren't a result: neither returned nor kept."""
        if not all(theta.isfinite().all() for theta in self.model.parameters()):
            raise ValueError(
                f"parameters are infinite or NaN after step {self.step}: choose a smaller learning_rate, or less noise"
            )

    def keep(self, path: Path, identity: dict[str, Any]) -> None:
        self.check_finite()
        saved = {"identity": identity, "model": self.model.state_dict(), "step": self.step, "skipped": self.skipped}
        saved |= {"batches": self.batches.get_state(), "noise": self.noise.get_state()}
        kept.save(path, saved | {"history": [tuple(asdict(e).values()) for e in self.history]})

    def resume(self, path: Path, identity: dict[str, Any], stop_after: int) -> None:
        """Go on from a checkpoint, if it's there. A file that isn't one is left as it is."""
        saved = kept.load(path) or {}
        if not saved and not path.exists():
            return
        name = f"checkpoint = {str(path)!r}"
        try:
            if saved["identity"] == identity and saved["step"] <= stop_after:
                self.model.load_state_dict(saved["model"])
                self.batches.set_state(saved["batches"])
                self.noise.set_state(saved["noise"])
                self.step, self.skipped = saved["step"], saved["skipped"]
                self.history = [Evaluation(*e) for e in saved["history"]]
                return
            ours, made = saved["identity"] == identity, saved["step"]
        except (LookupError, TypeError, RuntimeError, AttributeError) as error:
            raise ValueError(
                f"{name} isn't a whole checkpoint of this model: give another file, or remove it to start again"
            ) from error
        if ours:
            raise ValueError(f"stop_after = {stop_after}, but {name} holds {made} steps: give at least as many")
        raise ValueError(f"{name} belongs to another run, seed, model, data, loss or learning rate: give another file")


class _Progress:
    """One line on stderr, rewritten at most five times a second."""

    def __init__(self, steps: int, rate: float, on: bool) -> None:
        self.steps, self.rate, self.on, self.last = steps, rate, on, 0.0

    def show(self, state: _State) -> None:
        done = state.step == self.steps
        if not self.on or (time.monotonic() - self.last < 0.2 and not done):
            return
        self.last = time.monotonic()
        bar = "#" * (30 * state.step // self.steps)
        value = f"  last evaluation {state.history[-1].value:.4g}" if state.history else ""
        epoch = state.step * self.rate
        text = f"\r[{bar:30}] step {state.step}/{self.steps}  epoch {epoch:.2f}{value}"
        print(text, end="\n" if done else "", file=sys.stderr, flush=True)


def evaluation_steps(run: NoisySGD, in_last_epoch: int = 4) -> list[int]:
    """Steps that end an epoch, and `in_last_epoch` equally spaced ones in the last epoch.

    >>> evaluation_steps(NoisySGD(n=60000, batch_size=256, steps=704, noise_multiplier=1.0))
    [235, 469, 529, 587, 646, 704]
    """
    per_epoch = 1 / domain.instance("run", run, NoisySGD, RUN_EXAMPLE).sampling_rate
    in_last_epoch = domain.whole_number("in_last_epoch", in_last_epoch, "[1, 1e6]")
    epochs = int(run.steps / per_epoch + 1e-9)
    ends = {math.ceil(epoch * per_epoch - 1e-9) for epoch in range(1, epochs + 1)}
    last = {math.ceil(run.steps - per_epoch * k / in_last_epoch) for k in range(in_last_epoch)}
    return sorted(step for step in ends | last if 1 <= step <= run.steps)


def accuracy(model: nn.Module, inputs: Tensor, targets: Tensor, batch: int = 1000) -> float:
    """Percentage of records whose largest output is the target's, in evaluation mode.

    >>> accuracy(nn.Identity(), torch.eye(4), torch.tensor([0, 1, 2, 0]))
    75.0
    """
    domain.instance("model", model, nn.Module, "torch.nn.Linear(4, 3)")
    check_records(inputs, targets)
    if targets.ndim != 1 or not len(targets):
        raise ValueError(f"targets has shape {tuple(targets.shape)}: give one class number for each of some records")
    batch = min(domain.whole_number("batch", batch, "[1, inf)"), len(inputs))
    was_training = model.training
    model.eval()
    with torch.no_grad():
        pairs = zip(torch.split(inputs, batch), torch.split(targets, batch), strict=True)
        right = sum(int((output_of(model, x).argmax(1) == y).sum()) for x, y in pairs)
    model.train(was_training)
    return 100 * right / len(inputs)


RECORDS = Path(__file__).parents[1] / "classroom" / "data" / "mnist-runs.json"
_SOURCES = tuple(f"training/{name}" for name in ("mnist", "sampling", "clipping", "loop"))  # the run is among the parameters


def train_mnist(
    run: NoisySGD, *, learning_rate: float, seed: int, stop_after: int | None = None,
    evaluate_at: Iterable[int] | None = None, progress: bool = False,
) -> Training:  # fmt: skip
    """The tutorial network trained on all of MNIST, with its accuracy on the test images in
    percent.

    Trained once for each version of the code: the result is kept on disk (folder $DPTEACH_CACHE,
    else the user's cache folder), and later calls with the same arguments read it. Two processes
    that ask at once train once.

    Arguments as for `train`; `run.n` must be 60,000. `recorded` has finished runs that need no training.

    >>> run = NoisySGD(n=60000, batch_size=256, steps=3516, noise_multiplier=1.3, clip_norm=1.5)
    >>> train_mnist(run, learning_rate=0.25, seed=1).steps  # doctest: +SKIP
    3516
    """
    steps = _checked(run, range(60000), range(60000), learning_rate, stop_after)[1]
    stop_after = None if stop_after is None else steps
    learning_rate = domain.number("learning_rate", learning_rate)
    evaluate_at = sorted(_evaluated_steps(run, accuracy, evaluate_at))
    seed = domain.whole_number("seed", seed, "[0, 4.6e18]")
    parameters = {"run": _facts(run), "learning_rate": learning_rate, "seed": seed}
    parameters |= {"stop_after": stop_after, "evaluate_at": evaluate_at}
    model = mnist.tutorial_cnn(torch.Generator().manual_seed(seed))

    def compute() -> dict[str, Any]:
        data = mnist.load()
        result = train(
            model, run, data.x_train, data.y_train, learning_rate=learning_rate, seed=seed, stop_after=stop_after,
            evaluate=lambda net: accuracy(net, data.x_test, data.y_test), evaluate_at=evaluate_at, progress=progress,
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
    kept = records[domain.one_of("name", name, tuple(records))]
    run = NoisySGD(**kept["run"])
    history = tuple(Evaluation(s, s * run.sampling_rate, value) for s, value in kept["history"])
    return Training(run, kept["seed"], kept["steps"], history, None, kept["skipped"])
