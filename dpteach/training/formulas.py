"""From a layer's input and its output's gradient to each record's gradient of its parameters (chapter 14).

Shapes here have two leading dimensions: the record, and what the model itself gives its layers as a
batch, which is 1 unless the model folds something into it. Both are positions of one record.

A layer is taken by its exact type, with nothing added to it: only then is it known that it treats
what lies along its first dimension apart, and that the formula is that of its forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpteach.training.pieces import Explicit, Piece, Product, Rows

__all__ = [
    "apart", "chain_of", "has_formula", "is_known", "pieces_of", "takes", "takes_batch", "with_parameters",
]  # fmt: skip

_ELEMENTWISE = (
    nn.Linear,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.Embedding,
)  # any number of leading dimensions
_CHANNELS = {  # first dimension apart, channels second: the number of dimensions they take
    nn.Conv1d: (3,), nn.Conv2d: (4,), nn.Conv3d: (5,), nn.GroupNorm: (2, 3, 4, 5),
    nn.BatchNorm1d: (2, 3), nn.BatchNorm2d: (4,), nn.BatchNorm3d: (5,),
    nn.InstanceNorm1d: (3,), nn.InstanceNorm2d: (4,), nn.InstanceNorm3d: (5,),
    nn.MaxPool2d: (4,), nn.AvgPool2d: (4,), nn.AdaptiveAvgPool2d: (4,),
}  # fmt: skip
_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_INSTANCE_NORM = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


def is_known(layer: nn.Module) -> bool:
    """Whether the layer, by its exact type, treats what lies along its first dimension apart.

    >>> is_known(nn.Linear(2, 2)), is_known(nn.BatchNorm1d(2)), is_known(nn.BatchNorm1d(2).eval())
    (True, False, True)
    """
    if type(layer) not in (*_ELEMENTWISE, *_CHANNELS) or "forward" in vars(layer):
        return False
    if (
        not set(layer._parameters) <= {"weight", "bias"}
        or type(layer) is nn.Embedding
        and layer.max_norm is not None
    ):
        return False
    if type(layer) in _BATCH_NORM:
        return not layer.training and layer.running_mean is not None
    return type(layer) not in _INSTANCE_NORM or not layer.track_running_stats


def has_formula(layer: nn.Module) -> bool:
    """Whether `pieces_of` covers the layer's parameters.

    >>> has_formula(nn.Conv2d(2, 4, 3)), has_formula(nn.Conv2d(2, 4, 3, groups=2)), has_formula(nn.PReLU())
    (True, False, False)
    """
    if not is_known(layer):
        return False
    if type(layer) is nn.Conv3d or type(layer) is nn.Embedding and layer.scale_grad_by_freq:
        return False
    if not isinstance(layer, (nn.Conv1d, nn.Conv2d)):
        return True
    plain = layer.groups == 1 and layer.padding_mode == "zeros" and layer.padding != "same"
    return plain and set(layer.dilation) == {1}


_PLAIN = (  # without parameters, element by element
    nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish,
    nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid,
    nn.Dropout,
)  # fmt: skip


def chain_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers of a model that runs one after the other and all known to treat records apart; else none.

    >>> [name for name, _ in chain_of(nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(2, 2))))]
    ['0', '1.0']
    >>> chain_of(nn.Sequential(nn.Flatten(0), nn.Linear(2, 2)))
    []
    """
    layers = []
    for name, layer in model.named_modules(remove_duplicate=False):
        if (
            layer._forward_hooks
            or layer._forward_pre_hooks
            or layer._backward_hooks
            or layer._backward_pre_hooks
        ):
            return []
        if type(layer) is nn.Sequential and not set(vars(layer)) - set(vars(nn.Sequential())):
            continue
        plain = type(layer) in _PLAIN or type(layer) is nn.Flatten and layer.start_dim >= 1
        if "forward" in vars(layer) or not (plain or is_known(layer)):
            return []
        layers.append((name, layer))
    return layers


def takes_batch(layer: nn.Module, x: Tensor) -> bool:
    """Whether the first dimension of `x`, a batch of records, is one that the layer treats apart.

    >>> takes_batch(nn.LayerNorm(3), torch.ones(2, 3)), takes_batch(nn.LayerNorm((2, 3)), torch.ones(2, 3))
    (True, False)
    """
    if type(layer) in _CHANNELS:
        return x.ndim in _CHANNELS[type(layer)]
    if type(layer) is nn.Flatten:
        return x.ndim > 1
    if isinstance(layer, (nn.LayerNorm, nn.RMSNorm)):
        return x.ndim > len(layer.normalized_shape)
    return x.ndim > (1 if isinstance(layer, nn.Linear) else 0)


def takes(layer: nn.Module, x: Tensor) -> bool:
    """Whether `x`, as the model gives it to this known layer, has a first dimension to treat apart.

    >>> takes(nn.Conv2d(1, 1, 1), torch.ones(1, 1, 4, 4)), takes(nn.Conv2d(1, 1, 1), torch.ones(1, 4, 4))
    (True, False)
    """
    if type(layer) in _ELEMENTWISE:
        return True
    return x.ndim in _CHANNELS[type(layer)]


def apart(layer: nn.Module, x: Tensor, forward: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """A known layer's output for x (record, batch, …): both leading dimensions are one to the layer.

    >>> apart(nn.MaxPool2d(2), torch.ones(5, 1, 3, 4, 4)).shape
    torch.Size([5, 1, 3, 2, 2])
    """
    forward = forward or partial(type(layer).forward, layer)
    if type(layer) is nn.Linear:
        return forward(x.flatten(0, -2)).unflatten(0, x.shape[:-1]) if x.ndim > 2 else forward(x)
    if type(layer) in _ELEMENTWISE:
        return forward(x)
    return forward(x.flatten(0, 1)).unflatten(0, x.shape[:2])


@contextmanager
def with_parameters(layer: nn.Module, change: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """The layer with other tensors in the place of its parameters, for as long as the context lasts.

    >>> layer = nn.Linear(1, 1)
    >>> with with_parameters(layer, Tensor.detach):
    ...     layer(torch.ones(1)).requires_grad
    False
    """
    held = layer._parameters
    layer.__dict__["_parameters"] = {
        name: None if p is None else change(p) for name, p in held.items()
    }
    try:
        yield
    finally:
        layer.__dict__["_parameters"] = held


def pieces_of(layer: nn.Module, x: Tensor, delta: Tensor) -> dict[str, Piece]:
    """Each record's gradients of the layer's parameters, by the parameter's name.

    x : the layer's input, (record, batch, …). delta : the gradient of its output, whose first dimension
        is what the layer was given. Half types (of autocast) are widened to the parameters' type.

    >>> found = pieces_of(nn.Linear(2, 3), torch.ones(4, 1, 2), torch.ones(4, 3))
    >>> round(found["weight"].norms()[0].item(), 4)
    2.4495
    """
    own = next(p for p in layer.parameters(recurse=False)).dtype
    x, delta = x.to(own) if x.is_floating_point() else x, delta.to(own)
    if type(layer) not in _ELEMENTWISE:
        delta = delta.reshape(*x.shape[:2], *delta.shape[1:])
    if isinstance(layer, nn.Linear):
        delta = delta.reshape(len(x), -1, layer.out_features)
        return _dense_pieces(layer, x.reshape(len(x), -1, layer.in_features), delta)
    if isinstance(layer, (nn.Conv1d, nn.Conv2d)):
        return _conv_pieces(layer, x, delta)
    if isinstance(layer, nn.Embedding):
        delta = delta.reshape(len(x), -1, layer.embedding_dim)
        return {"weight": _embedding_piece(layer, x.reshape(len(x), -1).long(), delta)}
    return _norm_pieces(layer, x, delta)


def _dense_pieces(
    layer: nn.Module,
    x: Tensor,
    delta: Tensor,
    restore: Callable[[Tensor], Tensor] = lambda weight: weight,
) -> dict[str, Piece]:
    """A dense layer at P positions: the weight's gradient is Σ_l δ_l x_lᵀ, (out, in).

    The gradients are formed, unless P²(out + in) < out·in: then the norms by a double sum over the
    positions are less work and less memory.
    """
    (positions, size_in), size_out = x.shape[1:], delta.shape[2]
    if positions**2 * (size_out + size_in) < size_out * size_in:
        piece: Piece = Product(delta, x, restore)
    else:
        piece = Explicit(torch.bmm(delta.mT, x), restore)
    return {"weight": piece, "bias": Explicit(delta.sum(1))}


def _conv_pieces(layer: nn.Conv1d | nn.Conv2d, x: Tensor, delta: Tensor) -> dict[str, Piece]:
    """A convolution is a dense layer applied to each patch.

    With the channels innermost in memory, a patch is kh runs of kw·channels numbers:
    `Tensor.unfold` over rows and over columns, and one copy, about twice as fast as `F.unfold`.
    """
    records, channels, line = len(x), layer.in_channels, isinstance(layer, nn.Conv1d)
    if line:  # a picture of one row
        x, delta = x.unsqueeze(-2), delta.unsqueeze(-2)
    kh, kw = (1, *layer.kernel_size)[-2:]
    sh, sw = (1, *layer.stride)[-2:]
    ph, pw = (
        (0, 0) if isinstance(layer.padding, str) else (0, *layer.padding)[-2:]
    )  # a word: "valid"
    x = x.flatten(0, 1).permute(0, 2, 3, 1)
    rows = (F.pad(x, (0, 0, pw, pw, ph, ph)) if ph or pw else x).flatten(
        2
    )  # record, row, column · channel
    patches = rows.unfold(1, kh, sh).unfold(2, kw * channels, sw * channels)
    patches = patches.reshape(
        records, -1, kh * kw * channels
    )  # record, position, row · column · channel
    delta = delta.flatten(0, 1).permute(0, 2, 3, 1).reshape(records, -1, layer.out_channels)

    def restore(weight: Tensor) -> Tensor:  # to (…, out, channel, row, column)
        weight = torch.unflatten(weight, -1, (kh, kw, channels)).movedim(-1, -3)
        return weight.squeeze(-2) if line else weight

    return _dense_pieces(layer, patches, delta, restore)


def _embedding_piece(layer: nn.Embedding, tokens: Tensor, delta: Tensor) -> Piece:
    """A table: the gradient of row t is the sum of δ over the positions that look it up; none for the padding."""
    if layer.padding_idx is not None:
        delta = torch.where((tokens == layer.padding_idx)[:, :, None], 0, delta)
    return Rows(tokens, delta, layer.num_embeddings)


def _norm_pieces(layer: nn.Module, x: Tensor, delta: Tensor) -> dict[str, Piece]:
    """A normalisation y = γ·x̂ + β: Σ δ·x̂ and Σ δ over the places that share γ and β."""
    with with_parameters(layer, lambda p: None):
        normalised = apart(layer, x)
    delta, own = delta.reshape(normalised.shape), next(layer.parameters(recurse=False)).shape

    def total(t: Tensor) -> Tensor:  # over the places that share a parameter
        if type(layer) in _ELEMENTWISE:  # the last dimensions have parameters
            return t.reshape(len(t), -1, *own).sum(1)
        return t.reshape(*t.shape[:2], *own, -1).sum((1, 3))  # the channels have

    return {"weight": Explicit(total(delta * normalised)), "bias": Explicit(total(delta))}
