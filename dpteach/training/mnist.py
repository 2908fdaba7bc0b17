"""The full MNIST data, checked byte for byte, and the tutorial's convolutional network.

The package carries all 70,000 images, so that no chapter needs the network. They're kept as numpy
arrays; `load` rebuilds the four original IDX files in memory, headers included, and compares their
SHA-256 with the published files' before it returns anything. A wrong digit can't slip in.

References: LeCun, Cortes and Burges, *The MNIST database of handwritten digits* (the data);
McMahan et al. 2018, *TensorFlow Privacy*, the MNIST tutorial (the network).
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from dpteach import domain

__all__ = ["DATA_FILE", "Mnist", "load", "tutorial_cnn"]

DATA_FILE = Path(__file__).with_name("data") / "mnist.npz"

# array: (the IDX file it came from, that file's first number, its shape, that file's SHA-256)
_ARRAYS = {
    "x_train": ("train-images-idx3-ubyte", 2051, (60000, 28, 28),
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    "y_train": ("train-labels-idx1-ubyte", 2049, (60000,),
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "x_test": ("t10k-images-idx3-ubyte", 2051, (10000, 28, 28),
               "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    "y_test": ("t10k-labels-idx1-ubyte", 2049, (10000,),
               "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}  # fmt: skip
_RESTORE = "restore the file from the project's repository, or install dpteach again"


class Mnist(NamedTuple):
    """Images float32 (N, 1, 28, 28) in [0, 1], labels int64 (N,): 60,000 to train on, 10,000 to
    test.
    """

    x_train: torch.Tensor
    y_train: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor


def load(path: str | Path | None = None) -> Mnist:
    """The MNIST images and labels as tensors, after every byte has been checked.

    Parameters
    ----------
    path : an npz file with the arrays x_train, y_train, x_test, y_test; by default the package's
        own.

    Raises `ValueError` if the file is missing, cut, damaged or holds anything but MNIST, naming
    the file and the array. Nothing in the file is ever unpickled.

    >>> data = load()
    >>> tuple(data.x_train.shape), data.x_train.dtype, data.y_test[:3].tolist()
    ((60000, 1, 28, 28), torch.float32, [7, 2, 1])
    """
    path = DATA_FILE if path is None else Path(domain.instance("path", path, str | Path, "'mnist.npz'"))
    arrays = _read(path)
    for name, (idx_name, magic, shape, sha256) in _ARRAYS.items():
        array = arrays[name]
        if array.dtype != np.uint8 or array.shape != shape:
            raise ValueError(
                f"{path}: array {name!r} has type {array.dtype} and shape {array.shape};"
                f" MNIST's has uint8 and {shape}: {_RESTORE}"
            )
        if _idx_sha256(array, magic) != sha256:
            raise ValueError(
                f"{path}: array {name!r} isn't MNIST's {idx_name} (its SHA-256 differs), so bytes were"
                f" altered or arrays swapped: {_RESTORE}"
            )
    return Mnist(*(_images(arrays[n]) if n.startswith("x") else _labels(arrays[n]) for n in Mnist._fields))


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise ValueError(f"{path}: there's no such file; it should hold MNIST: {_RESTORE}")
    arrays = {}
    name = "the whole archive"
    try:
        with np.load(path, allow_pickle=False) as archive:
            for name in _ARRAYS:
                arrays[name] = archive[name]
    except KeyError:
        raise ValueError(f"{path}: array {name!r} is missing: {_RESTORE}") from None
    except Exception as error:  # whatever zipfile, zlib, numpy or the header's tokenizer make of a damaged file
        said = " ".join(str(error).split())
        raise ValueError(f"{path}: can't read {name} ({said}); the file is cut or damaged: {_RESTORE}") from None
    return arrays


def _idx_sha256(array: np.ndarray, magic: int) -> str:
    header = struct.pack(f">{1 + array.ndim}i", magic, *array.shape)
    return hashlib.sha256(header + array.tobytes()).hexdigest()


def _images(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).unsqueeze(1).to(torch.float32).div_(255)


def _labels(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).to(torch.int64)


def tutorial_cnn(generator: torch.Generator) -> nn.Sequential:
    """The 26,010-parameter network of the TensorFlow Privacy tutorial, for images (N, 1, 28, 28).

    Two convolutions with max-pooling, two dense layers, ten logits. Weights are Xavier-uniform
    (Keras' default) and drawn from `generator` alone; biases start at zero.

    >>> model = tutorial_cnn(torch.Generator().manual_seed(0))
    >>> sum(p.numel() for p in model.parameters())
    26010
    >>> model(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    domain.instance("generator", generator, torch.Generator, "torch.Generator().manual_seed(0)")
    with torch.device("meta"):  # without numbers yet: PyTorch's own would come from its global generator
        model = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=8, stride=2, padding=3),
            nn.ReLU(),
            nn.MaxPool2d(2, stride=1),
            nn.Conv2d(16, 32, kernel_size=4, stride=2),
            nn.ReLU(),
            nn.MaxPool2d(2, stride=1),
            nn.Flatten(),
            nn.Linear(512, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        )
    for theta in model.to_empty(device="cpu").parameters():
        nn.init.zeros_(theta) if theta.ndim == 1 else nn.init.xavier_uniform_(theta, generator=generator)
    return model
