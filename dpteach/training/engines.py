"""Three ways to the clipped sum of a batch (chapter 14). All give the same; they differ in time and memory.

1. `naive`: a loop over the records, one backward pass for each. Right by construction, slow, and for
   every model that PyTorch can run.
2. `vmap`: `torch.func.vmap(grad(...))`, all gradients at once. Memory: batch × parameters.
3. `fast`: one backward pass, down to the *pre-activations* only. From a layer's input and its
   pre-activation's gradient follow each record's norm (Goodfellow 2015; Li et al. 2022) and the
   clipped sum (book-keeping: Bu et al. 2023).

In each of them a record's forward pass and loss see that record alone, as a batch of one: by the loop,
or because `vmap` maps the model and the loss over the records. So no code of a model or a loss can mix
the records, whatever it does. The exceptions run on the whole batch at once, for speed, and are known
by their type to treat records apart: the layers of `dpteach.training.formulas`, and cross-entropy.

`fast` has a module of its own, `dpteach.training.bookkeeping`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from dpteach.training.bookkeeping import Loss, fast
from dpteach.training.hypotheses import UnseenGradient, isolated, swapped, trainable
from dpteach.training.pieces import ClippedSum, Explicit, clipping_factors, sum_of
from dpteach.training.records import called, flattened, length

__all__ = ["ENGINES", "Loss", "naive", "vectorised"]


# --- Engine 1: a loop -----------------------------------------------------------------------------


def naive(model: nn.Module, loss: Loss, inputs: Any, targets: Any, clip_norm: float) -> ClippedSum:
    """One backward pass for each record: Algorithm 1 to the letter.

    >>> import torch.nn.functional as F
    >>> naive(nn.Linear(2, 1), F.mse_loss, torch.rand(5, 2), torch.rand(5, 1), 1.0).norms.shape
    torch.Size([5])
    """
    parameters = tuple(trainable(model).values())
    total = [torch.zeros_like(p) for p in parameters]
    norms = []
    (x, rebuilt_x), (y, rebuilt_y) = flattened(inputs), flattened(targets)
    for i in range(length(inputs)):
        with isolated(model, loss):
            output = called(model, rebuilt_x([t[i : i + 1] for t in x]))
            value = loss(output, rebuilt_y([t[i : i + 1] for t in y])).sum()
        gradient = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
        gradient = tuple(g.to_dense() if g.is_sparse else g for g in gradient)
        norm = torch.stack([torch.linalg.vector_norm(g) for g in gradient]).norm()
        norms.append(norm)
        if norm.isfinite():
            for t, g in zip(total, gradient, strict=True):
                t += clipping_factors(norm, clip_norm) * g
    return ClippedSum(tuple(total), torch.stack(norms))


# --- Engine 2: vmap -------------------------------------------------------------------------------


def vectorised(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, clip_norm: float
) -> ClippedSum:
    """All per-record gradients at once: `grad` of one record's loss, mapped over the batch.

    >>> import torch.nn.functional as F
    >>> vectorised(nn.Linear(2, 1), F.mse_loss, torch.rand(5, 2), torch.rand(5, 1), 1.0).norms.shape
    torch.Size([5])
    """
    (x, rebuilt_x), (y, rebuilt_y) = flattened(inputs), flattened(targets)

    def record_loss(theta: dict[str, Tensor], x: list[Tensor], y: list[Tensor]) -> Tensor:
        with swapped(model, theta):
            output = called(model, rebuilt_x([t[None] for t in x]))
            return loss(output, rebuilt_y([t[None] for t in y])).sum()

    theta = {name: p.detach() for name, p in trainable(model).items()}
    mapped = vmap(grad_and_value(record_loss), in_dims=(None, 0, 0), randomness="different")
    gradients, values = mapped(theta, x, y)
    if values.requires_grad:  # something else than these copies of the parameters took part
        raise UnseenGradient(
            "a parameter is used in a way that engine='vmap' can't see: use engine='naive'"
        )
    return sum_of([Explicit(g) for g in gradients.values()], clip_norm)


ENGINES = {"naive": naive, "vmap": vectorised, "fast": fast}
