"""A batch's gradients for one parameter: the norm of each record's, and their weighted sum (chapter 14).

Three forms of the same thing, each with what it costs: `Explicit` holds the gradients themselves,
`Product` and `Rows` what they're made of. Records that must be left out are put to zero, by `only`:
a factor of 0 isn't enough, because 0 · NaN is NaN.

A norm that's too small would be a hole in the guarantee. So the norms of `Product` and `Rows`, whose
gradients are formed a second time for the sum, are widened by the most that rounding can do there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = [
    "ClippedSum", "Explicit", "Piece", "Product", "Rows", "clipping_factors", "full_precision", "joined", "sum_of",
]  # fmt: skip


@dataclass(frozen=True)
class ClippedSum:
    """Σ of clipped per-record gradients, and what the clipping saw.

    gradients : one tensor for each trainable parameter, in the order and shape of
        `dpteach.training.clipping.trainable(model)`.
    norms : (batch,) norms before clipping; NaN or inf for a record that was left out. Secret, like
        the data.

    >>> ClippedSum((torch.zeros(2),), torch.tensor([1.0, float("nan")])).skipped
    1
    """

    gradients: tuple[Tensor, ...]
    norms: Tensor

    @property
    def skipped(self) -> int:
        """Number of records left out because their gradient wasn't finite."""
        return int((~self.norms.isfinite()).sum())


def clipping_factors(norms: Tensor, clip_norm: float) -> Tensor:
    """min(1, C/‖v‖), rounded towards zero by 32 ulp so that no clipped norm exceeds C; 0 for a record left out.

    >>> clipping_factors(torch.tensor([0.5, 2.0, float("inf"), float("nan")]), 1.0).round(decimals=4).tolist()
    [1.0, 0.5, 0.0, 0.0]
    """
    safe = clip_norm * (1 - 32 * torch.finfo(norms.dtype).eps)
    return torch.where(norms.isfinite(), (safe / norms).clamp(max=1.0), 0.0)


def _unchanged(values: Tensor) -> Tensor:
    return values


class Explicit(NamedTuple):
    """Per-record gradients as they are: values (batch, …), which `restore` brings to the parameter's shape.

    >>> Explicit(torch.tensor([[3.0, 4.0], [0.0, 1.0]])).norms().tolist()
    [5.0, 1.0]
    """

    values: Tensor
    restore: Callable[[Tensor], Tensor] = _unchanged

    def norms(self) -> Tensor:
        """(batch,) norms of the records' gradients."""
        return torch.linalg.vector_norm(self.values.flatten(1), dim=1)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Σ_i c_i · gradient i, in the parameter's shape."""
        return self.restore(torch.tensordot(factors, self.values, 1))

    def gradients(self) -> Tensor:
        """(batch, …) gradients in the parameter's shape."""
        return self.restore(self.values)

    def only(self, records: Tensor) -> Explicit:
        """The same with the other records' gradients put to zero."""
        return Explicit(_zeroed(self.values, records), self.restore)


class Product(NamedTuple):
    """Per-record gradients as products: record i's is δ_iᵀ x_i, with δ (batch, positions, out), x
    (batch, positions, in).

    Norms without gradients: ‖δᵀx‖² = Σ_{l,l'} ⟨δ_l, δ_l'⟩⟨x_l, x_l'⟩, and ‖δ‖‖x‖ at a single
    position (Goodfellow 2015). The double sum cancels where gradients of positions do, hence
    float64 for it.

    >>> Product(torch.tensor([[[3.0, 4.0]]]), torch.tensor([[[0.0, 2.0]]])).norms().tolist()
    [10.0]
    """

    delta: Tensor
    x: Tensor
    restore: Callable[[Tensor], Tensor] = _unchanged

    def norms(self) -> Tensor:
        """(batch,) norms, by the double sum over the positions."""
        delta, x = (torch.linalg.vector_norm(t, dim=2) for t in (self.delta, self.x))
        positions = x.shape[1]
        if positions == 1:
            return (delta * x).squeeze(1)
        wide_delta, wide_x = self.delta.double(), self.x.double()
        squares = (torch.bmm(wide_delta, wide_delta.mT) * torch.bmm(wide_x, wide_x.mT)).sum((1, 2))
        rounding = (
            positions * torch.finfo(x.dtype).eps * (delta * x).sum(1)
        )  # of δᵀx in the weighted sum
        return squares.clamp(min=0).sqrt().to(x.dtype) + rounding

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Σ_i c_i · gradient i, in the parameter's shape."""
        delta = self.delta * factors[:, None, None]
        return self.restore(delta.flatten(0, 1).mT @ self.x.flatten(0, 1))

    def gradients(self) -> Tensor:
        """(batch, …) gradients in the parameter's shape."""
        return self.restore(torch.bmm(self.delta.mT, self.x))

    def only(self, records: Tensor) -> Product:
        """The same with the other records' gradients put to zero."""
        return Product(_zeroed(self.delta, records), _zeroed(self.x, records), self.restore)


class Rows(NamedTuple):
    """Per-record gradients of a table of which a record touches few rows: row t is Σ_{l: t_l = t} δ_l.

    tokens (batch, positions) in [0, rows), delta (batch, positions, width). No array of the table's
    size is made for each record.

    >>> Rows(torch.tensor([[7, 2]]), torch.tensor([[[3.0], [4.0]]]), 9).norms().tolist()
    [5.0]
    """

    tokens: Tensor
    delta: Tensor
    rows: int

    def norms(self) -> Tensor:
        """(batch,) norms, each over the rows that a record touches."""
        batch, positions, width = self.delta.shape
        record = torch.arange(batch, device=self.tokens.device)[:, None]
        touched, place = torch.unique(record * self.rows + self.tokens, return_inverse=True)
        sums = self.delta.new_zeros(len(touched), width).index_add_(
            0, place.flatten(), self.delta.flatten(0, 1)
        )
        owner = touched // self.rows
        squares = self.delta.new_zeros(batch).index_add_(0, owner, sums.square().sum(1))
        twice = positions > torch.bincount(
            owner, minlength=batch
        )  # where a row's δ are added up, and may cancel
        eps = torch.finfo(self.delta.dtype).eps
        rounding = positions * eps * torch.linalg.vector_norm(self.delta, dim=2).sum(1)
        return squares.sqrt() + torch.where(twice, rounding, 0.0)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Σ_i c_i · gradient i, in the parameter's shape."""
        delta = (self.delta * factors[:, None, None]).flatten(0, 1)
        return delta.new_zeros(self.rows, delta.shape[1]).index_add_(
            0, self.tokens.flatten(), delta
        )

    def gradients(self) -> Tensor:
        """(batch, rows, width) gradients: batch × table, only where a table is used several times."""
        batch, _, width = self.delta.shape
        index = self.tokens[:, :, None].expand_as(self.delta)
        return self.delta.new_zeros(batch, self.rows, width).scatter_add_(1, index, self.delta)

    def only(self, records: Tensor) -> Rows:
        """The same with the other records' gradients put to zero."""
        return Rows(self.tokens, _zeroed(self.delta, records), self.rows)


Piece = Explicit | Product | Rows


def _zeroed(values: Tensor, records: Tensor) -> Tensor:
    """`values` with zeros for all but these records."""
    return torch.where(records.reshape(-1, *(1,) * (values.ndim - 1)), values, 0)


def joined(pieces: list[Piece], parameter: Tensor, batch: int) -> Piece:
    """One piece of what a parameter's uses contribute: added up before anything is measured.

    >>> twice = [Explicit(torch.ones(1, 1)), Explicit(-torch.ones(1, 1))]
    >>> joined(twice, torch.zeros(1), 1).norms().tolist()
    [0.0]
    """
    if not pieces:
        return Explicit(parameter.new_zeros(batch, 1), lambda zero: zero.new_zeros(parameter.shape))
    if len(pieces) == 1:
        return pieces[0]
    return Explicit(sum((piece.gradients() for piece in pieces[1:]), pieces[0].gradients()))


def sum_of(pieces: list[Piece], clip_norm: float) -> ClippedSum:
    """Norms over all parameters, then the weighted sums over the records whose norm is finite.

    >>> sum_of([Explicit(torch.tensor([[4.0], [0.5], [float("inf")]]))], 1.0).gradients[0].round(decimals=4)
    tensor([1.5000])
    """
    with full_precision(pieces[0][0].device):
        norms = torch.linalg.vector_norm(torch.stack([piece.norms() for piece in pieces]), dim=0)
        finite = norms.isfinite()
        if not finite.all():
            pieces = [piece.only(finite) for piece in pieces]
        return ClippedSum(
            tuple(_weighted_sums(list(pieces), clipping_factors(norms, clip_norm))), norms
        )


def _weighted_sums(pieces: list[Any], factors: Tensor) -> list[Any]:
    """Each piece's sum in its place. What holds most memory is let go first."""
    for i in sorted(range(len(pieces)), key=lambda i: isinstance(pieces[i], Rows)):
        pieces[i] = pieces[i].weighted_sum(factors)
    return pieces


def full_precision(device: torch.device) -> torch.autocast:
    """Products as precise as their factors, also where the model runs under autocast.

    >>> with torch.autocast("cpu", torch.bfloat16), full_precision(torch.device("cpu")):
    ...     (torch.eye(2) @ torch.eye(2)).dtype
    torch.float32
    """
    return torch.autocast(device.type, enabled=False)
