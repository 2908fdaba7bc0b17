"""What happens before the first step: the streams of random numbers, the copy that's trained, a rehearsal."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from dpteach import domain
from dpteach.run import RUN_EXAMPLE, NoisySGD, Phases
from dpteach.training.clipping import check_model, clipped_sum, keep_freed_memory
from dpteach.training.hypotheses import StateChanged, changed, isolated, keeps_statistics, trainable
from dpteach.training.options import LEARNING_RATES
from dpteach.training.records import called, check_records, flattened, length

__all__ = [
    "check_run", "content_of", "device_of", "facts_of", "learning_rates", "lent_generators", "modes_kept",
    "name_of", "prepared", "rehearse", "seed_layers", "steps_to_make", "streams",
]  # fmt: skip


def check_run(run: Any, inputs: Any, targets: Any) -> None:
    """Refuse data that aren't the run's n records, and what isn't one run.

    >>> run = NoisySGD(n=3, batch_size=1, steps=1, noise_multiplier=1.0)
    >>> check_run(run, torch.rand(3, 2), torch.rand(3))
    """
    advice = f"give {RUN_EXAMPLE}, or several as Phases((first, second))"
    domain.require("run", run, isinstance(run, NoisySGD | Phases), "one run", advice)
    if isinstance(inputs, Dataset):
        domain.require(
            "targets", targets, targets is None, "left out", "a Dataset's items hold them"
        )
        sized = hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__")
        domain.require(
            "inputs", inputs, sized, "a Dataset with a length", "batches are drawn by index"
        )
        sizes = (len(inputs),) * 2  # type: ignore[arg-type]
    else:
        check_records(inputs, targets, (Tensor, np.ndarray))
        sizes = length(inputs), length(targets)
    if sizes != (run.n, run.n):
        raise ValueError(
            f"run.n = {run.n}, but inputs has {sizes[0]} records and targets {sizes[1]}:"
            " n, which privacy depends on, must be the number of records"
        )


def learning_rates(learning_rate: Any, optimiser: Any) -> Callable[[int], float]:
    """η as a function of the step; an optimiser has its own.

    >>> learning_rates(0.1, None)(7)
    0.1
    """
    if optimiser is not None:
        advice = "the optimiser has its own"
        domain.require("learning_rate", learning_rate, learning_rate is None, "left out", advice)
        return lambda t: 0.0
    if callable(learning_rate):
        return lambda t: domain.number(f"learning_rate({t})", learning_rate(t), LEARNING_RATES)
    advice = "it's η in Algorithm 1; or give an optimiser"
    positive = LEARNING_RATES.replace("[", "(")
    rate = domain.number("learning_rate", learning_rate, positive, advice)
    return lambda t: rate


def steps_to_make(run: NoisySGD | Phases, stop_after: int | None) -> int:
    """All steps of the run, or the first `stop_after`.

    >>> steps_to_make(NoisySGD(n=3, batch_size=1, steps=9, noise_multiplier=1.0), 2)
    2
    """
    if stop_after is None:
        return run.steps
    return domain.whole_number(
        "stop_after", stop_after, f"[0, {run.steps}]", "the run has no more steps"
    )


def facts_of(run: NoisySGD | Phases) -> dict[str, Any]:
    """The run's facts, as they stand in a checkpoint.

    >>> facts_of(NoisySGD(n=3, batch_size=1, steps=9, noise_multiplier=1.0))["steps"]
    9
    """
    return {k: v for k, v in asdict(run).items() if k != "rate"}


def streams(seed: int) -> tuple[torch.Generator, torch.Generator, int]:
    """Independent generators for batches and noise, and a seed for dropout, all from one seed.

    >>> streams(1)[2] == streams(1)[2] != streams(2)[2]
    True
    """
    a, b, c = (int(s) for s in np.random.SeedSequence(seed).generate_state(3, np.uint64) >> 1)
    return torch.Generator().manual_seed(a), torch.Generator().manual_seed(b), c


def device_of(model: nn.Module) -> torch.device:
    """Where the model's trained parameters are: the records are brought there.

    >>> device_of(nn.Linear(1, 1))
    device(type='cpu')
    """
    devices = {p.device for p in trainable(model).values()}
    one = len(devices) == 1
    domain.require(
        "model", sorted(map(str, devices)), one, "on one device", "move all of it: model.to(device)"
    )
    return devices.pop()


@contextmanager
def lent_generators(device: torch.device) -> Iterator[None]:
    """The global generators of the CPU and of this device, given back as they were; no other's is touched.

    >>> state = torch.random.get_rng_state()
    >>> with lent_generators(torch.device("cpu")):
    ...     drawn = torch.rand(1)
    >>> torch.equal(state, torch.random.get_rng_state())
    True
    """
    if device.type == "cpu":
        with torch.random.fork_rng(devices=[]):
            yield
    else:
        with torch.random.fork_rng(devices=[device], device_type=device.type):
            yield


def seed_layers(device: torch.device, seed: int) -> None:
    """Seed what dropout draws from: the global generators of the CPU and of this device.

    >>> with lent_generators(torch.device("cpu")):
    ...     seed_layers(torch.device("cpu"), 3)
    ...     torch.initial_seed()
    3
    """
    torch.default_generator.manual_seed(seed % 2**63)
    if device.type != "cpu":
        with torch.get_device_module(device).device(device):
            torch.get_device_module(device).manual_seed(seed % 2**63)


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Each layer is in train or eval mode afterwards as it was before.

    >>> layer = nn.Dropout()
    >>> with modes_kept(layer):
    ...     layer = layer.eval()
    >>> layer.training
    True
    """
    before = {layer: layer.training for layer in model.modules()}
    try:
        yield
    finally:
        for layer, training in before.items():
            layer.training = training


def prepared(model: nn.Module) -> nn.Module:
    """A copy in train mode, checked. Batch normalisation that arrives in eval mode stays there: it's frozen.

    >>> prepared(nn.Linear(1, 1).eval()).training
    True
    """
    model = copy.deepcopy(domain.instance("model", model, nn.Module, "torch.nn.Linear(4, 3)"))
    frozen = [layer for layer in model.modules() if keeps_statistics(layer) and not layer.training]
    model.train()
    for layer in frozen:
        layer.eval()
    check_model(model)
    keep_freed_memory()
    return model


def rehearse(model: nn.Module, loss: Any, batch: tuple[Any, Any], engine: str) -> None:
    """One forward pass and one clipped sum of a made-up record, all zeros of a record's shape.

    So no record's values decide what's refused.
    Every parameter and buffer is compared by its values, which a write through `.data` changes too.
    A model or loss that can't be run on zeros is left to the first step.

    >>> loss = nn.functional.mse_loss
    >>> rehearse(nn.Linear(2, 1), loss, (torch.ones(1, 2), torch.ones(1, 1)), "fast")
    """
    inputs, targets = map(_zeros, batch)
    before = {name: value.clone() for name, value in _tensors(model).items()}
    try:
        with isolated(model, loss), torch.no_grad():
            loss(called(model, inputs), targets)
    except StateChanged:
        raise
    except Exception:  # whatever a model makes of zeros
        return
    for name, value in _tensors(model).items():
        if not torch.equal(before[name].nan_to_num(), value.nan_to_num()):
            raise changed(f"{name!r} of the model")
    clipped_sum(model, loss, inputs, targets, 1.0, engine=engine)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: v.detach() for name, v in (*model.named_parameters(), *model.named_buffers())}


def _zeros(tree: Any) -> Any:
    leaves, rebuilt = flattened(tree)
    return rebuilt([torch.zeros_like(leaf) for leaf in leaves])


def content_of(model: nn.Module, records: tuple[Any, Any], recipe: tuple) -> str:
    """A digest of what a run is given besides its facts: records, initial model, and what `recipe` says.

    Arrays on disk and a Dataset are told by their type and size alone.

    >>> x = torch.ones(2, 2)
    >>> content_of(nn.Linear(2, 2), (x, x), ()) == content_of(nn.Linear(2, 2), (x, x), ())
    False
    """
    digest = hashlib.sha256(repr(recipe).encode())
    for number, tree in enumerate((*records, list(model.state_dict().items()))):
        if isinstance(tree, Dataset):
            digest.update(repr((number, type(tree).__name__, len(tree))).encode())  # type: ignore[arg-type]
        for leaf in flattened(tree)[0]:
            digest.update(repr((number, leaf.shape, leaf.dtype)).encode())
            if isinstance(leaf, Tensor):
                flat = leaf.detach().cpu().reshape(-1).contiguous()
                digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def name_of(function: Any) -> str:
    """How a checkpoint tells a loss or another function from others: by its name.

    >>> name_of(nn.functional.mse_loss)
    'mse_loss'
    """
    name = getattr(function, "__qualname__", None)
    return name or (repr(function) if isinstance(function, nn.Module) else repr(type(function)))
