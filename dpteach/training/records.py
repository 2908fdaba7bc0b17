"""Records as people bring them: tensors, arrays on disk, tuples and dicts of these, or a Dataset.

The first dimension of every tensor is the record. Inputs that are a dict are given to the model by
name, those in a tuple or list one after the other; what the model returns goes to the loss as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from dpteach import domain

__all__ = [
    "called",
    "channels_last",
    "check_records",
    "flattened",
    "length",
    "loaded",
    "moved",
    "take",
]


def flattened(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The tensors in tuples, lists, dicts and dataclasses, and what puts others in their places.

    >>> leaves, rebuilt = flattened({"a": torch.zeros(2), "b": (torch.ones(1), None)})
    >>> len(leaves), rebuilt([1, 2])
    (2, {'a': 1, 'b': (2, None)})
    """
    if isinstance(tree, (Tensor, np.ndarray)):
        return [tree], lambda leaves: leaves[0]
    if isinstance(tree, dict):
        keys, parts = list(tree), list(tree.values())
        whole: Callable[[list], Any] = lambda values: dict(zip(keys, values, strict=True))  # noqa: E731
    elif isinstance(tree, (tuple, list)):
        parts = list(tree)
        named = hasattr(tree, "_fields")
        whole = lambda values: type(tree)(*values) if named else type(tree)(values)  # noqa: E731
    elif is_dataclass(tree) and not isinstance(tree, type):
        keys = [field.name for field in fields(tree)]
        parts = [getattr(tree, key) for key in keys]
        whole = lambda values: type(tree)(**dict(zip(keys, values, strict=True)))  # noqa: E731
    else:
        return [], lambda leaves: tree
    split = [flattened(part) for part in parts]

    def rebuilt(leaves: list[Tensor]) -> Any:
        left = iter(leaves)
        return whole([make([next(left) for _ in found]) for found, make in split])

    return [leaf for found, _ in split for leaf in found], rebuilt


def length(tree: Any) -> int:
    """Number of records: the length of the first tensor.

    >>> length((torch.zeros(3, 2), torch.zeros(3)))
    3
    """
    return len(flattened(tree)[0][0])


def take(tree: Any, rows: Tensor, device: torch.device | None = None) -> Any:
    """The records at positions `rows`, on a device. Of an array on disk only these rows are read.

    >>> take((torch.arange(5), np.arange(5.0)), torch.tensor([4, 1]))
    (tensor([4, 1]), tensor([4., 1.], dtype=torch.float64))
    """
    leaves, rebuilt = flattened(tree)
    return rebuilt([
        (leaf[rows.to(leaf.device)] if isinstance(leaf, Tensor) else torch.from_numpy(leaf[rows.numpy()])).to(device)
        for leaf in leaves
    ])  # fmt: skip


def loaded(dataset: Dataset, drawn: Iterator[Tensor], workers: int) -> Iterator[Any]:
    """A Dataset's items at each of the drawn positions, put together, by `workers` processes ahead of time.

    >>> dataset = torch.utils.data.TensorDataset(torch.arange(5), torch.arange(5) % 2)
    >>> next(loaded(dataset, iter([torch.tensor([3, 1])]), 0))
    [tensor([3, 1]), tensor([1, 1])]
    """
    positions = (rows.tolist() for rows in drawn)
    own = torch.Generator().manual_seed(0)  # else the global one would be read
    return iter(DataLoader(dataset, batch_sampler=positions, num_workers=workers, generator=own))


def moved(tree: Any, device: torch.device) -> Any:
    """The same tensors on another device.

    >>> moved({"a": torch.ones(1)}, torch.device("meta"))["a"].device.type
    'meta'
    """
    leaves, rebuilt = flattened(tree)
    return rebuilt([leaf.to(device) for leaf in leaves])


def called(model: nn.Module, inputs: Any) -> Any:
    """The model's output: a dict's entries are given by name, a tuple's or list's one after the other.

    >>> called(nn.Bilinear(2, 3, 1), (torch.rand(5, 2), torch.rand(5, 3))).shape
    torch.Size([5, 1])
    """
    if isinstance(inputs, dict):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)) and not hasattr(inputs, "_fields"):
        return model(*inputs)
    return model(inputs)


def check_records(inputs: Any, targets: Any, kinds: tuple[type, ...] = (Tensor,)) -> None:
    """Refuse what isn't tensors (or tuples, lists, dicts or dataclasses of them) with one row for each record.

    >>> check_records(torch.rand(3, 2), torch.rand(3))
    """
    shapes = {}
    for name, tree in {"inputs": inputs, "targets": targets}.items():
        leaves = flattened(tree)[0]
        held = bool(leaves) and all(isinstance(leaf, kinds) for leaf in leaves)
        domain.require(
            name,
            tree,
            held,
            "a tensor whose first dimension is the record, or a tuple or dict of such",
        )
        shapes[name] = [tuple(leaf.shape) for leaf in leaves]
    rows = {shape[:1] for found in shapes.values() for shape in found}
    if () in rows or len(rows) > 1:
        shown = {name: ", ".join(map(str, found)) for name, found in shapes.items()}
        raise ValueError(
            f"inputs has shape {shown['inputs']} and targets {shown['targets']}:"
            " the first dimension is the record; give one target for each input"
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
    if (
        c == 1
    ):  # any layout is channels-last then; convolution looks at the strides, so say it there
        return x.contiguous().as_strided(x.shape, (h * w, 1, w, 1))
    return x.contiguous(memory_format=torch.channels_last)
