"""Algorithm 1 on several processes (`torch.distributed`, gloo), and nothing about its privacy changed.

At each step every rank draws the same batch from the same seeded stream, over all n records, by
the sampler that the run is accounted with. A rank clips its own part of the batch, record by
record. The clipped sums are added up over the ranks. Then every rank draws the same noise, *once*
for the whole sum, and makes the same update. So k ranks are the one mechanism of
`dpteach.training`, whatever k is.

    torchrun --standalone --nproc-per-node 2 -m dpteach.training.distributed 40

A sum from which a rank is missing is never used: the step fails with `LostRank`, and θ stays as it
was after the step before.

Not for: ranks that don't trust one another, or a network that somebody listens to. Each rank sees
the others' sums without noise, and knows the seed. Gloo encrypts nothing.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from dpteach import domain, training
from dpteach.run import RUN_EXAMPLE, NoisySGD
from dpteach.training import mnist, preparation, sampling
from dpteach.training.clipping import Loss, clipped_sum, trainable
from dpteach.training.records import flattened, length, take

__all__ = ["LostRank", "distributed_step", "launch", "part", "train_distributed"]


class LostRank(RuntimeError):
    """The sum over the ranks isn't whole: a rank died, fell silent, or left records out."""


def part(drawn: Tensor, rank: int, size: int, shard: range | None = None) -> Tensor:
    """What one rank takes of a drawn batch: positions in that rank's own inputs.

    Parameters
    ----------
    drawn : int64 (batch,), positions in all n records, as the sampler returns them.
    shard : None when each rank holds all the records: then the batch is cut into `size` parts that
        differ by one record at most. Else the positions that this rank holds: it takes those drawn
        from them, however many they are.

    >>> drawn = torch.tensor([0, 3, 4, 8, 9])
    >>> [part(drawn, rank, 2).tolist() for rank in (0, 1)]
    [[0, 3, 4], [8, 9]]
    >>> [part(drawn, 0, 3, shard).tolist() for shard in (range(0, 5), range(5, 8), range(8, 10))]
    [[0, 3, 4], [], [0, 1]]
    """
    size = domain.whole_number("size", size, "[1, 1e5]", "the number of ranks")
    rank = domain.whole_number("rank", rank, f"[0, {size - 1}]", "ranks are counted from 0")
    domain.require(
        "drawn",
        drawn,
        isinstance(drawn, Tensor) and drawn.ndim == 1,
        "a tensor (batch,) of positions",
    )
    if shard is None:
        return drawn.tensor_split(size)[rank]
    domain.instance("shard", shard, range, "range(0, 30000)")
    return drawn[(drawn >= shard.start) & (drawn < shard.stop)] - shard.start


def distributed_step(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, drawn: int,
    run: NoisySGD, learning_rate: float, noise: torch.Generator, **options: Any
) -> int:  # fmt: skip
    """`dpteach.training.noisy_step` with the clipped sum added up over all ranks.

    Sum and number of records travel in one vector: they arrive together or not at all. Returns the
    number of records left out on any rank because their gradient wasn't finite. Raises `LostRank`,
    before θ is touched, when the sum isn't that of `drawn` records.

    Parameters
    ----------
    inputs, targets : this rank's part of the batch, which may be empty.
    drawn : how many records all parts hold together.
    noise : in the same state on every rank, so that all add the same noise, once.
    options : engine and microbatch, see `dpteach.training.clipping.clipped_sum`.
    """
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    drawn = domain.whole_number(
        "drawn", drawn, "[0, inf)", "the number of records in all parts together"
    )
    clipped = clipped_sum(model, loss, inputs, targets, run.clip_norm, **options)
    counts = clipped.gradients[0].new_tensor([length(inputs), clipped.skipped])  # exact up to 2^24
    total = torch.cat([*(g.flatten() for g in clipped.gradients), counts])
    try:
        dist.all_reduce(total)
    except RuntimeError as error:  # gloo: a connection was closed, or time is up
        who = f"rank {dist.get_rank()} of {dist.get_world_size()}"
        raise LostRank(
            f"{who} can't get the others' sums, so no step is made: start all ranks again"
        ) from error
    *sums, counts = torch.split(total, [*(g.numel() for g in clipped.gradients), 2])
    if int(counts[0]) != drawn:
        raise LostRank(
            f"{drawn} records were drawn, but the ranks' parts hold {int(counts[0])}: no step is made"
        )
    totals = [
        flat.view_as(theta) for flat, theta in zip(sums, trainable(model).values(), strict=True)
    ]
    training.update(model, totals, run, learning_rate, noise)
    return int(counts[1])


def train_distributed(
    model: nn.Module, run: NoisySGD, inputs: Any, targets: Any, *, learning_rate: Any, seed: int,
    loss: Loss = F.cross_entropy, shard: range | None = None, stop_after: int | None = None,
    **options: Any,
) -> training.Training:  # fmt: skip
    """`dpteach.training.train` by all ranks of the process group together: the same θ on each, to the bit.

    Each rank calls it with the same arguments. With `shard`, `inputs` and `targets` are the records
    at these positions of the n, and the ranks' shards must cover each position exactly once: a record
    that two ranks hold would count twice, with sensitivity 2C. A shard may be empty. `options` are
    engine and microbatch.

    One rank gives θ of `train` to the bit, more ranks up to the rounding of the sum. (With dropout
    the masks differ: they're drawn for each part.) Evaluation is the caller's, after the training.

    Raises `ValueError` on every rank when the ranks were given different runs, seeds or learning
    rates, or shards that overlap or leave a gap. Raises `LostRank` when a rank is lost on the way.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    domain.instance("run", run, NoisySGD, RUN_EXAMPLE)
    held = _length("inputs", inputs), _length("targets", targets)
    seed = domain.whole_number("seed", seed, "[0, inf)")
    domain.require(
        "run.n", run.n, run.n is not None, "known", "give n and batch_size, not the rate"
    )
    eta = preparation.learning_rates(learning_rate, None)
    steps = preparation.steps_to_make(run, stop_after)
    example = "range(0, 30000)"
    first = domain.instance("shard", shard, range, example).start if shard is not None else 0
    ends = eta(0), eta(max(run.steps - 1, 0))
    facts = (preparation.facts_of(run), seed, *ends, steps, shard is None)
    _agree(facts, (first, first + held[0], first + held[1]))
    model = preparation.prepared(model)
    device = preparation.device_of(model)
    for theta in trainable(model).values():
        dist.broadcast(theta.data, 0)
    (batches, noise, layers), skipped = preparation.streams(seed), 0
    with preparation.lent_generators(device):
        if held[0]:
            one = take((inputs, targets), torch.tensor([0]), device)
            preparation.rehearse(model, loss, one, options.get("engine", "fast"))
        for t in range(steps):
            preparation.seed_layers(
                device, layers + t * size + rank
            )  # dropout: another mask for each part
            drawn = sampling.draw(run, batches, t)
            batch = take((inputs, targets), part(drawn, rank, size, shard), device)
            step = training.facts_of_step(run, t)
            skipped += distributed_step(
                model,
                loss,
                *batch,
                len(drawn),
                step,
                eta(t),
                noise,
                **options,  # type: ignore[call-arg]
            )
    return training.Training(run, seed, steps, (), model, skipped)


def _length(name: str, tree: Any) -> int:
    """Number of records in tensors, tuples or dicts of them, perhaps 0."""
    leaves = flattened(tree)[0]
    lengths = {leaf.shape[:1] for leaf in leaves if isinstance(leaf, Tensor)}
    right = len(lengths) == 1 and () not in lengths
    domain.require(name, tree, right, "a tensor whose first dimension is the record")
    return int(lengths.pop()[0])


def _agree(facts: tuple, held: tuple[int, int, int]) -> None:
    """Compare what all ranks were given. Every rank raises the same error, so that none is left waiting."""
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (facts, held))
    for rank, (theirs, _) in enumerate(everyone):
        if theirs != everyone[0][0]:
            raise ValueError(
                f"rank {rank} was given {theirs}, rank 0 {everyone[0][0]}: give all ranks the same"
            )
    copies = len(everyone) if facts[-1] else 1  # without shards every rank holds everything
    spans = sorted(held for _, held in everyone if held[1:] != held[:2])[::copies]
    edges = [0, *(edge for start, stop, _ in spans for edge in (start, stop)), facts[0]["n"]]
    if edges[::2] != edges[1::2] or any(inputs != targets for _, inputs, targets in spans):
        raise ValueError(
            f"inputs and targets at {spans} must cover the positions 0 to {edges[-1]} once, without a gap"
        )


_WORKER = """
import datetime, faulthandler, json, os, sys
faulthandler.dump_traceback_later({timeout}, exit=True)
import torch.distributed as dist, dpteach.training.distributed
store, rank, seconds = dist.FileStore(sys.argv[1], {size}), int(sys.argv[2]), datetime.timedelta(seconds=1)
store.set(f"rank {{rank}}", "has imported everything")
store.wait([f"rank {{r}}" for r in range({size})], {timeout} * seconds)
dist.init_process_group("gloo", store=store, rank=rank, world_size={size}, timeout={patience} * seconds)
result = json.dumps({name}(rank, {size}, *json.loads({sent!r})))
print("\\nresult", result, flush=True)
os._exit(0)  # gloo's threads may abort an ordinary exit when a peer is gone
"""


def launch(
    worker: Any, size: int, *args: Any, timeout: float = 120, patience: float = 30, lost: tuple = ()
) -> list:
    """`worker(rank, size, *args)` in `size` processes on this machine; the results in the order of ranks.

    The processes meet through a file and talk over the loopback device: no port has to be free.

    Parameters
    ----------
    worker : a function that imports what it needs, and takes and returns what JSON can hold: numbers,
        texts, lists and dicts of these (tuples arrive as lists, a dict's keys as texts). It's sent as
        source text, since a notebook's function can't be imported elsewhere. Each process has one
        thread, and is in the process group. What it prints isn't shown.
    timeout : seconds after which a process that still runs ends itself, saying where it was.
    patience : seconds that a rank waits for the others in one exchange.
    lost : ranks that may end without a result; it's None then. Others that do are a `RuntimeError` with
        each one's last words, first of those that haven't just lost a connection.

    Raises `ValueError` for an argument that JSON can't hold.

    >>> def worker(rank, size, number):
    ...     import torch
    ...     total = torch.tensor(number + rank)
    ...     torch.distributed.all_reduce(total)
    ...     return total.item()
    >>> launch(worker, 2, 10)
    [21, 21]
    """
    domain.instance(
        "worker",
        worker,
        FunctionType,
        "a function worker(rank, size) with its source in a file or cell",
    )
    size = domain.whole_number("size", size, "[1, 1024]", "one process for each rank")
    domain.instance("lost", lost, tuple, "(1,)")
    timeout, patience = (
        domain.number("timeout", timeout, "(0, 1e6]"),
        domain.number("patience", patience, "(0, 1e6]"),
    )
    sent = f"[{', '.join(_as_json(f'args[{i}]', value) for i, value in enumerate(args))}]"
    facts = {
        "name": worker.__name__,
        "sent": sent,
        "size": size,
        "timeout": timeout,
        "patience": patience,
    }
    source = textwrap.dedent(inspect.getsource(worker)) + _WORKER.format(**facts)
    popen = partial(subprocess.Popen, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": _loopback()}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", source, f"{folder}/store"]
        processes = [popen([*command, str(rank)], env=environment) for rank in range(size)]
        with ThreadPoolExecutor(
            size
        ) as readers:  # all at once: a full pipe would hold up its writer
            spoken = list(readers.map(lambda process: process.communicate(), processes))
    results, failed = [], {}
    for rank, (process, (printed, errors)) in enumerate(zip(processes, spoken, strict=True)):
        _, found, result = printed.rpartition("\nresult ")  # behind what the worker printed itself
        results.append(json.loads(result) if found and not process.returncode else None)
        if rank not in lost and (process.returncode or not found):
            failed[rank] = errors.strip()[-600:]
    if failed:
        first = sorted(failed, key=lambda rank: any(word in failed[rank] for word in _ONLY_LOST))
        said = [
            f"rank {r} of {size} ended without a result (given {timeout:g} s): {failed[r]}"
            for r in first
        ]
        raise RuntimeError("\n".join(said))
    return results


_ONLY_LOST = ("LostRank", "gloo", "Connection", "peer")  # said by a rank that didn't fail itself


def _as_json(name: str, value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        shown = textwrap.shorten(repr(value), 60)
        raise ValueError(
            f"{name} = {shown} can't be sent as JSON: give numbers, texts, lists or dicts"
        ) from error


def _loopback() -> str:
    return "lo0" if sys.platform == "darwin" else "lo"


def _main() -> None:
    """What `torchrun` starts on each rank: the first steps of chapter 15's fixed-size run. Rank 0 prints JSON."""
    if "RANK" not in os.environ or len(sys.argv) != 2:
        sys.exit(
            "start it with: torchrun --standalone --nproc-per-node 2 -m dpteach.training.distributed STEPS"
        )
    if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:  # one machine: stay inside it
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback())
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    run = NoisySGD(
        n=60000,
        batch_size=256,
        steps=3516,
        noise_multiplier=1.3,
        clip_norm=1.5,
        sampling="fixed-size",
    )
    data, model = mnist.load(), mnist.tutorial_cnn(torch.Generator().manual_seed(1))
    records, steps = (data.x_train, data.y_train), int(sys.argv[1])
    result = train_distributed(model, run, *records, learning_rate=0.25, seed=1, stop_after=steps)
    assert result.model is not None  # as after every training
    if dist.get_rank() == 0:
        norms = [p.double().norm().item() for p in result.model.parameters()]
        print(
            json.dumps(
                {"ranks": dist.get_world_size(), "steps": result.steps, "parameter_norms": norms}
            ),
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    _main()
