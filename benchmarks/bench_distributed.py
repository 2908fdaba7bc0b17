"""Two ranks with one thread each against one process with two threads: the same private steps.

    python benchmarks/bench_distributed.py    # 40 rounds, paired; the ratio is printed

One step is everything that training does at each: drawing a batch of 256 from the 60,000 images,
clipping, adding up, noise, update. The two take turns in one process group, so that other work on
the machine disturbs both alike. While one process works alone the other rank waits, asleep, for the
next order. `cases` gives the same two to `make bench`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta

# Threads that wait by spinning take many times as long when the machine has other work; read when torch starts.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import torch
import torch.distributed as dist
import torch.nn.functional as F

from dpteach.run import NoisySGD
from dpteach.training import mnist, noisy_step, sampling
from dpteach.training.clipping import keep_freed_memory
from dpteach.training.distributed import distributed_step, part

ROUNDS, STEPS = 40, 3  # a round is a few steps of each
RUN = NoisySGD(n=60000, batch_size=256, steps=3516, noise_multiplier=1.3, clip_norm=1.5)


class Trainer:
    """The tutorial network, the data, and both streams; the same on each rank."""

    def __init__(self):
        keep_freed_memory()
        self.data = mnist.load()
        self.model = mnist.tutorial_cnn(torch.Generator().manual_seed(1))
        self.batches, self.noise = torch.Generator().manual_seed(2), torch.Generator().manual_seed(3)

    def alone(self):
        torch.set_num_threads(2)
        for _ in range(STEPS):
            drawn = sampling.draw(RUN, self.batches)
            x, y = self.data.x_train[drawn], self.data.y_train[drawn]
            noisy_step(self.model, F.cross_entropy, x, y, RUN, 0.25, self.noise)

    def together(self):
        torch.set_num_threads(1)
        for _ in range(STEPS):
            drawn = sampling.draw(RUN, self.batches)
            mine = part(drawn, dist.get_rank(), 2)
            x, y = self.data.x_train[mine], self.data.y_train[mine]
            distributed_step(self.model, F.cross_entropy, x, y, len(drawn), RUN, 0.25, self.noise)


def join(store, rank):
    """Enter the group of two; the second rank waits for the first at most ten minutes."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    store = dist.FileStore(store, 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(minutes=10))


def serve(store):
    """The second rank: wait for an order, work with the first, until it's told to end or the first is gone."""
    join(store, 1)
    trainer, order = Trainer(), torch.ones(1)
    try:
        while True:
            dist.broadcast(order, 0)
            if order == 0:
                return
            # Both draw the same batches: take over where the first rank's streams are.
            for stream in (trainer.batches, trainer.noise):
                state = stream.get_state()
                dist.broadcast(state, 0)
                stream.set_state(state)
            trainer.together()
    except RuntimeError:  # the first rank has ended
        return


def cases():
    folder = tempfile.TemporaryDirectory()
    store = f"{folder.name}/store"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    other = subprocess.Popen([sys.executable, __file__, "--serve", store], env=environment)
    join(store, 0)
    trainer = Trainer()

    def together():
        dist.broadcast(torch.ones(1), 0)
        for stream in (trainer.batches, trainer.noise):
            dist.broadcast(stream.get_state(), 0)
        trainer.together()

    try:
        yield f"one process, two threads, {STEPS} steps", trainer.alone
        yield f"two ranks, one thread each, {STEPS} steps", together
        yield f"ratio, {ROUNDS} rounds in turns", lambda: compare(trainer.alone, together)
    finally:
        dist.broadcast(torch.zeros(1), 0)
        other.wait(60)
        dist.destroy_process_group()
        folder.cleanup()


def compare(alone, together, rounds=ROUNDS):
    """Print the medians of one step and the median of the rounds' ratios."""
    times = []
    for number in range(rounds + 2):
        pair = []
        for contestant in (alone, together):
            started = time.perf_counter()
            contestant()
            pair.append(1e3 * (time.perf_counter() - started) / STEPS)
        times += [pair] if number >= 2 else []  # the first two warm up
    one, two = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(b / a for a, b in times)
    print(f"  one process, two threads: {one:.1f} ms a step; two ranks: {two:.1f} ms; ratio {ratio:.3f} (goal: 1.15)")


def main():
    for what, function in cases():
        if what.startswith("ratio"):
            function()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        sys.exit(main())
