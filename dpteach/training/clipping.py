"""The clipped sum of a batch: every record's gradient cut to length C, then added up.

DP-SGD needs, at each step, Σ_i v_i · min(1, C/‖v_i‖), where v_i is the gradient of record i alone.
PyTorch's backward pass only gives Σ_i v_i. `dpteach.training.engines` closes the gap in three ways;
`dpteach.training.hypotheses` says what the proof takes for granted.

A record's loss is `loss(outputs, targets)` on a batch of that record alone. So a mean and a sum over
the batch are the same where a record's loss is one unweighted number; a mean also divides by a
record's outputs and by class weights, which then cancel: use reduction='sum' with weights. A model
whose code mixes the records of a batch is trained as if each record were alone.

In float32 a near-tie, in a max-pool or at a ReLU's kink, can fall to either side in different
engines; both are gradients there, and both are clipped.

A record whose gradient is NaN or infinite contributes nothing. Its contribution has norm 0 <= C, so
the privacy analysis holds, and one bad record can't destroy the parameters. `ClippedSum.skipped`
counts them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import torch
from torch import nn

from dpteach import domain
from dpteach.training.engines import ENGINES, Loss
from dpteach.training.hypotheses import (
    check_loss,
    check_model,
    explained,
    isolated,
    trainable,
    written,
)
from dpteach.training.pieces import ClippedSum
from dpteach.training.records import called, channels_last, check_records, flattened, length

__all__ = [
    "ENGINES", "ClippedSum", "Loss", "added", "channels_last", "check_model", "check_records", "clipped_sum",
    "keep_freed_memory", "nothing", "trainable",
]  # fmt: skip


def clipped_sum(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, clip_norm: float,
    *, engine: str = "fast", microbatch: int | None = None,
) -> ClippedSum:  # fmt: skip
    """Σ_i v_i · min(1, C/‖v_i‖₂) over a batch, v_i the gradient of record i's own loss.

    Parameters
    ----------
    model : any `torch.nn` model that takes a batch of one record; see `check_model`.
    loss : `loss(outputs, targets)`, a number for a batch of one.
        `torch.nn.functional.cross_entropy` will do.
    inputs, targets : tensors of the same length, which may be 0, or tuples, lists, dicts or
        dataclasses of them. A dict's entries are given to the model by name, a tuple's in turn.
    clip_norm : C > 0, not so near the ends of the parameters' number type that its squares lose digits.
    engine : 'naive' for any model; 'vmap' or 'fast' for models that `torch.func.vmap` can map: all but
        recurrent layers (GRU, LSTM, RNN), and control flow that depends on a record's values.
    microbatch : at most so many records in memory at once; the sum is the same up to rounding.

    Raises `ValueError` for a model without trainable parameters, with batch normalisation in train
    mode, with trained parameters of a half type, or whose forward pass changes a parameter, a buffer
    or a container; and, with PyTorch's words in it, where the model or the loss can't be run.

    The norm of each term is at most C, also in rounded arithmetic, so the sum's is at most
    batch · C.

    >>> model = nn.Linear(2, 1)
    >>> x, y = torch.tensor([[3.0, 4.0], [0.0, 0.1]]), torch.zeros(2, 1)
    >>> result = clipped_sum(model, lambda out, _: out.sum(), x, y, clip_norm=1.0)
    >>> [round(v, 4) for v in result.norms.tolist()]
    [5.099, 1.005]
    >>> [round(v, 3) for v in result.gradients[0].flatten().tolist()]
    [0.588, 0.884]
    """
    domain.one_of("engine", engine, tuple(ENGINES))
    check_model(model)
    check_loss(loss)
    check_records(inputs, targets)
    clip_norm = _checked_clip_norm(model, clip_norm)
    size = length(inputs)
    if not size:
        return nothing(model)
    chunk = (
        size if microbatch is None else domain.whole_number("microbatch", microbatch, "[1, inf)")
    )
    return added(
        _part(model, loss, x, y, clip_norm, engine) for x, y in _split(inputs, targets, chunk)
    )


def _checked_clip_norm(model: nn.Module, clip_norm: float) -> float:
    held = torch.finfo(next(iter(trainable(model).values())).dtype)
    fits = f"[{held.tiny**0.5 / held.eps:.3g}, {held.max * held.eps:.3g}]"  # smaller squares would vanish
    return domain.number(
        "clip_norm", clip_norm, fits, "the clipping norm C, which the parameters' type must hold"
    )


def _split(inputs: Any, targets: Any, chunk: int) -> Iterable[tuple[Any, Any]]:
    """The batch in parts of at most `chunk` records."""
    (x, rebuilt_x), (y, rebuilt_y) = flattened(inputs), flattened(targets)
    for start in range(0, len(x[0]), chunk):
        rows = slice(start, start + chunk)
        yield rebuilt_x([t[rows] for t in x]), rebuilt_y([t[rows] for t in y])


def _part(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, clip_norm: float, engine: str
) -> ClippedSum:
    """One engine's sum; a change of the model's state is refused, PyTorch's errors become sentences."""
    try:
        with isolated(model, loss):
            return ENGINES[engine](model, loss, inputs, targets, clip_norm)
    except (
        RuntimeError,
        LookupError,
        TypeError,
        AttributeError,
        NotImplementedError,
        AssertionError,
    ) as error:
        one = next(iter(_split(inputs, targets, 1)))[0]
        raise written(model, lambda copy: called(copy, one)) or explained(error, engine) from error


def nothing(model: nn.Module) -> ClippedSum:
    """The clipped sum of an empty batch, such as Poisson sampling draws.

    >>> nothing(nn.Linear(1, 1)).gradients
    (tensor([[0.]]), tensor([0.]))
    """
    zeros = tuple(torch.zeros_like(p) for p in trainable(model).values())
    return ClippedSum(zeros, zeros[0].new_zeros(0))


def added(parts: Iterable[ClippedSum]) -> ClippedSum:
    """The sum over several parts of a batch.

    >>> part = ClippedSum((torch.ones(1),), torch.ones(2))
    >>> added([part, part]).gradients, len(added([part, part]).norms)
    ((tensor([2.]),), 4)
    """

    def of_two(a: ClippedSum, b: ClippedSum) -> ClippedSum:
        gradients = tuple(x + y for x, y in zip(a.gradients, b.gradients, strict=True))
        return ClippedSum(gradients, torch.cat([a.norms, b.norms]))

    return reduce(of_two, parts)


def keep_freed_memory() -> None:
    """Have the C library keep up to 64 MB of freed memory for the next step, instead of returning
    it at once.

    A step's temporary tensors are some tens of MB, and fetching fresh pages for them can take as
    long as the arithmetic. glibc learns from use: freeing one block of nearly 32 MB raises its
    limits. It changes no result and does no harm elsewhere. The block is never touched, so it
    costs no memory.

    >>> keep_freed_memory()
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)
