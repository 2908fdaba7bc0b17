"""Make .venv and install the pinned packages; does nothing when they're already there.

Run by install.sh with the reader's own Python, so only the standard library is used.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "installed"
INPUTS = ("requirements.txt", "constraints.txt", "pyproject.toml")
NEEDED_GB = 2.5

CAUSES = [  # what pip or venv prints, and what it means
    (r"No space left on device|Errno 28|not enough free disk space",
     "The disk is full. Free about {gb} GB, or take PyTorch's smaller CPU-only wheel (README)."),
    (r"Temporary failure in name resolution|getaddrinfo|NewConnectionError"
     r"|Name or service not known|Network is unreachable|ConnectTimeout|ProxyError"
     r"|Failed to establish a new connection|ReadTimeout"
     r"|Connection refused|Connection reset|nodename nor servname",
     "The package index couldn't be reached. Check the network (or the proxy) and run it again: "
     "what's been installed is kept."),
    (r"ensurepip is not available|No module named venv|No module named ensurepip",
     "This Python has no venv module. On Debian or Ubuntu: sudo apt install python3-venv"),
    (r"Permission denied|Errno 13",
     "A file couldn't be written. Do you own this folder?"),
    (r"No matching distribution found|Could not find a version",
     "A pinned package has no build for this Python ({version}). Try Python 3.11, 3.12 or 3.13: "
     "make book PYTHON=/path/to/python3.12"),
]


def venv_python():
    """Path of the Python inside .venv, on Unix or Windows."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def fingerprint():
    """A hash of what decides the install: the pins, the Python, and where the folder lies."""
    digest = hashlib.sha256(str(ROOT).encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def is_installed():
    return STAMP.exists() and STAMP.read_text() == fingerprint() and venv_python().exists()


def plain_words(output):
    """The cause of a failed install in plain words, or an empty string."""
    for pattern, meaning in CAUSES:
        if re.search(pattern, output):
            return meaning.format(gb=NEEDED_GB, version=sys.version.split()[0])
    return ""


def run(command, what):
    """Run a command, showing its output as it comes; stop with the cause when it fails."""
    print(what, flush=True)
    lines = []
    with subprocess.Popen(command, cwd=ROOT, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        for line in process.stdout:
            lines.append(line)
            print("  " + line.rstrip()[:160], flush=True)
    if process.returncode:
        cause = plain_words("".join(lines))
        sys.exit(f"\nThe install stopped at: {what}\n{cause or 'See the last lines above.'}")


def make_venv():
    """Make .venv, or make it anew when an earlier attempt was cut short."""
    works = venv_python().exists() and subprocess.run(
        [venv_python(), "-c", "import sys, pip; sys.exit(sys.version_info < (3, 11))"],
        capture_output=True).returncode == 0
    if not works:
        run([sys.executable, "-m", "venv", "--clear", str(VENV)],
            f"Making .venv with Python {sys.version.split()[0]}")


def main():
    if is_installed():
        return
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < NEEDED_GB and not venv_python().exists():
        sys.exit(f"Only {free:.1f} GB are free here; the install needs about {NEEDED_GB} GB.")
    STAMP.unlink(missing_ok=True)
    make_venv()
    pip = [str(venv_python()), "-m", "pip", "install", "--disable-pip-version-check",
           "--progress-bar", "off", "-c", "constraints.txt"]
    run([*pip, "-r", "requirements.txt"], "Installing the pinned packages (a few minutes, once)")
    run([*pip, "--no-deps", "-e", "."], "Installing dpteach itself")
    run([str(venv_python()), "tools/frame.py"], "Preparing the fonts for figures")
    STAMP.write_text(fingerprint())


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Run it again to go on: what's been installed is kept.")
