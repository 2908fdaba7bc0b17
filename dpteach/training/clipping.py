"""The clipped sum of a batch: every record's gradient cut to length C, then added up.

DP-SGD needs, at each step, Σ_i v_i · min(1, C/‖v_i‖), where v_i is the gradient of record i alone.
PyTorch's backward pass only gives Σ_i v_i. Three engines close the gap; all give the same sum, and
differ in time and memory:

1. `naive`: a loop over the records, one backward pass for each. Right by construction, slow.
2. `vmap`: `torch.func.vmap(grad(...))`, all gradients at once, for any model. Memory: batch ×
   parameters.
3. `fast`: one backward pass, down to the *pre-activations* only. From a layer's input and its
   pre-activation's gradient follow each record's norm (Goodfellow 2015; Li et al. 2022) and the
   clipped sum (book-keeping: Bu et al. 2023). Linear and Conv2d have a formula, other layers fall
   back on vmap.

In float32 a near-tie, in a max-pool or at a ReLU's kink, can fall to either side in different
engines; both are gradients there, and both are clipped.

A record's loss is `loss(outputs, targets)` on the batch of that record alone. So a mean and a sum
over the batch are the same where a record's loss is one unweighted number; a mean also divides by a
record's outputs and by class weights, which then cancel: use reduction='sum' with weights. A layer
that mixes records, like BatchNorm, leaves no gradient "of record i": refused by `check_model`.

A record whose gradient is NaN or infinite contributes nothing: the sum is computed again without it.
Its contribution has norm 0 <= C, so the privacy analysis holds, and one bad record can't destroy the
parameters. `ClippedSum.skipped` counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from dpteach import domain

__all__ = [
    "ENGINES", "ClippedSum", "Loss", "channels_last", "check_model", "check_records", "clipped_sum",
    "keep_freed_memory", "trainable",
]  # fmt: skip

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ClippedSum:
    """Σ of clipped per-record gradients, and what the clipping saw.

    gradients : one tensor for each trainable parameter, in the order and shape of
        `trainable(model)`.
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


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training moves, by name: those with `requires_grad`.

    >>> list(trainable(nn.Linear(2, 1)))
    ['weight', 'bias']
    """
    domain.instance("model", model, nn.Module, "torch.nn.Linear(4, 3)")
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def clipped_sum(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, clip_norm: float,
    *, engine: str = "fast", microbatch: int | None = None,
) -> ClippedSum:  # fmt: skip
    """Σ_i v_i · min(1, C/‖v_i‖₂) over a batch, v_i the gradient of record i's own loss.

    Parameters
    ----------
    model : any `torch.nn` model whose first dimension is the record; see `check_model`.
    loss : `loss(outputs, targets)`, a number for a batch of one.
        `torch.nn.functional.cross_entropy` will do.
    inputs, targets : tensors of the same length, which may be 0.
    clip_norm : C > 0, not so near the ends of the parameters' number type that its products lose digits.
    engine : 'naive', 'vmap' or 'fast'.
    microbatch : at most so many records in memory at once; the sum is the same up to rounding.

    Raises `ValueError` for a model without trainable parameters or with a BatchNorm that would mix
    the records. Engine 'fast' also refuses what its formulas don't cover: a parameter used outside
    its own layer's forward, a layer where the record isn't the first dimension, or one with random
    numbers and parameters of its own. 'vmap' covers these.

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
    fast = domain.one_of("engine", engine, tuple(ENGINES)) == "fast"
    _refuse(model, lambda x: isinstance(x, _BatchNorm) and (x.training if x.track_running_stats else fast))
    domain.instance("loss", loss, Callable, "torch.nn.functional.cross_entropy")
    check_records(inputs, targets)
    held = torch.finfo(next(iter(trainable(model).values())).dtype)
    fits = f"[{held.tiny / held.eps:.3g}, {held.max * held.eps:.3g}]"
    clip_norm = domain.number("clip_norm", clip_norm, fits, "the clipping norm C, which the parameters' type must hold")
    size = max(len(inputs), 1)  # an empty Poisson batch is one empty part
    chunk = size if microbatch is None else min(size, domain.whole_number("microbatch", microbatch, "[1, inf)"))
    batches = zip(torch.split(inputs, chunk), torch.split(targets, chunk), strict=True)
    parts = [_without_bad_records(ENGINES[engine], model, loss, x, y, clip_norm) for x, y in batches]
    gradients = tuple(reduce(torch.add, group) for group in zip(*(part.gradients for part in parts), strict=True))
    return ClippedSum(gradients, torch.cat([part.norms for part in parts]))


def _without_bad_records(
    run: Callable, model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, clip_norm: float
) -> ClippedSum:
    """The sum over the records whose gradient is finite. A factor 0 isn't enough for the others: 0 · NaN is NaN."""
    if not len(inputs):
        zeros = tuple(torch.zeros_like(p) for p in trainable(model).values())
        return ClippedSum(zeros, zeros[0].new_zeros(0))
    result = run(model, loss, inputs, targets, clip_norm)
    finite = result.norms.isfinite()
    if finite.all():
        return result
    rest = _without_bad_records(run, model, loss, inputs[finite], targets[finite], clip_norm)
    return ClippedSum(rest.gradients, result.norms.masked_scatter(finite, rest.norms))


def _factors(norms: Tensor, clip_norm: float) -> Tensor:
    """min(1, C/‖v‖), rounded towards zero by 32 ulp so that no clipped norm exceeds C."""
    safe = clip_norm * (1 - 32 * torch.finfo(norms.dtype).eps)
    return (safe / norms).clamp(max=1.0)


# --- Engine 1: a loop -----------------------------------------------------------------------------


def _naive(model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, clip_norm: float) -> ClippedSum:
    """One backward pass for each record: Algorithm 1 to the letter."""
    parameters = tuple(trainable(model).values())
    total = [torch.zeros_like(p) for p in parameters]
    norms = []
    for x, y in zip(torch.split(inputs, 1), torch.split(targets, 1), strict=True):
        value = loss(model(x), y).sum()
        gradient = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
        norm = torch.stack([g.norm() for g in gradient]).norm()
        norms.append(norm)
        for t, g in zip(total, gradient, strict=True):
            t += _factors(norm, clip_norm) * g
    return ClippedSum(tuple(total), torch.stack(norms))


# --- Engine 2: vmap -------------------------------------------------------------------------------


def _vmap(model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, clip_norm: float) -> ClippedSum:
    """All per-record gradients at once: `grad` of one record's loss, mapped over the batch."""

    def record_loss(theta: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return loss(functional_call(model, theta, (x[None],)), y[None]).sum()

    theta = {name: p.detach() for name, p in trainable(model).items()}
    gradients = vmap(grad(record_loss), in_dims=(None, 0, 0), randomness="different")(theta, inputs, targets)
    return _sum_of([_Explicit(g) for g in gradients.values()], clip_norm)


# --- Engine 3: one backward pass to the pre-activations -------------------------------------------


def _fast(model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, clip_norm: float) -> ClippedSum:
    """Book-keeping: forward, backward to the pre-activations, norms, then one weighted product for
    each parameter.
    """
    parameters = tuple(trainable(model).values())
    with _recorded_calls(model, parameters, len(inputs)) as calls:
        total = _total_loss(loss, _output(model, inputs), targets)
    _check_first_dimension(model, inputs, calls)
    # A parameter's own edge is reached only by what used it outside its layer's call.
    edges = [call.edge for call in calls] + [get_gradient_edge(p) for p in parameters]
    deltas = torch.autograd.grad(total, edges, allow_unused=True)
    _check_uses(model, deltas[len(calls) :])
    pieces: dict[Tensor, list[_Piece]] = {p: [] for p in parameters}
    for call, delta in zip(calls, deltas[: len(calls)], strict=True):
        for parameter, piece in () if delta is None else _layer_pieces(call, delta):
            if parameter in pieces:  # not a frozen one
                pieces[parameter].append(piece)
    return _sum_of([_joined(group, p, len(inputs)) for p, group in pieces.items()], clip_norm)


def _check_first_dimension(model: nn.Module, inputs: Tensor, calls: list[_Call]) -> None:
    """Where another dimension is as long as the batch, either could be the record: one record tells them apart."""
    if len(inputs) > 1 and any(len(inputs) in call.inputs.shape[1:] for call in calls):
        with torch.random.fork_rng(devices=[]), _recorded_calls(model, tuple(trainable(model).values()), 1):
            _output(model, inputs[:1])


def _check_uses(model: nn.Module, gradients: tuple[Tensor | None, ...]) -> None:
    """Refuse a parameter that has a gradient without its own layer's call: it was used elsewhere too."""
    for name, elsewhere in zip(trainable(model), gradients, strict=True):
        if elsewhere is not None:
            where = "outside its own layer's forward (weights tied by F.linear, weight_norm, prune, a hook, the loss)"
            raise ValueError(f"parameter {name!r} is used {where}, which engine='fast' can't see: use engine='vmap'")


def _output(model: nn.Module, inputs: Tensor) -> Tensor:
    """The model's output for channels-last images; for images as given where the model can only `view` those."""
    try:
        return model(channels_last(inputs))
    except RuntimeError as error:
        if "view size" not in str(error):
            raise
    return model(inputs)


def _total_loss(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Σ_i loss of record i alone: each δ_i then belongs to record i, whatever mean the loss takes
    over a batch.
    """
    if loss is F.cross_entropy and outputs.ndim == 2:
        return F.cross_entropy(outputs, targets, reduction="sum")  # the same, without vmap's overhead
    return vmap(lambda out, y: loss(out[None], y[None]).sum(), randomness="different")(outputs, targets).sum()


class _Call(NamedTuple):
    name: str
    layer: nn.Module
    inputs: Tensor
    version: int
    edge: GradientEdge


@contextmanager
def _recorded_calls(model: nn.Module, parameters: tuple[nn.Parameter, ...], batch: int) -> Iterator[list[_Call]]:
    """Record each layer's input and output during a forward pass that keeps the parameters out of
    the graph while their own layer runs.

    Then the backward pass computes the pre-activations' gradients and no weight gradient at all:
    that is where the time goes that other implementations lose. A parameter that's in the graph all
    the same was used outside its layer. The layer's own forward lies between the two hooks: `enter`
    runs after the user's pre-hooks, `record` before the user's hooks.
    """
    calls: list[_Call] = []
    entered: dict[nn.Module, list[nn.Parameter]] = {}
    in_place = any(getattr(module, "inplace", False) for module in model.modules())

    def enter(layer: nn.Module, _: tuple) -> None:
        own = [p for p in layer._parameters.values() if p is not None and p.requires_grad]
        entered[layer] = entered.get(layer, []) + own
        for p in own:
            p.requires_grad_(False)

    def record(layer: nn.Module, args: tuple, output: Tensor, name: str) -> Tensor:
        for p in entered.pop(layer, ()):
            p.requires_grad_()
        if not torch.is_grad_enabled():  # the model's own no_grad: no gradient flows here
            return output
        if len(args) != 1 or not isinstance(output, Tensor) or output.shape[:1] != (batch,) or len(args[0]) != batch:
            raise ValueError(
                f"layer {name!r} ({type(layer).__name__}) doesn't map one batch-first tensor to another (another"
                " dimension than the record comes first, or there are several tensors), which engine='fast' needs:"
                " use engine='vmap'"
            )
        if not output.requires_grad:  # nothing below it has parameters: differentiation starts here
            output = output.detach().requires_grad_()
            output = output.clone() if in_place else output
        calls.append(_Call(name, layer, args[0].detach(), args[0]._version, get_gradient_edge(output)))
        return output

    layers = {name: layer for name, layer in model.named_modules() if layer._parameters}
    hooks = [layer.register_forward_hook(partial(record, name=name), prepend=True) for name, layer in layers.items()]
    hooks += [layer.register_forward_pre_hook(enter) for layer in layers.values()]
    try:
        with torch.enable_grad():
            yield calls
    finally:
        for hook in hooks:
            hook.remove()
        for p in parameters:
            p.requires_grad_()
    for call in calls:
        if call.inputs._version != call.version:
            raise ValueError(
                f"the input of layer {call.name!r} is changed in place after the layer has used it,"
                " so its gradients would be wrong: use the out-of-place operation, or engine='vmap'"
            )


def channels_last(x: Tensor) -> Tensor:
    """Images (batch, channels, height, width) with the channels innermost in memory: pooling and
    convolution are about twice as fast so. The values stay; other shapes are returned as they are.

    >>> x = torch.rand(2, 3, 4, 5)
    >>> bool((channels_last(x) == x).all()), channels_last(x).stride(1)
    (True, 1)
    """
    if domain.instance("x", x, Tensor, "torch.rand(2, 3, 4, 5)").ndim != 4:
        return x
    n, c, h, w = x.shape
    if c == 1:  # any layout is channels-last then; convolution looks at the strides, so say it there
        return x.contiguous().as_strided(x.shape, (h * w, 1, w, 1))
    return x.contiguous(memory_format=torch.channels_last)


def _layer_pieces(call: _Call, delta: Tensor) -> list[tuple[Tensor, _Piece]]:
    """Per-record gradients of a layer's own parameters, from its input and its output's
    gradient.
    """
    layer, x = call.layer, call.inputs
    if "forward" in vars(layer):  # somebody's own
        return _vmap_pieces(call, delta)
    if type(layer) is nn.Linear:
        return _dense_pieces(layer, x.reshape(len(x), -1, layer.in_features), delta)
    if type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros":
        if layer.dilation == (1, 1) and layer.padding != "same":
            return _conv_pieces(layer, x, delta)
    return _vmap_pieces(call, delta)


def _dense_pieces(
    layer: nn.Linear | nn.Conv2d, x: Tensor, delta: Tensor, restore: Callable = lambda weight: weight
) -> list[tuple[Tensor, _Piece]]:
    """A dense layer at P positions: the weight's gradient is Σ_l δ_l x_lᵀ, (out, in).

    The gradients are formed, unless P²(out + in) < out·in: then the norms by a double sum over the
    positions are less work and less memory.
    """
    delta = delta.reshape(len(x), x.shape[1], -1)
    (positions, size_in), size_out = x.shape[1:], delta.shape[2]
    if positions**2 * (size_out + size_in) < size_out * size_in:
        piece: _Piece = _Product(delta, x, restore)
    else:
        piece = _Explicit(torch.bmm(delta.mT, x), restore)
    bias = [] if layer.bias is None else [(layer.bias, _Explicit(delta.sum(1)))]
    return [(layer.weight, piece), *bias]


def _conv_pieces(layer: nn.Conv2d, x: Tensor, delta: Tensor) -> list[tuple[Tensor, _Piece]]:
    """Conv2d is a dense layer applied to each patch.

    With the channels innermost in memory, a patch is kh runs of kw·channels numbers:
    `Tensor.unfold` over rows and over columns, and one copy, about twice as fast as `F.unfold`.
    """
    (kh, kw), (sh, sw), channels = layer.kernel_size, layer.stride, layer.in_channels
    ph, pw = (0, 0) if isinstance(layer.padding, str) else layer.padding  # a word: "valid"
    x = x.permute(0, 2, 3, 1)
    rows = (F.pad(x, (0, 0, pw, pw, ph, ph)) if ph or pw else x).flatten(2)  # record, row, column · channel
    patches = rows.unfold(1, kh, sh).unfold(2, kw * channels, sw * channels)
    patches = patches.reshape(len(x), -1, kh * kw * channels)  # record, position, row · column · channel

    def restore(weight: Tensor) -> Tensor:  # to (…, out, channel, row, column)
        return torch.unflatten(weight, -1, (kh, kw, channels)).movedim(-1, -3)

    return _dense_pieces(layer, patches, delta.permute(0, 2, 3, 1), restore)


class _Forward(nn.Module):
    """A layer's forward without its hooks, which the recorded input and output have behind and before them."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.forward(x)


def _vmap_pieces(call: _Call, delta: Tensor) -> list[tuple[Tensor, _Piece]]:
    """Any other layer: differentiate ⟨output, δ⟩ for each record, for this layer alone."""
    bare, own = _Forward(call.layer), dict(call.layer.named_parameters(recurse=False))

    def inner(theta: dict[str, Tensor], x: Tensor, delta: Tensor) -> Tensor:
        return (functional_call(bare, theta, (x[None],), tie_weights=False) * delta[None]).sum()

    theta = {f"layer.{name}": p.detach() for name, p in own.items()}
    try:
        gradients = vmap(grad(inner), in_dims=(None, 0, 0))(theta, call.inputs, delta)
    except RuntimeError as error:
        if "random operation" not in str(error):
            raise
        who = f"layer {call.name!r} ({type(call.layer).__name__}) has parameters of its own"
        raise ValueError(f"{who} and random numbers, which engine='fast' can't repeat: use engine='vmap'") from error
    return [(p, _Explicit(gradients[f"layer.{name}"])) for name, p in own.items()]


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


# --- A batch's gradients for one parameter: norms and weighted sum --------------------------------


class _Explicit(NamedTuple):
    """Per-record gradients as they are: values (batch, …), which `restore` brings to the parameter's shape."""

    values: Tensor
    restore: Callable = lambda values: values

    def norms(self) -> Tensor:
        return torch.linalg.vector_norm(self.values.flatten(1), dim=1)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        return self.restore(torch.tensordot(factors, self.values, 1))

    def gradients(self) -> Tensor:
        return self.restore(self.values)


class _Product(NamedTuple):
    """Per-record gradients as products: record i's is δ_iᵀ x_i, with δ (batch, positions, out), x
    (batch, positions, in).

    Norms without gradients: ‖δᵀx‖² = Σ_{l,l'} ⟨δ_l, δ_l'⟩⟨x_l, x_l'⟩, and ‖δ‖‖x‖ at a single
    position (Goodfellow 2015). The double sum cancels where gradients of positions do, hence
    float64 for it.
    """

    delta: Tensor
    x: Tensor
    restore: Callable

    def norms(self) -> Tensor:
        if self.x.shape[1] == 1:
            return torch.linalg.vector_norm(self.delta, dim=(1, 2)) * torch.linalg.vector_norm(self.x, dim=(1, 2))
        delta, x = self.delta.double(), self.x.double()
        squares = (torch.bmm(delta, delta.mT) * torch.bmm(x, x.mT)).sum((1, 2))
        return squares.clamp(min=0).sqrt().to(self.x.dtype)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        delta = self.delta * factors[:, None, None]
        return self.restore(delta.flatten(0, 1).mT @ self.x.flatten(0, 1))

    def gradients(self) -> Tensor:
        return self.restore(torch.bmm(self.delta.mT, self.x))


_Piece = _Explicit | _Product


def _joined(pieces: list[_Piece], parameter: Tensor, batch: int) -> _Piece:
    """One piece of what a parameter's uses contribute: added up before anything is measured."""
    if len(pieces) == 1:
        return pieces[0]
    return _Explicit(sum((piece.gradients() for piece in pieces), parameter.new_zeros(batch, *parameter.shape)))


def _sum_of(pieces: list[_Piece], clip_norm: float) -> ClippedSum:
    """Norms over all parameters, then the weighted sums."""
    norms = torch.linalg.vector_norm(torch.stack([piece.norms() for piece in pieces]), dim=0)
    factors = _factors(norms, clip_norm)
    return ClippedSum(tuple(piece.weighted_sum(factors) for piece in pieces), norms)


ENGINES = {"naive": _naive, "vmap": _vmap, "fast": _fast}


# --- Models that have no per-record gradient ------------------------------------------------------


def check_records(inputs: Tensor, targets: Tensor) -> None:
    """Refuse what isn't two tensors with one target for each input.

    >>> check_records(torch.rand(3, 2), torch.rand(3))
    """
    for name, tensor in {"inputs": inputs, "targets": targets}.items():
        domain.instance(name, tensor, Tensor, "a tensor whose first dimension is the record")
    if inputs.ndim == 0 or targets.shape[:1] != inputs.shape[:1]:
        raise ValueError(
            f"inputs has shape {tuple(inputs.shape)} and targets {tuple(targets.shape)}:"
            " the first dimension is the record; give one target for each input"
        )


def check_model(model: nn.Module, inputs: Tensor | None = None) -> None:
    """Refuse a model that mixes records, by the layer's name, before any training.

    Batch normalisation is refused on sight. With `inputs` (two records or more) the model is also
    run on records (a, b) and (a, a), in the mode it's in: where a's own output changes, a layer mixes
    records. A third run, (a, a, a), shows which dimension of an output is the record: it's longer there.

    >>> check_model(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    Traceback (most recent call last):
        ...
    ValueError: layer '1' (BatchNorm1d) mixes the records of a batch, so no gradient belongs to one
    record: \
use GroupNorm or LayerNorm instead
    """
    _refuse(model, lambda x: isinstance(x, _BatchNorm) or isinstance(x, _InstanceNorm) and x.track_running_stats)
    if inputs is not None and domain.instance("inputs", inputs, Tensor, "x_train[:2]").shape[:1] >= (2,):
        runs = [_outputs(model, inputs[rows]) for rows in ([0, 1], [0, 0], [0, 0, 0])]
        for (name, layer, a), (_, _, b), (_, _, longer) in zip(*runs, strict=True):
            of_record = [d for d, (m, n) in enumerate(zip(a.shape, longer.shape, strict=False)) if m != n]
            a, b = (output.select(of_record[0], 0) if of_record else output for output in (a, b))
            if not torch.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True):
                raise _mixes(name, layer)


def _refuse(model: nn.Module, mixing: Callable[[nn.Module], bool]) -> None:
    if not trainable(model):
        raise ValueError("model has no parameter with requires_grad, so there's nothing to train: unfreeze some")
    for name, layer in model.named_modules():
        if mixing(layer):
            raise _mixes(name, layer)


def _mixes(name: str, layer: nn.Module) -> ValueError:
    return ValueError(
        f"layer {name!r} ({type(layer).__name__}) mixes the records of a batch, so no gradient"
        " belongs to one record: use GroupNorm or LayerNorm instead"
    )


def _outputs(model: nn.Module, inputs: Tensor) -> list[tuple[str, nn.Module, Tensor]]:
    """What each module returns, in the order in which the modules finish."""
    seen = []

    def record(layer: nn.Module, _: tuple, output: object, name: str) -> None:
        if isinstance(output, Tensor) and output.is_floating_point():
            seen.append((name, layer, output.clone()))

    hooks = [layer.register_forward_hook(partial(record, name=name)) for name, layer in model.named_modules()]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # the same dropout masks for as many records
            model(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return seen
