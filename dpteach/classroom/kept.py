"""Results of long computations, kept on disk under a hash of what they depend on.

A build, the notebook tests and the accuracy tests all need the same trained model. The first to
ask trains it, the others read it. A change in the code that matters, or in the parameters, is
another hash and so another file.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from dpteach.training.checkpoint import load, save

__all__ = ["cached", "folder"]


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
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            try:
                held.enter_context(FileLock(path.with_suffix(".lock"), timeout=patience))
            except (Timeout, OSError):  # somebody else takes too long; a file system without locks
                pass
            result = load(path)
            if result is None:
                result = compute()
                save(path, result)
    return result


def _key(parameters: dict[str, Any], modules: tuple[str, ...]) -> str:
    digest = hashlib.sha256(torch.__version__.encode())
    digest.update(json.dumps(parameters, sort_keys=True).encode())
    for module in modules:
        digest.update(
            _code((Path(__file__).parents[1] / f"{module}.py").read_text("utf-8")).encode()
        )
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
