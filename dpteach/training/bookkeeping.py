"""The engine 'fast': one backward pass to the pre-activations, and book-keeping (chapter 14).

From a layer's input and its pre-activation's gradient follow each record's norm (Goodfellow 2015; Li
et al. 2022) and the clipped sum (Bu et al. 2023).

The forward pass is mapped over the records, one record each. Layers known by their type to treat
records apart run on the whole batch; a model that's nothing but a chain of these needs no map. Any
other code, the user's, sees one record alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from dpteach.training import formulas
from dpteach.training.hypotheses import UnseenGradient, swapped, trainable
from dpteach.training.pieces import ClippedSum, Explicit, Piece, full_precision, joined, sum_of
from dpteach.training.records import called, channels_last, flattened, length

__all__ = ["Loss", "fast"]

Loss = Callable[[Any, Any], Tensor]


def fast(model: nn.Module, loss: Loss, inputs: Any, targets: Any, clip_norm: float) -> ClippedSum:
    """Book-keeping: forward, backward to the pre-activations, norms, then one weighted product for
    each parameter.

    A parameter whose layer has no formula, or that is used outside its layer's forward, gets a copy for
    each record, whose gradient is the record's.

    >>> fast(nn.Linear(2, 1), F.mse_loss, torch.rand(5, 2), torch.rand(5, 1), 1.0).norms.shape
    torch.Size([5])
    """
    parameters, batch = trainable(model), length(inputs)
    copied = _copied(model)
    copies = {
        name: _copy_for_each_record(p, batch) for name, p in parameters.items() if name in copied
    }
    calls = _Calls(model in _AS_GIVEN)
    try:
        total = _total_loss(model, loss, inputs, targets, copies, calls)
    except RuntimeError as error:
        if "view" not in str(error) or model in _AS_GIVEN:
            raise
        _AS_GIVEN.add(model)  # it can only `view` images as they're given, not channels-last ones
        return fast(model, loss, inputs, targets, clip_norm)
    calls.check_inputs()
    # A parameter's own edge is reached only by what used it outside its layer's call.
    edges: list[Any] = [call.edge for call in calls.seen]
    edges += [*copies.values(), *map(get_gradient_edge, parameters.values())]
    gradients: Sequence[Tensor | None] = (None,) * len(edges)
    if total.requires_grad:
        gradients = torch.autograd.grad(total, edges, allow_unused=True)
    outside = {
        name
        for name, g in zip(parameters, gradients[-len(parameters) :], strict=True)
        if g is not None
    }
    if outside & copied:
        raise _unseen(f"parameter {min(outside & copied)!r}")
    if outside:
        copied |= outside
        return fast(model, loss, inputs, targets, clip_norm)
    with full_precision(next(iter(parameters.values())).device):
        pieces = _pieces(parameters, calls.seen, gradients, copies)
    del calls, gradients, edges, total, copies  # what they hold isn't needed any more
    return sum_of([joined(pieces.pop(p), p, batch) for p in parameters.values()], clip_norm)


#: For each model, the parameters that need a copy for each record, as far as it's been found out.
_COPIED: weakref.WeakKeyDictionary[nn.Module, set[str]] = weakref.WeakKeyDictionary()
_AS_GIVEN: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def _copied(model: nn.Module) -> set[str]:
    """Names of the parameters that no layer with a formula owns, and of those that were found outside theirs."""
    if model not in _COPIED:
        owned = {
            p
            for layer in model.modules()
            if formulas.has_formula(layer)
            for p in layer._parameters.values()
        }
        _COPIED[model] = {name for name, p in model.named_parameters() if p not in owned}
    return _COPIED[model]


def _copy_for_each_record(parameter: Tensor, batch: int) -> Tensor:
    return parameter.detach().expand(batch, *parameter.shape).requires_grad_()


def _pieces(
    parameters: dict[str, nn.Parameter],
    seen: list[_Call],
    gradients: Sequence,
    copies: dict[str, Tensor],
) -> dict[Tensor, list[Piece]]:
    """What each parameter's uses contribute: by its layers' formulas, or by its copies."""
    pieces: dict[Tensor, list[Piece]] = {p: [] for p in parameters.values()}
    for call, delta in zip(seen, gradients, strict=False):
        for name, piece in (
            () if delta is None else formulas.pieces_of(call.layer, call.inputs, delta).items()
        ):
            parameter = call.layer._parameters.get(name)
            if parameter in pieces:  # neither frozen nor absent
                pieces[parameter].append(piece)
    for name, gradient in zip(copies, gradients[len(seen) :], strict=False):
        if gradient is not None:
            pieces[parameters[name]].append(Explicit(gradient))
    return pieces


def _total_loss(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    copies: dict[str, Tensor],
    calls: _Calls,
) -> Tensor:
    """Σ_i loss of record i alone: δ_i then belongs to record i, whatever mean the loss takes over a batch."""
    with torch.enable_grad():
        output = None if copies else calls.through(formulas.chain_of(model), inputs)
        if output is None:
            with _recorded(model, copies, calls):
                total = _mapped_loss(model, loss, inputs, targets, copies, calls)
        else:
            total = _loss_of(output, loss, targets)
    calls.inside[0] = False
    return total


def _loss_of(output: Tensor, loss: Loss, targets: Any) -> Tensor:
    """The loss alone, mapped over the records. Cross-entropy is known to treat them apart, and cheaper at once."""
    y, rebuilt_y = flattened(targets)
    if loss is F.cross_entropy and output.ndim == 2 and len(y) == 1 and y[0].ndim == 1:
        return F.cross_entropy(output, y[0], reduction="sum")
    of_one = lambda out, *y: loss(out[None], rebuilt_y([t[None] for t in y])).sum()  # noqa: E731
    return vmap(of_one, randomness="different")(output, *y).sum()


def _mapped_loss(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    copies: dict[str, Tensor],
    calls: _Calls,
) -> Tensor:
    """The same for a model of which nothing is known: its forward pass, too, is mapped over the records."""
    (x, rebuilt_x), (y, rebuilt_y) = flattened(inputs), flattened(targets)

    def of_one_record(
        anchor: Tensor, theta: list[Tensor], x: list[Tensor], y: list[Tensor]
    ) -> Tensor:
        calls.anchor = anchor
        with swapped(model, dict(zip(copies, theta, strict=True))):
            output = called(model, rebuilt_x([t[None] for t in x]))
            return loss(output, rebuilt_y([t[None] for t in y])).sum()

    anchor = torch.zeros(len(x[0]), device=x[0].device)
    with sdpa_kernel(
        SDPBackend.MATH
    ):  # the others can't be mapped and would be run record by record
        return vmap(of_one_record, randomness="different")(
            anchor, list(copies.values()), x, y
        ).sum()


class _Call(NamedTuple):
    name: str
    layer: nn.Module
    inputs: Tensor
    version: int
    edge: GradientEdge


def _check_outermost(inside: list[bool], name: str, layer: nn.Module, *_: Tensor) -> None:
    """Refuse a gradient that's taken inside the forward pass: its use of the parameters goes unseen."""
    if inside[0]:
        raise _unseen(
            f"layer {name!r} ({type(layer).__name__}), through which forward takes a gradient,"
        )


class _Calls:
    """Each call of a layer that has trained parameters and a formula: its input, and where its gradient arrives."""

    def __init__(self, as_given: bool) -> None:
        self.seen: list[_Call] = []
        self.anchor = torch.zeros(
            ()
        )  # of each record; it makes the record's number known to `_Apart`
        self.inside = [True]  # whether the forward pass goes on
        self.as_given = as_given  # the images' layout in memory

    def through(self, chain: Sequence[tuple[str, nn.Module]], x: Any) -> Tensor | None:
        """The output of layers that all treat records apart; None without, or where one takes x for something else."""
        if not chain:
            return None
        for name, layer in chain:
            if not isinstance(x, Tensor) or not formulas.takes_batch(layer, x):
                self.seen.clear()
                return None
            x = self.outside_the_graph(name, layer, x, x.unsqueeze(1))
        return x

    def outside_the_graph(self, name: str, layer: nn.Module, x: Tensor, records: Tensor) -> Tensor:
        """A layer's output, with its parameters out of the graph."""
        with formulas.with_parameters(layer, Tensor.detach):
            output = type(layer).forward(layer, x if self.as_given else channels_last(x))
        return self.record(name, layer, records, output)

    def run(self, name: str, layer: nn.Module, *args: Any, **more: Any) -> Any:
        """The layer's forward: on the whole batch, if it's known to treat what it's given apart."""
        if (
            more
            or len(args) != 1
            or not formulas.takes(layer, args[0])
            or not torch.is_grad_enabled()
        ):
            return type(layer).forward(layer, *args, **more)
        return _Apart.apply(  # type: ignore[no-untyped-call]
            self, name, layer, args[0], self.anchor
        )

    def record(self, name: str, layer: nn.Module, x: Tensor, output: Tensor) -> Tensor:
        """Note a call, and have the graph begin here if there's nothing trained below."""
        if not any(p is not None and p.requires_grad for p in layer._parameters.values()):
            return output
        if output._is_view():  # its edge would move when the output is changed in place
            output = output.clone()
        if not output.requires_grad:
            seed = torch.zeros((), device=output.device, requires_grad=True)
            output = _Begin.apply(output, seed)  # type: ignore[no-untyped-call]
        # the hook lives in the graph, which `seen` holds: it must not hold `self` in turn
        output.register_hook(partial(_check_outermost, self.inside, name, layer))  # type: ignore[no-untyped-call]
        self.seen.append(_Call(name, layer, x.detach(), x._version, get_gradient_edge(output)))
        return output

    def check_inputs(self) -> None:
        """Refuse an input that has changed since its layer used it."""
        for call in self.seen:
            if call.inputs._version != call.version:
                raise ValueError(
                    f"the input of layer {call.name!r} is changed in place after the layer has used it,"
                    " so its gradients would be wrong: use the out-of-place operation, or engine='vmap'"
                )


@contextmanager
def _recorded(model: nn.Module, copies: dict[str, Tensor], calls: _Calls) -> Iterator[None]:
    """Run known layers on the whole batch during a mapped forward pass, with their parameters out of the graph.

    Then the backward pass computes the pre-activations' gradients and no weight gradient at all:
    that is where the time goes that other implementations lose. A parameter that's in the graph all
    the same was used outside its layer. Hooks of the user stand before and behind a layer's forward.
    """
    named = dict(model.named_parameters())
    copied = {named[name] for name in copies}
    known = {
        name: layer for name, layer in model.named_modules()
        if formulas.is_known(layer) and copied.isdisjoint(layer._parameters.values())
    }  # fmt: skip
    try:
        for name, layer in known.items():
            layer.__dict__["forward"] = partial(calls.run, name, layer)
        yield
    finally:
        for layer in known.values():
            del layer.__dict__["forward"]


class _Apart(torch.autograd.Function):
    """A known layer under `vmap`: its own forward on the whole batch, instead of PyTorch's rule for each operation."""

    @staticmethod
    def forward(calls: _Calls, name: str, layer: nn.Module, x: Tensor, anchor: Tensor) -> Tensor:
        raise _unseen(f"layer {name!r}")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        """Reached only under a `torch.func.grad` of the model's own."""
        _, name, layer, _, _ = inputs
        raise _unseen(
            f"layer {name!r} ({type(layer).__name__}), through which forward takes a gradient,"
        )

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple,
        calls: _Calls,
        name: str,
        layer: nn.Module,
        x: Tensor,
        anchor: Tensor,
    ) -> tuple[Tensor, int]:
        dim = in_dims[3]
        x = x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
        if (
            in_dims[4] is None
        ):  # a vmap of the model's own: one more dimension of what the layer treats apart
            return formulas.apart(layer, x, partial(_inner, calls, name, layer, anchor)), 0
        return formulas.apart(
            layer, x, lambda given: calls.outside_the_graph(name, layer, given, x)
        ), 0


def _inner(calls: _Calls, name: str, layer: nn.Module, anchor: Tensor, x: Tensor) -> Tensor:
    return _Apart.apply(calls, name, layer, x, anchor)  # type: ignore[no-untyped-call]


class _Begin(torch.autograd.Function):
    """The tensor itself, where a graph begins that may be changed in place, as a leaf may not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None]:
        return None, None


def _unseen(what: str) -> ValueError:
    """The refusal of a gradient that can't be split by records here."""
    return UnseenGradient(
        f"{what} is used in a way that engine='fast' can't split by records: use engine='naive'"
    )
