"""Algorithm 1, noisy SGD, for any `torch.nn` model and loss (chapter 15).

`noisy_step` is one line of the algorithm after another; `train` repeats it `run.steps` times. All
that privacy depends on comes from one `NoisySGD` object, the same that the accountants take, so
what is trained and what is accounted for can't differ. Steps accounted are noisy updates made: an
empty Poisson batch still steps, and a resumed training counts the steps it made before.

What is public: n, m, T, C, the noise multiplier, the learning rate. What is secret: the batches
and their sizes, the gradients' norms, and the seed, which here is an argument so that results can
be reproduced. Whoever knows the seed can subtract the noise: for real data draw it from
`secrets.randbits(64)` and forget it.

Models may be on any one device. Batches and noise are drawn on the CPU, so they're the same there.
Only the CPU is tested.

Not for: protecting real data against an attacker who sees the model's lowest bits. The noise is
floating-point and its generator isn't cryptographic.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset

from dpteach import domain
from dpteach.run import RUN_EXAMPLE, NoisySGD, Phases
from dpteach.training import checkpoint, preparation, sampling
from dpteach.training.clipping import ClippedSum, Loss, added, clipped_sum, nothing
from dpteach.training.hypotheses import trainable
from dpteach.training.options import LEARNING_RATES, Options
from dpteach.training.records import called, channels_last, check_records, loaded, moved, take

__all__ = [
    "Evaluation", "Training", "accuracy", "evaluation_steps", "facts_of_step", "noisy_gradients", "noisy_step", "train",
    "update",
]  # fmt: skip


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` said after `step` noisy updates, `epoch` = step · m/n passes.

    >>> Evaluation(235, 1.0, 93.2).step
    235
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

    >>> run = NoisySGD(n=4, batch_size=2, steps=2, noise_multiplier=1.0)
    >>> Training(run, seed=1, steps=2, history=(), model=None, skipped=0).steps
    2
    """

    run: NoisySGD | Phases
    seed: int
    steps: int
    history: tuple[Evaluation, ...]
    model: nn.Module | None
    skipped: int

    def last_epoch(self) -> np.ndarray:
        """Values of the evaluations in the last epoch: steps after ⌈T - n/m⌉.

        >>> run = NoisySGD(n=4, batch_size=2, steps=4, noise_multiplier=1.0)
        >>> history = tuple(Evaluation(t, t / 2, 90.0 + t) for t in (1, 2, 3, 4))
        >>> Training(run, 1, 4, history, None, 0).last_epoch().tolist()
        [93.0, 94.0]
        """
        start = math.ceil(self.steps - 1 / self.run.sampling_rate)
        return np.array([e.value for e in self.history if e.step > start])


def noisy_step(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, run: NoisySGD, learning_rate: float,
    noise: torch.Generator, **options: Any,
) -> ClippedSum:  # fmt: skip
    """One update θ ← θ - η · (Σ clipped gradients + noise)/m on a drawn batch, which may be empty.

    m is `run.batch_size`, the public expected size, never the drawn batch's: dividing by a size
    that depends on who is in the batch isn't covered by the analysis. The noise's standard
    deviation is `run.noise_multiplier * run.clip_norm` on the sum, drawn once. `options` are engine
    and microbatch, see `dpteach.training.clipping.clipped_sum`.

    >>> run = NoisySGD(n=4, batch_size=2, steps=1, noise_multiplier=1.0)
    >>> model = nn.Linear(3, 1)
    >>> x, y, noise = torch.rand(0, 3), torch.rand(0, 1), torch.Generator().manual_seed(0)
    >>> noisy_step(model, F.mse_loss, x, y, run, 0.1, noise).skipped
    0
    """
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    clipped = clipped_sum(model, loss, inputs, targets, run.clip_norm, **options)
    update(model, clipped.gradients, run, learning_rate, noise)
    return clipped


def _checked_totals(
    model: nn.Module, totals: Iterable[Tensor], run: NoisySGD, noise: torch.Generator
) -> list[tuple[nn.Parameter, Tensor]]:
    """Each trained parameter with its total; nothing is changed before all is checked."""
    domain.instance("noise", noise, torch.Generator, "torch.Generator().manual_seed(0)")
    parameters = trainable(model).values()
    held = min(torch.finfo(theta.dtype).max for theta in parameters)
    std = run.noise_multiplier * run.clip_norm
    fits = f"(0, {held / 1e6:.3g}]"
    domain.number("noise_multiplier · clip_norm", std, fits, "the parameters' type must hold it")
    totals = domain.instances("totals", totals, Tensor, "clipped_sum(...).gradients")
    fit = [t.shape for t in totals] == [p.shape for p in parameters]
    fit = fit and all(torch.linalg.vector_norm(t, torch.inf).isfinite() for t in totals)
    domain.require("totals", totals, fit, "a finite tensor of each parameter's shape")
    return list(zip(parameters, totals, strict=True))


def _with_noise(total: Tensor, run: NoisySGD, noise: torch.Generator) -> Tensor:
    """total + sC · N(0, I), drawn on the CPU, so that every device gets the same."""
    std = run.noise_multiplier * run.clip_norm
    z = torch.normal(0.0, std, total.shape, generator=noise, dtype=total.dtype)
    return z.to(total.device).add_(total)


def _parts(theta: Tensor, total: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """A large parameter in parts, so that its noise needn't be in memory all at once."""
    if theta.numel() <= _LARGE or not (theta.is_contiguous() and total.is_contiguous()):
        return iter([(theta, total)])
    return zip(theta.view(-1).split(_LARGE), total.view(-1).split(_LARGE), strict=True)


_LARGE = 2**20


def _public_size(run: NoisySGD) -> int:
    """m, which divides the sum whatever was drawn."""
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    advice = "give n and batch_size, not the rate alone"
    return domain.whole_number("run.batch_size", run.batch_size, "[1, inf)", advice)


def update(
    model: nn.Module, totals: Iterable[Tensor], run: NoisySGD, learning_rate: float, noise: torch.Generator
) -> None:  # fmt: skip
    """θ ← θ - η · (total + noise)/m in place, for a whole clipped sum: the last two lines of Algorithm 1.

    >>> run = NoisySGD(n=4, batch_size=2, steps=1, noise_multiplier=1.0, clip_norm=1e-6)
    >>> model, noise = nn.Linear(1, 1, bias=False), torch.Generator().manual_seed(0)
    >>> before = model.weight.item()
    >>> update(model, [torch.ones(1, 1)], run, 0.5, noise)
    >>> round(before - model.weight.item(), 4)
    0.25
    """
    m = _public_size(run)
    rate = domain.number("learning_rate", learning_rate, LEARNING_RATES, "it's η in Algorithm 1")
    with torch.no_grad():
        for theta, total in _checked_totals(model, totals, run, noise):
            for part, sum_of_part in _parts(theta, total):
                part.sub_(_with_noise(sum_of_part, run, noise), alpha=rate / m)


def noisy_gradients(
    model: nn.Module, totals: Iterable[Tensor], run: NoisySGD, noise: torch.Generator
) -> None:
    """(total + noise)/m into `.grad`, for an optimiser of `torch.optim` to make its step with.

    What the optimiser makes of it is post-processing, as long as it looks at nothing else that
    depends on the records.

    >>> run = NoisySGD(n=4, batch_size=2, steps=1, noise_multiplier=1.0, clip_norm=1e-6)
    >>> model, noise = nn.Linear(1, 1, bias=False), torch.Generator().manual_seed(0)
    >>> noisy_gradients(model, [torch.ones(1, 1)], run, noise)
    >>> round(model.weight.grad.item(), 4)
    0.5
    """
    m = _public_size(run)
    for theta, total in _checked_totals(model, totals, run, noise):
        theta.grad = _with_noise(total, run, noise).div_(m)


def train(
    model: nn.Module, run: NoisySGD | Phases, inputs: Any, targets: Any = None, *, seed: int,
    learning_rate: float | Callable[[int], float] | None = None, loss: Loss = F.cross_entropy,
    **options: Any,
) -> Training:  # fmt: skip
    """Algorithm 1: `run.steps` noisy updates of a copy of `model`.

    Raises `ValueError` for a model that `dpteach.training.clipping.clipped_sum` refuses, for data
    that aren't n records, and for a checkpoint that can't be written, or is of another run, seed,
    model, data, loss, optimiser (told by their names) or learning rates, or has more steps than
    `stop_after`: all of it before the first step.

    Parameters
    ----------
    run : one run, or `dpteach.run.Phases`: then each step has the noise, clipping norm, batch size
        and sampling of its phase.
    inputs, targets : all n = `run.n` records: tensors, numpy arrays (which may be mapped from disk),
        or tuples, lists, dicts or dataclasses of these. Or one `torch.utils.data.Dataset` of pairs,
        read by index.
    learning_rate : η, or a function of the step t = 0, 1, … that returns η_t; or none, with an
        `optimiser`.
    seed : decides the batches, the noise and dropout, by separate streams; nothing global is read
        or changed.
    loss : see `dpteach.training.clipping.clipped_sum`.
    options : the fields of `dpteach.training.options.Options`: engine, microbatch, optimiser, scheduler,
        evaluate, evaluate_at, stop_after, progress, checkpoint, checkpoint_every, workers.

    A mean over class weights is refused, since for one record they cancel.

    >>> run = NoisySGD(n=8, batch_size=2, steps=4, noise_multiplier=1.0)
    >>> x, y = torch.ones(8, 3), torch.zeros(8, 1)
    >>> train(nn.Linear(3, 1), run, x, y, learning_rate=0.1, seed=0, loss=F.mse_loss).steps
    4
    """
    chosen = Options(**options)
    preparation.check_run(run, inputs, targets)
    eta = preparation.learning_rates(learning_rate, chosen.optimiser)
    run_to = preparation.steps_to_make(run, chosen.stop_after)
    seed = domain.whole_number("seed", seed, "[0, inf)")
    when = _evaluated_steps(run, chosen)
    model = preparation.prepared(model)
    device = preparation.device_of(model)
    batches, noise, layers = preparation.streams(seed)
    state = _State(model, batches, noise, *_optimiser(model, chosen))
    keeper = _Keeper(chosen, run_to)
    if chosen.checkpoint is not None:
        rates = [eta(t) for t in range(run.steps)]
        recipe = preparation.name_of(loss), rates, state.recipe()
        content = preparation.content_of(model, (inputs, targets), recipe)
        keeper.identity = {"run": preparation.facts_of(run), "seed": seed, "content": content}
    bar = _Progress(run_to, run.sampling_rate, chosen.progress)
    with preparation.lent_generators(device), keeper.resumed(state):
        records = _Records(inputs, targets, device, chosen)
        preparation.rehearse(model, loss, records.first(), chosen.engine)
        records.follow(run, batches, state.step)
        for t in range(state.step, run_to):
            preparation.seed_layers(device, layers + t)
            drawn = sampling.draw(run, batches, t)
            step = facts_of_step(run, t)
            parts = (
                clipped_sum(model, loss, x, y, step.clip_norm, engine=chosen.engine)
                for x, y in records.parts(drawn)
            )
            clipped = added(parts) if len(drawn) else nothing(model)
            state.advance(clipped, step, eta(t))
            if state.step in when:
                state.evaluate(chosen.evaluate, run)
            keeper.keep_sometimes(state)
            bar.show(state)
        state.check_finite()
        keeper.keep(state)
    return Training(run, seed, state.step, tuple(state.history), model, state.skipped)


def facts_of_step(run: NoisySGD | Phases, t: int) -> NoisySGD:
    """The noise multiplier and clip norm of step t: the one place where the loop asks for them.

    A run has the same at each step; of a run in phases it's the phase that the step belongs to.

    >>> run = NoisySGD(n=4, batch_size=2, steps=4, noise_multiplier=1.0)
    >>> facts_of_step(run, 3).noise_multiplier
    1.0
    """
    return run.at(t) if isinstance(run, Phases) else run


class _Records:
    """All n records, and the parts of each drawn batch."""

    def __init__(self, inputs: Any, targets: Any, device: torch.device, chosen: Options) -> None:
        self.all, self.device, self.chosen = (inputs, targets), device, chosen
        self.dataset = inputs if isinstance(inputs, Dataset) else None
        self.ahead: Iterator[Any] = iter(())

    def first(self) -> tuple[Any, Any]:
        """One record, for its shape."""
        if self.dataset is not None:
            x, y = next(loaded(self.dataset, iter([torch.tensor([0])]), 0))
            return moved(x, self.device), moved(y, self.device)
        return take(self.all, torch.tensor([0]), self.device)

    def follow(self, run: NoisySGD | Phases, batches: torch.Generator, step: int) -> None:
        """Have a Dataset's items loaded for the batches that this generator will draw, ahead of the steps."""
        if self.dataset is None:
            return
        copy = torch.Generator()
        copy.set_state(batches.get_state())

        def positions() -> Iterator[Tensor]:
            for t in range(step, run.steps):
                yield from self._split(sampling.draw(run, copy, t))

        self.ahead = loaded(self.dataset, positions(), self.chosen.workers)

    def _split(self, drawn: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.split(drawn, self.chosen.microbatch or max(len(drawn), 1)) if len(drawn) else ()
        )

    def parts(self, drawn: Tensor) -> Iterator[tuple[Any, Any]]:
        """The batch in parts of at most `microbatch` records."""
        rows = self._split(drawn)
        if self.dataset is None:
            return (take(self.all, part, self.device) for part in rows)
        return (
            (moved(x, self.device), moved(y, self.device)) for x, y in islice(self.ahead, len(rows))
        )


def _optimiser(model: nn.Module, chosen: Options) -> tuple[Optimizer | None, Any]:
    """The optimiser of the copy's trained parameters, and its scheduler."""
    if chosen.optimiser is None:
        return None, None
    optimiser = chosen.optimiser(list(trainable(model).values()))
    example = "a function that returns torch.optim.AdamW(theta, lr=1e-3)"
    domain.instance("optimiser(parameters)", optimiser, Optimizer, example)
    return optimiser, chosen.scheduler(optimiser) if chosen.scheduler else None


def _evaluated_steps(run: NoisySGD | Phases, chosen: Options) -> set[int]:
    if chosen.evaluate is None:
        return set()
    at = chosen.evaluate_at
    if at is None:
        return set(evaluation_steps(run))
    several = isinstance(at, Iterable) and getattr(at, "ndim", 1) > 0
    domain.require("evaluate_at", at, several, "a list of steps")
    allowed = f"[1, {max(run.steps, 1)}]"
    return {domain.whole_number("a step of evaluate_at", step, allowed) for step in at}


@dataclass
class _State:
    """All that a training needs to go on: parameters, both generators, the optimiser, the steps made."""

    model: nn.Module
    batches: torch.Generator
    noise: torch.Generator
    optimiser: Optimizer | None = None
    scheduler: Any = None
    step: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        self.history: list[Evaluation] = []

    def advance(self, clipped: ClippedSum, step: NoisySGD, learning_rate: float) -> None:
        """One noisy update, by η or by the optimiser."""
        if self.optimiser is None:
            update(self.model, clipped.gradients, step, learning_rate, self.noise)
        else:
            noisy_gradients(self.model, clipped.gradients, step, self.noise)
            self.optimiser.step()
            self.optimiser.zero_grad()
            if self.scheduler is not None:
                self.scheduler.step()
        self.step, self.skipped = self.step + 1, self.skipped + clipped.skipped

    def evaluate(self, function: Any, run: NoisySGD | Phases) -> None:
        with preparation.modes_kept(self.model):
            found = function(self.model)
        value = domain.number(
            "evaluate(model)", found, advice=f"it was called after step {self.step}"
        )
        self.history.append(Evaluation(self.step, self.step * run.sampling_rate, value))

    def check_finite(self) -> None:
        """Parameters that have overflowed aren't a result: neither returned nor kept."""
        if not all(theta.isfinite().all() for theta in self.model.parameters()):
            raise ValueError(
                f"parameters are infinite or NaN after step {self.step}: choose a smaller learning_rate, or less noise"
            )

    def recipe(self) -> str:
        """What tells the optimiser and the scheduler from others."""
        scheduler = self.scheduler and (type(self.scheduler).__name__, self.scheduler.state_dict())
        return repr((self.optimiser, scheduler))

    def parts(self) -> dict[str, Any]:
        """What has a state_dict."""
        named = {"model": self.model, "optimiser": self.optimiser, "scheduler": self.scheduler}
        return {name: part for name, part in named.items() if part is not None}

    def saved(self) -> dict[str, Any]:
        self.check_finite()
        held = {name: part.state_dict() for name, part in self.parts().items()}
        held |= {"batches": self.batches.get_state(), "noise": self.noise.get_state()}
        history = [tuple(asdict(e).values()) for e in self.history]
        return held | {"step": self.step, "skipped": self.skipped, "history": history}

    def restore(self, saved: dict[str, Any]) -> None:
        for name, part in self.parts().items():
            part.load_state_dict(saved[name])
        self.batches.set_state(saved["batches"])
        self.noise.set_state(saved["noise"])
        self.step, self.skipped = saved["step"], saved["skipped"]
        self.history = [Evaluation(*e) for e in saved["history"]]


class _Keeper:
    """The checkpoint of one training, if it was asked for one."""

    def __init__(self, chosen: Options, run_to: int) -> None:
        self.path, self.every, self.run_to = chosen.checkpoint, chosen.checkpoint_every, run_to
        self.identity: dict[str, Any] = {}

    @contextlib.contextmanager
    def resumed(self, state: _State) -> Iterator[None]:
        """The file held for this process, and the training where it was left."""
        if self.path is None:
            yield
            return
        path = Path(self.path)
        size = sum(t.nbytes for t in state.model.state_dict().values() if isinstance(t, Tensor))
        with checkpoint.claimed(path, (4 if state.optimiser else 1) * size + 100_000):
            self._restore(path, state)
            yield

    def keep_sometimes(self, state: _State) -> None:
        if state.step % self.every == 0:
            self.keep(state)

    def keep(self, state: _State) -> None:
        if self.path is not None:
            checkpoint.save(Path(self.path), {"identity": self.identity} | state.saved())

    def _restore(self, path: Path, state: _State) -> None:
        """Go on from a checkpoint, if it's there. A file that isn't one is left as it is."""
        saved = checkpoint.load(path) or {}
        if not saved and not path.exists():
            return
        name = f"checkpoint = {str(path)!r}"
        try:
            ours, made = saved["identity"] == self.identity, saved["step"]
            if ours and made <= self.run_to:
                state.restore(saved)
                return
        except (LookupError, TypeError, RuntimeError, AttributeError) as error:
            raise ValueError(
                f"{name} isn't a whole checkpoint of this model: give another file, or remove it to start again"
            ) from error
        if ours:
            raise ValueError(
                f"stop_after = {self.run_to}, but {name} holds {made} steps: give at least as many"
            )
        raise ValueError(
            f"{name} belongs to another run, seed, model, data, loss, optimiser or learning rate: give another file"
        )


class _Progress:
    """One line on stderr, rewritten at most five times a second."""

    def __init__(self, steps: int, rate: float, on: bool) -> None:
        self.steps, self.rate, self.on, self.last = steps, rate, on, 0.0

    def show(self, state: _State) -> None:
        done = state.step == self.steps
        if not self.on or (time.monotonic() - self.last < 0.2 and not done):
            return
        self.last = time.monotonic()
        bar = "#" * (30 * state.step // max(self.steps, 1))
        value = f"  last evaluation {state.history[-1].value:.4g}" if state.history else ""
        epoch = state.step * self.rate
        text = f"\r[{bar:30}] step {state.step}/{self.steps}  epoch {epoch:.2f}{value}"
        print(text, end="\n" if done else "", file=sys.stderr, flush=True)


def evaluation_steps(run: NoisySGD | Phases, in_last_epoch: int = 4) -> list[int]:
    """Steps that end an epoch, and `in_last_epoch` equally spaced ones in the last epoch.

    >>> evaluation_steps(NoisySGD(n=60000, batch_size=256, steps=704, noise_multiplier=1.0))
    [235, 469, 529, 587, 646, 704]
    """
    per_epoch = 1 / domain.instance("run", run, NoisySGD | Phases, RUN_EXAMPLE).sampling_rate
    in_last_epoch = domain.whole_number("in_last_epoch", in_last_epoch, "[1, 1e6]")
    epochs = int(run.steps / per_epoch + 1e-9)
    ends = {math.ceil(epoch * per_epoch - 1e-9) for epoch in range(1, epochs + 1)}
    last = {math.ceil(run.steps - per_epoch * k / in_last_epoch) for k in range(in_last_epoch)}
    return sorted(step for step in ends | last if 1 <= step <= run.steps)


def accuracy(model: nn.Module, inputs: Any, targets: Tensor, batch: int = 1000) -> float:
    """Percentage of records whose largest output is the target's, in evaluation mode.

    >>> accuracy(nn.Identity(), torch.eye(4), torch.tensor([0, 1, 2, 0]))
    75.0
    """
    domain.instance("model", model, nn.Module, "torch.nn.Linear(4, 3)")
    check_records(inputs, targets)
    one_class = isinstance(targets, Tensor) and targets.ndim == 1 and len(targets)
    if not one_class:
        shape = tuple(getattr(targets, "shape", ()))
        raise ValueError(
            f"targets has shape {shape}: give one class number for each of some records"
        )
    batch = min(domain.whole_number("batch", batch, "[1, inf)"), len(targets))
    right = 0
    with preparation.modes_kept(model), torch.no_grad():
        model.eval()
        for rows in torch.split(torch.arange(len(targets)), batch):
            x, y = take((inputs, targets), rows)
            right += int((_evaluated(model, x).argmax(1) == y).sum())
    return 100 * right / len(targets)


def _evaluated(model: nn.Module, x: Any) -> Tensor:
    """The model's output, for images as they're fastest if the model takes them so."""
    try:
        return called(model, channels_last(x) if isinstance(x, Tensor) else x)
    except RuntimeError as error:
        if "view size" not in str(error):
            raise
    return called(model, x)
