"""How a batch is drawn: the five ways of chapter 21, each in a few lines.

The sampler is part of the mechanism, so each analysis holds for one sampler only. `poisson`,
`fixed_size` and `truncated_poisson` draw every batch afresh; `random_allocation` and `shuffled`
draw a whole epoch at once.

The drawn indices, and the batch's size where it varies, are secret: the analyses assume that
they're never released. What may be used in the open is n, m, the number of batches in an epoch and
the largest batch size.

>>> generator = torch.Generator().manual_seed(1)
>>> fixed_size(10, 4, generator).tolist()
[0, 1, 3, 5]
>>> [len(poisson(10, 4, generator)) for _ in range(6)]
[5, 2, 3, 7, 3, 4]
"""

from __future__ import annotations

import numpy as np
import torch

from dpteach import domain
from dpteach.run import BY_EPOCHS, RUN_EXAMPLE, NoisySGD, Phases

__all__ = [
    "draw", "fixed_size", "poisson", "random_allocation", "shuffled", "truncated_poisson",
]  # fmt: skip


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


def truncated_poisson(
    n: int, batch_size: int, largest: int, generator: torch.Generator
) -> torch.Tensor:
    """Indices of one Poisson batch, or of a uniform subset of `largest` of them if there are more.

    Returns int64 (size,), ascending, size <= largest.

    >>> len(truncated_poisson(10, 9, 2, torch.Generator().manual_seed(0)))
    2
    """
    drawn = poisson(n, batch_size, generator)
    largest = domain.whole_number("largest", largest, f"[1, {n}]")
    if len(drawn) <= largest:
        return drawn
    return drawn[fixed_size(len(drawn), largest, generator)]


def random_allocation(n: int, batches: int, generator: torch.Generator) -> list[torch.Tensor]:
    """One epoch: each of n records goes into one of so many batches, uniformly, on its own.

    Returns int64 tensors, ascending; their sizes vary, and some may be empty.

    >>> [len(b) for b in random_allocation(10, 3, torch.Generator().manual_seed(0))]
    [2, 4, 4]
    """
    n, batches = _checked(n, batches, generator, "batches")
    places = (torch.rand(n, generator=generator, dtype=torch.float64) * batches).long()
    sizes = torch.bincount(places, minlength=batches).tolist()
    return list(places.argsort(stable=True).split(sizes))


def shuffled(n: int, batch_size: int, generator: torch.Generator) -> list[torch.Tensor]:
    """One epoch: a uniform order of the n records, cut into batches of exactly m = `batch_size`.

    Raises `ValueError` unless m divides n: a smaller last batch is another mechanism.

    >>> sorted(torch.cat(shuffled(6, 2, torch.Generator().manual_seed(0))).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    n, m = _checked(n, batch_size, generator)
    domain.require("n", n, n % m == 0, f"a multiple of {m}", "each batch has exactly m records")
    order = torch.rand(n, generator=generator, dtype=torch.float64).argsort()
    return [part.sort().values for part in order.split(m)]


def draw(run: NoisySGD | Phases, generator: torch.Generator, step: int = 0) -> torch.Tensor:
    """The batch of one step of a run, by the sampler that the run is accounted with.

    step : t = 0, 1, …; it matters where batches come by epochs. An epoch's batches follow from the
        generator's first seed and the epoch's number alone, so that any step can be drawn by
        itself. The other samplers take the generator's next numbers.

    Returns int64 indices, ascending. Raises `ValueError` when `run.n` isn't known.

    >>> from dpteach.run import NoisySGD
    >>> run = NoisySGD(n=6, batch_size=2, steps=1, noise_multiplier=1.0, sampling="fixed-size")
    >>> len(draw(run, torch.Generator().manual_seed(0)))
    2
    """
    phase = 0
    if isinstance(run, Phases):
        phase, step = run.place(step)
        run = run.runs[phase]
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    domain.require("run.n", run.n, run.n is not None, "known", "a batch is drawn from n records")
    domain.instance("generator", generator, torch.Generator, "torch.Generator().manual_seed(0)")
    n, m = run.n, run.batch_size
    if run.sampling in BY_EPOCHS:
        epoch, position = divmod(domain.steps(step), run.batches_per_epoch)
        own = _of_epoch(generator, epoch, phase)
        if run.sampling == "shuffled":
            return shuffled(n, m, own)[position]
        return random_allocation(n, run.batches_per_epoch, own)[position]
    if run.sampling == "truncated-poisson":
        return truncated_poisson(n, m, run.largest_batch, generator)
    return {"poisson": poisson, "fixed-size": fixed_size}[run.sampling](n, m, generator)


def _of_epoch(generator: torch.Generator, epoch: int, phase: int) -> torch.Generator:
    """A generator of the epoch's own: independent streams from one seed."""
    names = [generator.initial_seed(), epoch] + [phase] * (phase > 0)
    seed = np.random.SeedSequence(names).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(seed[0] >> 1))


def _checked(
    n: int, size: int, generator: torch.Generator, name: str = "batch_size"
) -> tuple[int, int]:
    domain.instance("generator", generator, torch.Generator, "torch.Generator().manual_seed(0)")
    n = domain.whole_number("n", n, "[1, 1e9]", "a draw holds n numbers of 8 bytes in memory")
    return n, domain.whole_number(name, size, f"[1, {n}]")
