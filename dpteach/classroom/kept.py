"""Results of long computations, kept on disk under a hash of what they depend on.

A build, the notebook tests and the accuracy tests all need the same trained model. The first to
ask trains it, the others read it. A change in the code that matters, or in the parameters, is
another hash and so another file.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

if sys.platform != "win32":
    import fcntl

__all__ = ["cached", "folder", "load", "save"]


def folder() -> Path:
    """Where results are kept: $DPTEACH_CACHE, or dpteach's folder in the user's cache folder."""
    given = os.environ.get("DPTEACH_CACHE")
    base = os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given or Path(base) / "dpteach").expanduser().absolute()


def cached(
    name: str,
    parameters: dict[str, Any],
    modules: tuple[str, ...],
    compute: Callable[[], dict[str, Any]],
    *,
    patience: float = 1800.0,
) -> dict[str, Any]:
    """`compute()`, or what it returned before for the same parameters and the same code.

    modules : names of the source files of `dpteach` that the result depends on. PyTorch's version
        counts too.
    patience : seconds to wait for another process that computes the same; after that it's computed
        here as well.

    Safe with several processes, and when any of them is killed: a result is written aside and then
    renamed, and a lock is the operating system's, which lets go of it when its holder dies. A
    damaged file is computed again.
    """
    path = folder() / f"{name}-{_key(parameters, modules)}.pt"
    result = load(path)
    if result is None:
        with _lock(path.with_suffix(".lock"), patience):
            result = load(path)
            if result is None:
                result = compute()
                save(path, result)
    return result


def _key(parameters: dict[str, Any], modules: tuple[str, ...]) -> str:
    digest = hashlib.sha256(torch.__version__.encode())
    digest.update(json.dumps(parameters, sort_keys=True).encode())
    for module in modules:
        digest.update(_code((Path(__file__).parents[1] / f"{module}.py").read_text("utf-8")).encode())
    return digest.hexdigest()[:16]


def _code(source: str) -> str:
    """The syntax tree without docstrings: a comment or a line break more isn't another program."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            if isinstance(body[0].value, ast.Constant):
                del body[0]
    return ast.dump(tree)


def load(path: Path) -> dict[str, Any] | None:
    """What `save` wrote, or None if there's no whole file. Only tensors and plain Python values
    are read.
    """
    try:
        kept = torch.load(path, weights_only=True)
    except Exception:  # whatever a missing or a damaged file provokes
        return None
    return kept if isinstance(kept, dict) else None


def save(path: Path, result: dict[str, Any]) -> None:
    """Write a dict of tensors and plain values so that at any moment the file is whole, old or
    new.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            torch.save(result, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _lock(path: Path, patience: float) -> Iterator[None]:
    if sys.platform == "win32":  # no flock: two processes may both compute; the result is the same
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.2)
            except OSError:  # a file system without locks
                break
        yield  # closing the file lets go of the lock
