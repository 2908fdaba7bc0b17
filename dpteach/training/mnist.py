"""The full MNIST data, checked byte for byte, and the tutorial's convolutional network (chapter 15).

The package carries all 70,000 images, so that no chapter needs the network. They're kept as numpy
arrays in one file, whose SHA-256 is compared before anything is read from it. That the arrays are
those of the four published files is a test's business.

References: LeCun, Cortes and Burges, *The MNIST database of handwritten digits* (the data);
McMahan et al. 2018, *TensorFlow Privacy*, the MNIST tutorial (the network).
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from dpteach import domain

__all__ = ["DATA_FILE", "Mnist", "load", "tutorial_cnn"]

DATA_FILE = Path(__file__).with_name("data") / "mnist.npz"
SHA256 = "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64"
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
    path : where the package's file is; by default in the package.

    Raises `ValueError` if the file is missing or isn't the package's own to the byte. Nothing in the
    file is ever unpickled.

    >>> data = load()
    >>> tuple(data.x_train.shape), data.x_train.dtype, data.y_test[:3].tolist()
    ((60000, 1, 28, 28), torch.float32, [7, 2, 1])
    """
    if path is None:
        path = DATA_FILE
    path = Path(domain.instance("path", path, str | Path, "'mnist.npz'"))
    if not path.is_file():
        raise ValueError(f"{path}: there's no such file; it should hold MNIST: {_RESTORE}")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise ValueError(f"{path} isn't the package's MNIST file (its SHA-256 differs): {_RESTORE}")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return Mnist(
            _images(arrays["x_train"]), _labels(arrays["y_train"]),
            _images(arrays["x_test"]), _labels(arrays["y_test"]),
        )  # fmt: skip


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
    with torch.device(
        "meta"
    ):  # without numbers yet: PyTorch's own would come from its global generator
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
        nn.init.zeros_(theta) if theta.ndim == 1 else nn.init.xavier_uniform_(
            theta, generator=generator
        )
    return model
