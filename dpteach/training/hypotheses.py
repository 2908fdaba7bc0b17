"""What the proof of one private step takes for granted, enforced or refused by name (chapter 15).

- *Each record's gradient is its own.* The engines see to it by construction; batch normalisation in
  train mode, which means nothing for a single record, is refused here.
- *A forward pass writes nothing.* What it keeps in a buffer or an attribute of the model would be
  released without noise. Attributes are put back after each pass; changed parameters and buffers, and
  containers with other elements, are refused. A tensor's changes are told by PyTorch's own count.
- *The arithmetic holds the bound.* Trained parameters are float32 or float64, and float32 products
  aren't rounded to less.

What can't be seen from here, and is the user's to know: state outside the model (globals, files,
closures), and writes through `.data`, which PyTorch doesn't count.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from dpteach import domain

__all__ = [
    "StateChanged", "UnseenGradient", "changed", "check_loss", "check_model", "explained", "isolated",
    "keeps_statistics", "swapped", "trainable", "written",
]  # fmt: skip


class UnseenGradient(ValueError):
    """A gradient that an engine can't split by records.

    >>> raise UnseenGradient("parameter 'a': use engine='naive'")
    Traceback (most recent call last):
        ...
    dpteach.training.hypotheses.UnseenGradient: parameter 'a': use engine='naive'
    """


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training moves, by name: those with `requires_grad`.

    >>> list(trainable(nn.Linear(2, 1)))
    ['weight', 'bias']
    """
    domain.instance("model", model, nn.Module, "torch.nn.Linear(4, 3)")
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def check_model(model: nn.Module) -> None:
    """Refuse a model that can't be trained with the guarantee, by the layer's name, before any training.

    >>> check_model(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    Traceback (most recent call last):
        ...
    ValueError: layer '1' (BatchNorm1d) mixes the records of a batch, so no gradient belongs to one
    record: \
use GroupNorm or LayerNorm instead, or freeze its statistics by layer.eval()
    """
    parameters = trainable(model)
    if not parameters:
        raise ValueError(
            "model has no parameter with requires_grad, so there's nothing to train: unfreeze some"
        )
    for name, p in model.named_parameters():
        if is_lazy(p):
            raise ValueError(
                f"parameter {name!r} isn't initialised yet: run the model once on a made-up record before the training"
            )
    for name, p in parameters.items():
        if p.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"parameter {name!r} is {str(p.dtype).removeprefix('torch.')}, in which a clipped sum isn't held to C:"
                " train it in float32 (model.float()); frozen parameters may be of any type"
            )
    if torch.get_float32_matmul_precision() != "highest":
        raise ValueError(
            "torch.set_float32_matmul_precision has allowed products of less than float32's precision, which don't"
            " hold a clipped sum to C: set it back to 'highest'"
        )
    for name, layer in model.named_modules():
        _check_layer(f"layer {name!r} ({type(layer).__name__})", layer)


def _check_layer(who: str, layer: nn.Module) -> None:
    batch_norm = isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None)
    if batch_norm:
        raise ValueError(
            f"{who} mixes the records of a batch, so no gradient belongs to one record:"
            " use GroupNorm or LayerNorm instead, or freeze its statistics by layer.eval()"
        )
    if isinstance(layer, _InstanceNorm) and layer.track_running_stats and layer.training:
        raise ValueError(
            f"{who} keeps running statistics of the records, which would be released without noise:"
            " use track_running_stats=False, or freeze them by layer.eval()"
        )
    if getattr(layer, "max_norm", None) is not None and isinstance(
        layer, (nn.Embedding, nn.EmbeddingBag)
    ):
        raise ValueError(
            f"{who} has max_norm, which changes the rows that a record looks up, without noise: leave max_norm out"
        )


def check_loss(loss: Any) -> None:
    """Refuse what isn't a loss, or one whose class weights have no effect.

    >>> check_loss(nn.CrossEntropyLoss(torch.ones(3)))
    Traceback (most recent call last):
        ...
    ValueError: loss has class weights and takes a mean, which for one record divides by that record's \
weight, so they have no effect: use reduction='sum'
    """
    domain.instance("loss", loss, Callable, "torch.nn.functional.cross_entropy")
    weight = (
        getattr(loss, "weight", None)
        if isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss))
        else None
    )
    if weight is not None and loss.reduction == "mean":
        raise ValueError(
            "loss has class weights and takes a mean, which for one record divides by that record's weight,"
            " so they have no effect: use reduction='sum'"
        )


# --- A forward pass writes nothing ------------------------------------------------------------------

_OWN = set(vars(nn.Module())) - {"training"}  # a module's own dictionaries


@contextmanager
def isolated(*modules: Any) -> Iterator[None]:
    """Keep nothing of what the code inside does to the modules: for the forward pass of one batch or record.

    Attributes are put back as they were. A parameter or buffer that was changed, and an attribute
    whose content was (a tensor, a list), is refused by name.

    >>> layer = nn.Linear(1, 1)
    >>> layer.last, layer.seen = None, []
    >>> with isolated(layer):
    ...     layer.last = 3
    >>> layer.last is None
    True
    >>> with isolated(layer):
    ...     layer.seen.append(3)
    Traceback (most recent call last):
        ...
    dpteach.training.hypotheses.StateChanged: 'seen' of the model itself (Linear) is changed by a forward \
pass; what it keeps of the records would be released without noise: compute it outside the training, or freeze it
    """
    named = [
        pair for root in modules if isinstance(root, nn.Module) for pair in root.named_modules()
    ]
    before = [{key: (value, _count(value)) for key, value in _held(module)} for _, module in named]
    try:
        yield
        for (name, module), old in zip(named, before, strict=True):
            for key, (value, count) in old.items():
                if _count(value) != count:
                    raise changed(_place(name, module, key))
            for key, value in {**module._parameters, **module._buffers, **module._modules}.items():
                if key not in old or old[key][0] is not value:
                    raise changed(_place(name, module, key))
    finally:
        for (_, module), old in zip(named, before, strict=True):
            _put_back(module, old)


def _held(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """What a module holds of its own: attributes, parameters, buffers and layers."""
    yield from ((key, value) for key, value in vars(module).items() if key not in _OWN)
    yield from module._parameters.items()
    yield from module._buffers.items()
    yield from module._modules.items()


def _count(value: Any) -> Any:
    """What tells whether a tensor or a container has been changed: its count of changes, its elements."""
    if isinstance(value, Tensor):
        return value._version
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(id(part), _count(part)) for part in value]
    if isinstance(value, dict):
        return [(key, id(part), _count(part)) for key, part in value.items()]
    return None


def _put_back(module: nn.Module, old: dict[str, tuple[Any, Any]]) -> None:
    registered = module._parameters, module._buffers, module._modules
    for held in registered:
        for key in list(held):
            if key not in old:
                del held[key]
            else:
                held[key] = old[key][0]
    for key in [key for key in vars(module) if key not in _OWN and key not in old]:
        del module.__dict__[key]
    plain = {
        key: value for key, (value, _) in old.items() if not any(key in held for held in registered)
    }
    module.__dict__.update(plain)


def _place(name: str, module: nn.Module, key: str) -> str:
    kind = type(module).__name__
    return (
        f"{key!r} of layer {name!r} ({kind})" if name else f"{key!r} of the model itself ({kind})"
    )


class StateChanged(ValueError):
    """A forward pass keeps something.

    >>> raise StateChanged("'mean' is changed by a forward pass")
    Traceback (most recent call last):
        ...
    dpteach.training.hypotheses.StateChanged: 'mean' is changed by a forward pass
    """


def changed(what: str) -> StateChanged:
    """The refusal of a forward pass that keeps something.

    >>> str(changed("'mean' of layer '1'"))[:50]
    "'mean' of layer '1' is changed by a forward pass; "
    """
    return StateChanged(
        f"{what} is changed by a forward pass; what it keeps of the records would be released without"
        " noise: compute it outside the training, or freeze it"
    )


def keeps_statistics(layer: nn.Module) -> bool:
    """Whether the layer, in train mode, keeps running statistics of what passes through it.

    >>> keeps_statistics(nn.BatchNorm1d(2)), keeps_statistics(nn.GroupNorm(1, 2))
    (True, False)
    """
    return isinstance(layer, (_BatchNorm, _InstanceNorm)) and layer.track_running_stats


@contextmanager
def swapped(model: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """The model with other tensors in the place of some of its parameters, under all their names.

    >>> layer = nn.Linear(1, 1)
    >>> with swapped(layer, {"weight": torch.ones(1, 1), "bias": torch.ones(1)}):
    ...     print(layer(torch.ones(1, 1)).item())
    2.0
    """
    named = dict(model.named_parameters())
    new: dict[Tensor, Any] = {named[name]: value for name, value in values.items()}
    places = [(module._parameters, key, p) for module in model.modules() if values
              for key, p in module._parameters.items() if p in new]  # fmt: skip
    try:
        for held, key, p in places:
            held[key] = new[p]
        yield
    finally:
        for held, key, p in places:
            held[key] = p


# --- Errors of PyTorch, as sentences ----------------------------------------------------------------

_SENTENCES = {
    r"Target -?\d+ is out of bounds|^index -?\d+ is out of bounds": "targets holds a class number"
    " that the model has no output for: number the classes from 0, or give the model more outputs",
    r"index out of range in self": "inputs holds a number beyond an embedding's table:"
    " give the Embedding more rows",
    r"in-place|inplace": "a tensor that isn't the record's own, or that's needed later, is changed in place:"
    " use the out-of-place operation, and keep nothing of a record in a buffer",
    r"same dtype|scalar type|dtype": "inputs, targets and parameters don't fit together in type:"
    " convert the inputs, as in inputs.float()",
    r"view size|view\(\)": "a tensor is viewed that isn't contiguous: use reshape instead of view",
}


def written(model: nn.Module, run: Callable[[nn.Module], Any]) -> StateChanged | None:
    """The refusal of what `run` writes into a copy of the model, where an engine only knows that it failed.

    >>> written(nn.Linear(1, 1), lambda copy: copy.register_buffer("last", torch.ones(1)))
    StateChanged("'last' of the model itself (Linear) is changed by a forward pass; what it keeps of the \
records would be released without noise: compute it outside the training, or freeze it")
    """
    try:
        model = copy.deepcopy(model)
        with isolated(model), torch.no_grad():
            run(model)
    except StateChanged as error:
        return error
    except Exception:  # whatever a model or its copy may raise
        return None
    return None


def explained(error: Exception, engine: str) -> ValueError:
    """PyTorch's error in a model or a loss as a sentence that names the way out.

    >>> print(explained(IndexError("Target 9 is out of bounds."), "fast"))
    targets holds a class number that the model has no output for: number the classes from 0, or give the \
model more outputs (PyTorch says: Target 9 is out of bounds.)
    """
    said = " ".join(str(error).split())
    said = said if len(said) <= 200 else said[:197] + "..."
    for pattern, sentence in _SENTENCES.items():
        if re.search(pattern, said):
            return ValueError(f"{sentence} (PyTorch says: {said})")
    if engine == "naive":
        return ValueError(
            f"the model or the loss fails for a batch of one record (PyTorch says: {said})"
        )
    return ValueError(
        f"engine={engine!r} can't map this model or loss over the records: use engine='naive', which goes through"
        f" them one by one (PyTorch says: {said})"
    )
