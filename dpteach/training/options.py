"""What can be chosen of a training besides what privacy depends on, each with its check (chapter 15)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from dpteach import domain
from dpteach.training.clipping import ENGINES

__all__ = ["LEARNING_RATES", "Options"]

LEARNING_RATES = "[0, 1e30]"  # beyond, θ overflows at once


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `train` and `train_distributed`. None of them changes what privacy depends on.

    Parameters
    ----------
    engine, microbatch : see `dpteach.training.clipping.clipped_sum`. With `microbatch` a batch is
        also loaded in parts, so it may be larger than memory.
    optimiser : in place of a learning rate, a function of the list of parameters that makes any
        `torch.optim` optimiser, such as ``lambda theta: torch.optim.AdamW(theta, lr=1e-3)``. The
        noisy average goes where `.grad` goes. That's post-processing of the noisy sum.
    scheduler : a function of the optimiser that makes one of `torch.optim.lr_scheduler`; it steps
        after each update.
    evaluate, evaluate_at : a function of the model, and the steps after which it's called;
        `evaluation_steps(run)` by default: each epoch's end, and four times in the last epoch.
    stop_after : make only the first so many steps of the run.
    progress : show a line on stderr that says how far it is.
    checkpoint : a file to continue from, if it's there, and to write every `checkpoint_every`
        steps. After a stop at any moment, the same call ends with the same parameters to the bit.
        The file holds the seed, the generators and parameters before the end: it's as secret as the
        data.
    workers : processes that load the items of a Dataset ahead of the steps.

    >>> Options(engine="vmap", microbatch=64).checkpoint_every
    200
    """

    engine: str = "fast"
    microbatch: int | None = None
    optimiser: Callable[[list[nn.Parameter]], Optimizer] | None = None
    scheduler: Callable[[Optimizer], Any] | None = None
    evaluate: Callable[[nn.Module], float] | None = None
    evaluate_at: Iterable[int] | None = None
    stop_after: int | None = None
    progress: bool = False
    checkpoint: str | Path | None = None
    checkpoint_every: int = 200
    workers: int = 0

    def __post_init__(self) -> None:
        domain.one_of("engine", self.engine, tuple(ENGINES))
        for name in ("optimiser", "scheduler", "evaluate"):
            value = getattr(self, name)
            example = "lambda model: accuracy(model, inputs, targets)"
            if name != "evaluate":
                example = "lambda theta: torch.optim.AdamW(theta, lr=1e-3)"
            domain.instance(name, value, Callable | None, example)
        both = self.scheduler is None or self.optimiser is not None
        domain.require("scheduler", self.scheduler, both, "left out", "it needs an optimiser")
        every = domain.whole_number("checkpoint_every", self.checkpoint_every, "[1, inf)")
        workers = domain.whole_number(
            "workers", self.workers, "[0, 1e4]", "0: load in this process"
        )
        domain.instance("progress", self.progress, bool, "True")
        domain.set_fields(self, checkpoint_every=every, workers=workers)
        if self.microbatch is not None:
            size = domain.whole_number("microbatch", self.microbatch, "[1, inf)")
            domain.set_fields(self, microbatch=size)
        if self.checkpoint is not None:
            example = "'run-a.pt'"
            path = Path(domain.instance("checkpoint", self.checkpoint, str | Path, example))
            domain.set_fields(self, checkpoint=path)
