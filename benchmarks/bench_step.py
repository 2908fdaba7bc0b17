"""One private step of the tutorial network, batch 256, beside plain SGD and Opacus.

    python benchmarks/bench_step.py    # the table: medians and ratios of 40 rounds, all paired

In each round every contestant makes one step, one after another, so that other work on the machine
disturbs all alike. `cases` gives the same contestants to `make bench`.

The floor is a forward and a backward pass, the row "plain, channels-last" without its weight
gradients. What private training adds: the copy of the image patches, one product per record and
layer (the norms), one weighted sum.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from dpteach.clipping import channels_last, keep_freed_memory
from dpteach.mnist import tutorial_cnn
from dpteach.run import NoisySGD
from dpteach.training import noisy_step

BATCH, ROUNDS = 256, 40
RUN = NoisySGD(n=60000, batch_size=BATCH, steps=1, noise_multiplier=1.3, clip_norm=1.5)


def _batch():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(BATCH, 1, 28, 28, generator=generator)
    return x, torch.randint(10, (BATCH,), generator=generator)


def plain(model, x, y):
    """A step of plain SGD as a PyTorch user writes it."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.25)

    def step():
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()

    return step


def private(model, x, y, engine):
    noise = torch.Generator().manual_seed(0)
    return lambda: noisy_step(model, F.cross_entropy, x, y, RUN, 0.25, noise, engine=engine)


def opacus_hooks(model, x, y):
    """Opacus: per-sample gradients by hooks."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model = GradSampleModule(model)
    optimiser = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.25),
        noise_multiplier=1.3,
        max_grad_norm=1.5,
        expected_batch_size=BATCH,
    )

    def step():
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()

    return step


def opacus_ghost(model, x, y):
    """Opacus: ghost clipping, two backward passes."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    model = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.5, use_ghost_clipping=True)
    optimiser = DPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), lr=0.25),
        noise_multiplier=1.3,
        max_grad_norm=1.5,
        expected_batch_size=BATCH,
    )
    criterion = DPLossFastGradientClipping(model, optimiser, nn.CrossEntropyLoss())

    def step():
        optimiser.zero_grad()
        criterion(model(x), y).backward()
        optimiser.step()

    return step


def cases():
    keep_freed_memory()
    x, y = _batch()
    net = tutorial_cnn(torch.Generator().manual_seed(0))
    fresh = lambda: copy.deepcopy(net)  # noqa: E731
    last = fresh().to(memory_format=torch.channels_last)
    yield "plain", plain(fresh(), x, y)
    yield "plain, channels-last", plain(last, channels_last(x), y)
    for engine in ("fast", "vmap"):
        yield f"private, {engine}", private(fresh(), x, y, engine)
    try:
        import opacus  # noqa: F401
    except ImportError:
        return
    yield "Opacus, hooks", opacus_hooks(fresh(), x, y)
    yield "Opacus, ghost clipping", opacus_ghost(fresh(), x, y)


def paired(contestants, rounds=ROUNDS):
    """Median time of one step in ms, for each contestant, from interleaved rounds."""
    for step in contestants.values():
        for _ in range(3):
            step()
    times = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, step in contestants.items():
            started = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - started)
    return times


def main():
    times = paired(dict(cases()))
    medians = {name: 1e3 * statistics.median(values) for name, values in times.items()}
    print(f"{'one step, batch 256':<26}{'median ms':>10}{'of plain':>10}{'of tuned':>10}")
    for name, median in medians.items():
        ratios = [
            statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))
            for base in ("plain", "plain, channels-last")
        ]
        print(f"{name:<26}{median:10.1f}{ratios[0]:10.2f}{ratios[1]:10.2f}")


if __name__ == "__main__":
    sys.exit(main())
