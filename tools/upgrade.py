"""Pin the newest versions that fit together: `make upgrade`, then `make test`.

pip resolves the names in requirements.txt without their versions, for this Python, without installing anything. The
versions found are written into requirements.txt, where each pin keeps its reason, and into constraints.txt.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIN = re.compile(r"^([\w.-]+)==([\w.+]+)", re.M)
BELOW = {
    "jupyter-book": "2",  # version 2 reads another configuration
    "soupsieve": "3",     # version 3 refuses Python 3.11.0 to 3.11.4, Debian 12's among them
}


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def versions(report):
    """Newest versions by plain name, from pip's report: local parts such as +cpu left out."""
    found = (item["metadata"] for item in report["install"])
    return {plain(item["name"]): (item["name"], item["version"].split("+")[0]) for item in found}


def pinned_text(requirements, report):
    """requirements.txt with new versions; everything else stays."""
    newest = versions(report)
    return PIN.sub(lambda pin: f"{pin[1]}=={newest.get(plain(pin[1]), pin.groups())[1]}", requirements)


def constraints_text(constraints, report):
    """constraints.txt of all that was resolved, below the old file's heading."""
    heading = [line for line in constraints.splitlines() if line.startswith("#")]
    pins = (f"{name}=={version}" for _, (name, version) in sorted(versions(report).items()))
    return "\n".join([*heading, *pins, ""])


def resolve(requirements):
    """pip's report for the requirements' names."""
    names = [name for name, _ in PIN.findall(requirements) if name not in BELOW]
    names += [f"{name}<{version}" for name, version in BELOW.items()]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    done = subprocess.run([*command, *names], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"Nothing was changed: pip found no set of versions that fits.\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def main():
    requirements, constraints = ROOT / "requirements.txt", ROOT / "constraints.txt"
    before = requirements.read_text(encoding="utf-8")
    report = resolve(before)
    texts = pinned_text(before, report), constraints_text(constraints.read_text(encoding="utf-8"), report)
    for path, text in zip((requirements, constraints), texts, strict=True):
        path.write_text(text, encoding="utf-8")
    print("requirements.txt and constraints.txt hold the newest versions that fit. Now run: make test")
    print("To go back: git checkout requirements.txt constraints.txt")


if __name__ == "__main__":
    main()
