"""How a batch is drawn: by independent coins, or as a uniform subset of exactly m records.

The sampler is part of the mechanism, so each analysis holds for one sampler only: the moments
accountant of Abadi et al. 2016 for `poisson`, C_p(f) of Dong, Roth and Su 2022 for `fixed_size`.
Both draw every batch afresh; neither goes through the data in epochs.

Not for: shuffling. A shuffled pass over the data is neither of the two, and it isn't offered here.

The drawn indices, and under Poisson sampling the batch's size as well, are secret: the analyses
assume that they're never released. What may be used in the open is n and m.

>>> generator = torch.Generator().manual_seed(1)
>>> fixed_size(10, 4, generator).tolist()
[0, 1, 3, 5]
>>> [len(poisson(10, 4, generator)) for _ in range(6)]
[5, 2, 3, 7, 3, 4]
"""

from __future__ import annotations

import torch

from dpteach import domain
from dpteach.run import RUN_EXAMPLE, NoisySGD

__all__ = ["draw", "fixed_size", "poisson"]


def poisson(n: int, batch_size: int, generator: torch.Generator) -> torch.Tensor:
    """Indices of one Poisson batch: each of n records enters with probability m/n, on its own.

    The size is Binomial(n, m/n), so it varies, and may be zero. m is `batch_size`, the expected
    size. Each coin is a 53-bit uniform number, so that its probability is m/n to 1e-16 rather than
    to float32's 6e-8.

    Returns int64 (size,), ascending. Raises `ValueError` unless 1 <= batch_size <= n <= 1e9.

    >>> poisson(3, 3, torch.Generator().manual_seed(0)).tolist()
    [0, 1, 2]
    """
    n, m = _checked(n, batch_size, generator)
    coins = torch.rand(n, generator=generator, dtype=torch.float64)
    return torch.nonzero(coins < m / n).flatten()


def fixed_size(n: int, batch_size: int, generator: torch.Generator) -> torch.Tensor:
    """Indices of one uniform subset of exactly m = `batch_size` of n records.

    The m smallest of n uniform 53-bit numbers: `torch.randperm` takes remainders of 32-bit
    numbers, and so prefers some records by about n/2^32.

    Returns int64 (m,), ascending. Raises `ValueError` unless 1 <= batch_size <= n <= 1e9.

    >>> fixed_size(5, 5, torch.Generator().manual_seed(0)).tolist()
    [0, 1, 2, 3, 4]
    """
    n, m = _checked(n, batch_size, generator)
    keys = torch.rand(n, generator=generator, dtype=torch.float64)
    return keys.topk(m, largest=False).indices.sort().values


def draw(run: NoisySGD, generator: torch.Generator) -> torch.Tensor:
    """One batch of a run (`dpteach.run.NoisySGD`), by the sampler that the run is accounted with.

    Returns int64 indices, ascending. Raises `ValueError` when `run.n` isn't known.

    >>> from dpteach.run import NoisySGD
    >>> run = NoisySGD(n=6, batch_size=2, steps=1, noise_multiplier=1.0, sampling="fixed-size")
    >>> len(draw(run, torch.Generator().manual_seed(0)))
    2
    """
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    if run.n is None or run.batch_size is None:
        raise ValueError("run.n = None isn't allowed: a batch can only be drawn from n records; give n and batch_size")
    sampler = {"poisson": poisson, "fixed-size": fixed_size}[run.sampling]
    return sampler(run.n, run.batch_size, generator)


def _checked(n: int, batch_size: int, generator: torch.Generator) -> tuple[int, int]:
    domain.instance("generator", generator, torch.Generator, "torch.Generator().manual_seed(0)")
    n = domain.whole_number("n", n, "[1, 1e9]", "a draw holds n numbers of 8 bytes in memory")
    return n, domain.whole_number("batch_size", batch_size, f"[1, {n}]")
