"""Feed broken data files and odd command lines to dpteach, guided by coverage: only documented errors may come out.

    make fuzz                                       # ten minutes: half data files, half command lines
    python tools/fuzz.py data --seconds 300         # one target; what has failed is kept in .cache/fuzz
    python tools/fuzz.py command --seconds 300
    python tools/fuzz.py data .cache/fuzz/data/crash-0123  # one input again

Needs atheris (Linux or macOS), which `make fuzz` installs. It isn't in requirements.txt, as no page and no test
asks for it. The inputs found so far stay in .cache/fuzz, so that a second call goes on from there. The counts of
`make fuzz` are kept in tests/fuzz.json, for the status page.

What counts as a finding. Data: anything but a `ValueError` of one line from `mnist.load`, or a file that isn't
MNIST accepted; a checkpoint that isn't whole accepted. Commands: anything but exit code 0, or 2 with one line on
stderr; an ε that's negative or NaN; a warning of Python's; more than a minute for one input.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / ".cache" / "fuzz"
RESULTS = ROOT / "tests" / "fuzz.json"

WORDS = ["account", "calibrate", "report", "train",
         "--convention", "add-remove", "replace-one", "--q", "--sigma", "--n",
         "--batch-size", "--epochs", "--steps", "--delta", "--epsilon", "--find", "sigma", "steps", "batch-size",
         "--guarantee", "tensor-power", "moments", "rdp", "clt", "edgeworth", "berry-esseen", "optimal-composition",
         "strong-composition", "--orders", "integer", "real", "--json", "--format", "md", "html", "json", "--unit",
         "--records-per-user", "--tuning-runs", "--clip-norm", "--learning-rate", "--seed", "--stop-after", "--help",
         "0", "1", "2", "10", "256", "3516", "60000", "0.01", "0.5", "1.3", "4", "1e-5", "1e-300", "1e300", "-1", "nan",
         "inf", "", "x", "0.1.2", "1_0", "٣", "--", "user"]  # fmt: skip
STARTS = [  # whole command lines, of which a part is then replaced
    "account --convention add-remove --q 0.01 --sigma 4 --steps 100 --delta 1e-5 --json",
    "account --convention replace-one --n 600 --batch-size 20 --epochs 2 --sigma 1.3 --delta 1e-3 --orders real",
    "calibrate --convention add-remove --q 0.01 --steps 50 --epsilon 2 --delta 1e-5 --guarantee moments --json",
    "calibrate --find steps --guarantee rdp --convention add-remove --q 0.01 --sigma 1.3 --epsilon 2 --delta 1e-5",
    "report --convention add-remove --n 6000 --batch-size 60 --epochs 1 --sigma 2 --clip-norm 1.5 --delta 1e-5",
    "report --convention replace-one --n 600 --batch-size 20 --steps 9 --sigma 1.3 --delta 1e-4 --unit user"
    " --records-per-user 2 --tuning-runs 4 --format html",
    "train --convention add-remove --sigma 1.3 --steps 5 --stop-after 0 --seed 1",
]


def command_line(data: bytes) -> list[str]:
    """A command line made of one of STARTS: bytes choose which of its words are replaced, left out or repeated."""
    words = STARTS[data[0] % len(STARTS)].split() if data else []
    for place, change in zip(data[1::2], data[2::2], strict=False):
        at = place % (len(words) + 1)
        if change < len(WORDS):
            words[at : at + 1] = [WORDS[change]]
        elif change < 160:
            words[at:at] = [WORDS[change % len(WORDS)]]
        elif change < 200:
            words[at : at + 1] = []
        else:
            words[at : at + 1] = [f"{10.0 ** ((change - 228) / 3):.3g}"]
    if "train" in words:  # training itself isn't the target: checked up to the first step
        words = [word for word in words if word != "--stop-after"] + ["--stop-after", "0"]
    return words


def try_command(data: bytes) -> None:
    """Run one command line; raises AssertionError for a finding."""
    from dpteach.__main__ import main

    words = command_line(data)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    lines = err.getvalue().splitlines()
    if code == 2:
        assert len(lines) == 1 and not out.getvalue(), (words, lines)
    else:
        assert code in (0, None), (words, code)
        assert "nan" not in out.getvalue().replace("finance", ""), words
        if "--json" in words and out.getvalue().startswith("{"):
            for row in json.loads(out.getvalue()).get("guarantees", []):
                ends = row["epsilon"] if isinstance(row["epsilon"], list) else [row["epsilon"]]
                assert all(end is None or end >= 0 for end in ends), (words, row)


def try_data(data: bytes) -> None:
    """Load one file as MNIST and as a checkpoint; raises AssertionError for a finding."""
    from dpteach.classroom import kept as _cache
    from dpteach.training import mnist

    path = Path(tempfile.gettempdir()) / f"dpteach-fuzz-{os.getpid()}"
    path.write_bytes(data)
    try:
        mnist.load(path)
    except ValueError as error:
        assert "\n" not in str(error) and str(path) in str(error), error
    else:
        raise AssertionError("a file that isn't MNIST was accepted")
    kept = _cache.load(path)
    assert kept is None or isinstance(kept, dict)
    assert path.read_bytes() == data, "the file was changed"


def seeds_of_data(folder: Path) -> None:
    """Small files of the right form: an archive that lacks only the right bytes, cut ones, a checkpoint."""
    import numpy as np
    import torch

    names = ("x_train", "y_train", "x_test", "y_test")
    for i, dtype in enumerate((np.uint8, np.float32, "U3")):
        np.savez(folder / f"small-{i}.npz", **{name: np.zeros((2, 3), dtype) for name in names})
        np.savez_compressed(folder / f"packed-{i}.npz", **{name: np.zeros((2, 3), dtype) for name in names[i:]})
    np.save(folder / "one.npy", np.zeros(3))
    torch.save({"step": 1, "model": {"w": torch.zeros(2)}}, folder / "checkpoint.pt")
    for path in list(folder.iterdir()):
        (folder / f"cut-{path.name}").write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def seeds_of_commands(folder: Path) -> None:
    for i in range(len(STARTS)):
        (folder / f"start-{i}").write_bytes(bytes([i]))
        (folder / f"other-{i}").write_bytes(bytes([i, 3, 60, 7, 205]))


TARGETS = {"data": (try_data, seeds_of_data), "command": (try_command, seeds_of_commands)}


def fuzz(target: str, folder: Path, arguments: list[str]) -> None:
    """Hand over to atheris, which doesn't come back."""
    import atheris
    import torch  # noqa: F401  (before: its own code isn't the target)

    for name in [name for name in sys.modules if name == "zipfile" or name.startswith("numpy.lib._")]:
        del sys.modules[name]  # imported already: once more, with counters
    with atheris.instrument_imports(include=["dpteach", "zipfile", "numpy.lib"]):
        import zipfile  # noqa: F401

        import dpteach.__main__
        import dpteach.training.mnist  # noqa: F401
    TARGETS[target][1](folder)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=ResourceWarning)
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
    atheris.Setup([sys.argv[0], str(folder), *arguments], TARGETS[target][0])
    atheris.Fuzz()


def record(seconds: int) -> bool:
    """Fuzz each target in a process of its own, keep the counts; returns whether nothing was found."""
    rows = {}
    for target in TARGETS:
        print(f"{target}: {seconds} s", flush=True)
        command = [sys.executable, __file__, target, "--seconds", str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        tried = re.search(r"number_of_executed_units: (\d+)", done.stderr)
        inputs = int(tried[1]) if tried else 0
        rows[target] = {"seconds": seconds, "inputs": inputs, "findings": int(done.returncode != 0)}
        print(f"  {inputs} inputs" + (done.stderr[-3000:] if done.returncode else ", nothing found"))
    RESULTS.write_text(json.dumps({"date": datetime.date.today().isoformat(), "targets": rows}, indent=1) + "\n")
    return not any(row["findings"] for row in rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=TARGETS, nargs="?", help="default: one after the other, half the time each")
    parser.add_argument("again", nargs="?", help="a file with one input, to be tried again")
    parser.add_argument("--seconds", type=int, default=600)
    asked = parser.parse_args()
    if asked.target is None:
        sys.exit(not record(asked.seconds // len(TARGETS)))
    if asked.again:
        TARGETS[asked.target][0](Path(asked.again).read_bytes())
        return
    folder = CORPUS / asked.target / "inputs"
    folder.mkdir(parents=True, exist_ok=True)
    fuzz(asked.target, folder, [
        f"-max_total_time={asked.seconds}", f"-artifact_prefix={CORPUS / asked.target}/",
        "-timeout=60", "-max_len=4096", "-print_final_stats=1", "-rss_limit_mb=6000",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
