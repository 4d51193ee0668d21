"""Directories for what exists while a guest runs; what a killed testbed left of them is swept by the next one."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

from testbed.cache import cache_dir, host_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["owner_is_dead", "runtime_directory"]

ALIVE = "alive"  # a lock in each directory, held as long as its owner lives


@contextmanager
def runtime_directory() -> Iterator[Path]:
    """Give a new directory in the cache; it is removed at the end.

    :raise HostError: the cache cannot be written to.
    """
    parent = cache_dir() / "run"
    with host_errors(parent):
        parent.mkdir(exist_ok=True)
        _sweep(parent)
        path = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
        alive = filelock.FileLock(path / ALIVE)
        alive.acquire()
    try:
        yield path
    finally:
        alive.release()
        shutil.rmtree(path, ignore_errors=True)


def _sweep(parent: Path) -> None:
    for path in parent.iterdir():
        if owner_is_dead(path):
            shutil.rmtree(path, ignore_errors=True)


def owner_is_dead(path: Path) -> bool:
    """Whether nobody holds the lock; a directory whose lock is not there yet is somebody's who just starts."""
    if not (path / ALIVE).exists():
        return not _is_running(int(path.name.split("-")[0]))
    lock = filelock.FileLock(path / ALIVE)
    try:
        lock.acquire(timeout=0)
    except (filelock.Timeout, OSError):
        return False
    lock.release()
    return True


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
