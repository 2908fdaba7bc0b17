"""One private step of the tutorial network, batch 256, beside plain SGD and Opacus.

    python benchmarks/bench_step.py            # the table, which `make bench` prints too
    python benchmarks/bench_step.py --record   # on one core; kept in
    dpteach/classroom/data/step-times.json

Opacus takes part in both layouts: as one usually writes it, and with images stored channels-last,
which is what our engine does by itself. The fair comparison is with the fastest of all four.

In each round every contestant makes one step, one after another, so that other work on the machine
disturbs all alike; ratios are medians of the rounds' own ratios. The loop over records is slow, so
it takes part in every eighth round only. What's recorded is processor time of one thread, which
other programs disturb least; the table alone is wall time with all cores.

The floor is what no per-record method on top of PyTorch avoids: a forward pass, and a backward pass
to the pre-activations, without weight gradients. What private training adds: the copy of the image
patches, one product per record and layer (the norms), one weighted sum, the noise.

Peak memory is that of the tensors a step allocates, beyond model and data, as PyTorch's profiler
counts them. It's the same each time. Scratch space inside oneDNN isn't counted, for anybody.
"""

from __future__ import annotations

import copy
import datetime
import json
import os
import platform
import statistics
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

import dpteach
from dpteach.run import NoisySGD
from dpteach.training import noisy_step
from dpteach.training.clipping import channels_last, keep_freed_memory
from dpteach.training.mnist import tutorial_cnn

BATCH, ROUNDS = 256, 40
SLOW = {"private, naive loop": 8}  # takes part in every so many rounds
PLAIN, TUNED = "plain", "plain, channels-last"
FILE = Path(dpteach.__file__).with_name("classroom") / "data" / "step-times.json"
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


def floor(model, x, y):
    """Forward, and backward to the pre-activations: no weight gradient, no update."""
    model.requires_grad_(False)

    def step():
        first = model[0](x).requires_grad_()
        torch.autograd.grad(F.cross_entropy(model[1:](first), y), first)

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
    """(name, function that makes one step) of each contestant; Opacus's only where it's
    installed."""
    warnings.filterwarnings("ignore", message="Full backward hook")  # of Opacus
    keep_freed_memory()
    x, y = _batch()
    net = tutorial_cnn(torch.Generator().manual_seed(0))
    fresh = lambda: copy.deepcopy(net)  # noqa: E731
    last = lambda: fresh().to(memory_format=torch.channels_last)  # noqa: E731
    yield PLAIN, plain(fresh(), x, y)
    yield TUNED, plain(last(), channels_last(x), y)
    yield "floor", floor(last(), channels_last(x), y)
    yield "private, fast", private(fresh(), x, y, "fast")
    yield "private, vmap", private(fresh(), x, y, "vmap")
    yield "private, naive loop", private(fresh(), x, y, "naive")
    try:
        import opacus  # noqa: F401
    except ImportError:
        return
    yield "Opacus, hooks", opacus_hooks(fresh(), x, y)
    yield "Opacus, ghost clipping", opacus_ghost(fresh(), x, y)
    yield "Opacus, hooks, channels-last", opacus_hooks(last(), channels_last(x), y)
    yield "Opacus, ghost, channels-last", opacus_ghost(last(), channels_last(x), y)


def paired(contestants, clock=time.perf_counter, rounds=ROUNDS):
    """Seconds of each contestant's steps, by round: {name: {round: seconds}}."""
    for name, step in contestants.items():
        for _ in range(1 if name in SLOW else 3):
            step()
    times = {name: {} for name in contestants}
    for turn in range(rounds):
        for name, step in contestants.items():
            if turn % SLOW.get(name, 1) == 0:
                started = clock()
                step()
                times[name][turn] = clock() - started
    return times


def ratio(times, name, base):
    """Median over the rounds of name's time by base's in the same round."""
    return statistics.median(t / times[base][turn] for turn, t in times[name].items())


def peak_bytes(step):
    """Most bytes of tensors alive at once that one step allocated."""
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    alive = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return peak


def measure(one_core=False):
    """Every contestant's median time, its ratios and peak memory, and where that was measured."""
    clock, what = time.perf_counter, "wall time"
    if one_core:
        torch.set_num_threads(1)
        clock, what = time.process_time, "processor time"
    contestants = dict(cases())
    load = os.getloadavg()[0]
    times = paired(contestants, clock)
    cpu = [
        line.split(":")[1].strip()
        for line in open("/proc/cpuinfo")
        if line.startswith("model name")
    ]
    steps = {
        name: {
            "ms": round(1e3 * statistics.median(times[name].values()), 1),
            "of_plain": round(ratio(times, name, PLAIN), 3),
            "of_tuned": round(ratio(times, name, TUNED), 3),
            "peak_mb": round(peak_bytes(step) / 1e6, 2),
            "rounds": len(times[name]),
        }
        for name, step in contestants.items()
    }
    packages = ["torch"] + ["opacus"] * any("Opacus" in name for name in steps)
    return {
        "what": f"one step of the tutorial network, batch {BATCH}: median {what}, median ratios of "
        f"paired rounds",
        "command": "python benchmarks/bench_step.py --record",
        "date": datetime.date.today().isoformat(),
        "machine": f"{cpu[0] if cpu else platform.processor()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "versions": {"python": platform.python_version()} | {p: version(p) for p in packages},
        "steps": steps,
    }


def table(measured):
    """The measurements as text; the last lines are the goals this project set itself."""
    steps = measured["steps"]
    yield measured["what"]
    yield f"{'':<30}{'median ms':>10}{'of plain':>10}{'of tuned':>10}{'peak MB':>10}"
    for name, s in steps.items():
        columns = f"{s['ms']:10.1f}{s['of_plain']:10.2f}{s['of_tuned']:10.2f}{s['peak_mb']:10.1f}"
        yield f"{name:<30}{columns}"
    fast = steps["private, fast"]
    opacus = min(
        (s["of_plain"] for name, s in steps.items() if "Opacus" in name), default=float("nan")
    )
    yield (
        f"private, fast: {fast['of_tuned']:.2f} of tuned (goal 1.3),"
        f" {fast['of_plain'] / opacus:.2f} of the best Opacus in its best layout (0.5),"
        f" memory {fast['peak_mb'] / steps[PLAIN]['peak_mb']:.2f} of plain (1.3)"
    )
    yield (
        f"{measured['machine']}, {measured['threads']} threads, load average"
        f" {measured['load'][0]} before and {measured['load'][1]} after"
    )


def main(arguments=()):
    measured = measure(one_core="--record" in arguments)
    print(*table(measured), sep="\n", flush=True)
    if "--record" in arguments:
        FILE.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
