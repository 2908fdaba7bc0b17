"""Peak memory of a whole training process: batches of 8,192 images in 2 GB.

    python benchmarks/bench_memory.py              # the table, which `make bench` prints too
    python benchmarks/bench_memory.py --record     # ... and keeps it in
    dpteach/classroom/data/memory.json python benchmarks/bench_memory.py 8192 256     # one process:
    batch and micro-batch (0: none); prints JSON

Each row is a process of its own, so the peak (what the operating system counts as resident) holds
everything: the interpreter, PyTorch, all 60,000 images, and two private steps on the tutorial
network. The goal is 2 GB, in units of 10^9 bytes.
"""

from __future__ import annotations

import datetime
import json
import platform
import resource
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "dpteach" / "classroom" / "data" / "memory.json"
BATCH, GOAL = 8192, 2e9
ROWS = (("fast", 256), ("fast", 1024), ("fast", 0), ("vmap", 256))


def steps(batch: int, microbatch: int, engine: str = "fast") -> dict[str, float]:
    """Two private steps of about `batch` records here, and this process's peak in bytes before and
    after them."""
    import torch

    from dpteach.run import NoisySGD
    from dpteach.training import mnist, train

    run = NoisySGD(n=60000, batch_size=batch, steps=2, noise_multiplier=1.3, clip_norm=1.5)
    data, model = mnist.load(), mnist.tutorial_cnn(torch.Generator().manual_seed(1))
    before = peak()
    options = {"engine": engine, "microbatch": microbatch or None}
    made = train(model, run, data.x_train, data.y_train, learning_rate=0.25, seed=1,
                 **options).steps
    return {"steps": made, "before": before, "peak": peak()}


def peak() -> int:
    """The most bytes that this process has had in memory so far.

    On Linux `ru_maxrss` isn't that: a program inherits it from the process that started it, so a
    small child of a large parent looks large. VmHWM starts anew with each program.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    kept = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kept if sys.platform == "darwin" else 1024 * kept


def measured(batch: int, microbatch: int, engine: str = "fast") -> dict[str, float]:
    """`steps` in a fresh process."""
    command = [sys.executable, __file__, str(batch), str(microbatch), engine]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True,
                                     timeout=900).stdout)


def main(arguments: tuple[str, ...] | list[str] = ()) -> None:
    print(f"peak memory of a process that makes two private steps, batch {BATCH} (goal "
          f"{GOAL / 1e9:g} GB)")
    rows = []
    for engine, microbatch in ROWS:
        found = measured(BATCH, microbatch, engine)
        rows.append({"engine": engine, "microbatch": microbatch} | found)
        parts = f"micro-batches of {microbatch}" if microbatch else "the whole batch"
        peak_gb, before = found["peak"] / 1e9, found["before"] / 1e9
        print(f"  {engine:<6}{parts:<24}{peak_gb:6.2f} GB, {before:.2f} before the first step")
    if "--record" in arguments:
        kept = {
            "what": f"peak resident bytes of a process that makes two private steps of batch "
                    f"{BATCH}",
            "command": "python benchmarks/bench_memory.py --record",
            "date": datetime.date.today().isoformat(),
            "versions": {"python": platform.python_version(), "torch": version("torch")},
            "rows": rows,
        }
        FILE.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].isdigit():
        print(json.dumps(steps(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])))
    else:
        main(sys.argv[1:])
