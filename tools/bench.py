"""Run the benchmarks: every script in benchmarks/, each a module with a `cases()` function.

`cases()` yields (what, function) pairs; each function is run a few times and its best time printed.
A script with a `main()` of its own measures and prints itself.

    python tools/bench.py                # all
    python tools/bench.py accountants    # one script
"""

import importlib.util
import sys
import time

from frame import ROOT

REPEATS = 3


def load(path):
    """The benchmark script as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def best_time(function):
    """Least wall time of a few runs, in seconds: the one that other work disturbed least."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return min(times)


def main(names):
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        if names and path.stem not in names:
            continue
        print(path.stem)
        module = load(path)
        if hasattr(module, "main"):
            module.main()
            continue
        for what, function in module.cases():
            print(f"  {best_time(function) * 1e3:10.1f} ms  {what}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
