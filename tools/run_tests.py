"""Everything that must hold before a change is taken: style, a strict build, tests, notebooks.

The notebooks come first, and what they printed goes into the pages: no chapter runs twice, and the
accuracy tests read the training's result in .cache. The last line counts what passed and what
failed.
"""

import re
import subprocess
import sys
import time

from chromium import missing
from frame import ROOT, environment

PYTEST = ["-m", "pytest", "-n", "2", "--dist", "loadscope", "-q"]
NBVAL = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout", "900", "tests/notebooks"]
STAGES = [
    ("style (ruff)", ["-m", "ruff", "check", "."]),
    ("notebooks", PYTEST + NBVAL),
    ("strict build of the book", ["tools/build_book.py", "--fresh"]),
    ("tests, docstring examples and guards",
     [*PYTEST, "--durations", "20", "tests", "dpteach", "README.md"]),
]
COUNT = re.compile(r"(\d+) (passed|failed|errors?)\b")


def run(command):
    """Run one stage, showing its output as it comes; returns its exit code and its lines."""
    lines = []
    with subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment(), text=True,
                          errors="replace", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        while text := process.stdout.readline():
            print(text, end="", flush=True)
            lines.append(text)
    return process.returncode, lines


def counts(code, lines):
    """How many passed and failed, from pytest's closing line; a stage without one counts as 1."""
    closing = next((line for line in reversed(lines) if " in " in line and COUNT.search(line)), "")
    found = COUNT.findall(closing)
    passed = sum(int(n) for n, word in found if word == "passed")
    failed = sum(int(n) for n, word in found if word != "passed")
    if not found:
        return (1, 0) if code == 0 else (0, 1)
    return passed, failed or int(code != 0)


def main():
    started = time.monotonic()
    total = [0, 0]
    for number, (what, command) in enumerate(STAGES, 1):
        print(f"\n=== {number}/{len(STAGES)}: {what}", flush=True)
        begun = time.monotonic()
        passed, failed = counts(*run(command))
        total = [total[0] + passed, total[1] + failed]
        print(f"=== {what}: {'ok' if not failed else 'FAILED'} "
              f"({time.monotonic() - begun:.0f} s)", flush=True)
    if missing():
        print(f"\n{'!' * 100}\n{missing()}\n{'!' * 100}")
    print(f"\n{total[0]} passed, {total[1]} failed in {time.monotonic() - started:.0f} s")
    sys.exit(bool(total[1]))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Run it again: what was built and trained is kept.")
