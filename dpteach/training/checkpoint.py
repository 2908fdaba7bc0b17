"""A training's state on disk: whole at any moment, and of one training at a time (chapter 15).

A file is written aside, as NAME.part, flushed to the disk and renamed. Whoever is killed loses what
came after the last rename, and nothing else; the next one takes the half-written file away.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from dpteach import domain

__all__ = ["claimed", "load", "save"]


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def load(path: Path) -> dict[str, Any] | None:
    """What `save` wrote, or None if there's no whole file. Only tensors and plain Python values
    are read.

    >>> load(Path("no such file")) is None
    True
    """
    try:
        kept = torch.load(path, weights_only=True)
    except Exception:  # whatever a missing or a damaged file provokes
        return None
    return kept if isinstance(kept, dict) else None


def save(path: Path, result: dict[str, Any]) -> None:
    """Write a dict of tensors and plain values so that at any moment the file is whole, old or new.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Path(folder) / "a.pt", {"steps": 3})
    ...     load(Path(folder) / "a.pt")
    {'steps': 3}
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = _aside(path)
    try:
        with aside.open("wb") as file:
            torch.save(result, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@contextmanager
def claimed(path: Path, size: int) -> Iterator[None]:
    """The right to write `path`, for as long as the context lasts; what a killed writer left is gone.

    Raises `ValueError` where the file can't be written, there's no room for twice `size` bytes (the
    old file and the new one), or another process holds it. The lock is the operating system's, which
    lets go of it when its holder dies.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, claimed(Path(folder) / "a.pt", 100):
    ...     pass
    """
    name, lock = "checkpoint", FileLock(path.with_name(f".{path.name}.lock"), timeout=0)
    domain.require(name, str(path), not path.is_dir(), "a file", "it's a folder; name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        advice = "another process writes it; give this training another"
        domain.require(name, str(path), False, "a file that's free", advice)
    except OSError as error:
        domain.require(name, str(path), False, "a file that can be written", str(error))
    try:
        _check_room(path, size)
        yield
    finally:
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


def _check_room(path: Path, size: int) -> None:
    """Write a byte where the file will be written, and ask for the room on the disk."""
    try:
        _aside(path).write_bytes(b"0")
        _aside(path).unlink()
        if path.exists():
            os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        domain.require("checkpoint", str(path), False, "a file that can be written", str(error))
    free = shutil.disk_usage(path.parent).free
    advice = f"the disk has {free / 1e6:.3g} MB left; it takes {2 * size / 1e6:.3g} MB"
    domain.require("checkpoint", str(path), free >= 2 * size, "on a disk with room for it", advice)
