"""Correlated noise for a trainer: w = C⁻¹ z from a ring of earlier noise (chapter 23).

The law of the noise, its sensitivity and the guarantee are in `dpteach.correlated`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from dpteach import domain

__all__ = ["CorrelatedNoise"]


class CorrelatedNoise:
    """A source of noise w_t = (z_t - Σ_{i≥1} c_i w_{t-i})/c_0, z_t independent N(0, std²).

    Parameters
    ----------
    coefficients : c_0, c_1, …, for example `dpteach.correlated.prefix_root(bands)`.
    generator : where z comes from; secret, as w is.
    std : standard deviation of z: noise_multiplier · clip_norm for a clipped sum.

    Called with tensors it returns noise of their shapes, one list a step. It keeps the last
    bands - 1 of these lists: memory (bands - 1)·d for d parameters. With one band the noise is
    that of noisy SGD, to the bit.

    >>> noise = CorrelatedNoise([1.0, 0.5], torch.Generator().manual_seed(0))
    >>> first, second = noise([torch.zeros(2)]), noise([torch.zeros(2)])
    >>> z = torch.randn(2, 2, generator=torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(second[0], z[1] - 0.5 * z[0]))
    True
    """

    def __init__(
        self, coefficients: ArrayLike, generator: torch.Generator, std: float = 1.0
    ) -> None:
        c = domain.numbers("coefficients", coefficients)
        domain.require("coefficients", coefficients, c.ndim == 1 and c[0] > 0, "a list, c_0 > 0")
        self.coefficients = c.tolist()
        self.generator = generator
        self.std = domain.number("std", std, "(0, 1e12]", "noise_multiplier · clip_norm")
        self.ring: deque[list[Tensor]] = deque(maxlen=len(self.coefficients) - 1)  # newest first

    def __call__(self, like: Sequence[Tensor]) -> list[Tensor]:
        noise = [
            torch.normal(0.0, self.std, tensor.shape, generator=self.generator,
                         dtype=tensor.dtype, device=tensor.device)
            for tensor in like
        ]  # fmt: skip
        first, *others = self.coefficients
        for c, earlier in zip(others, self.ring, strict=False):
            for w, before in zip(noise, earlier, strict=True):
                w.sub_(before, alpha=c)
        if first != 1:
            for w in noise:
                w.div_(first)
        self.ring.appendleft(noise)
        return [w.clone() for w in noise]
