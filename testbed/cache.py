"""The cache: directories named by their content, whole or absent, shared by any number of processes.

Nothing in it is ever changed in place. A builder fills a directory beside the target under a lock that the operating
system drops with the process; a rename makes it visible. Whatever a killed builder left is removed by the next one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import filelock
import platformdirs

from testbed.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["build_once", "cache_dir", "content_key", "host_errors", "locked"]


def cache_dir() -> Path:
    """Return the cache's directory: TESTBED_CACHE, else platformdirs' user cache; it is made when missing.

    :raise HostError: it cannot be made or written to.
    """
    named = os.environ.get("TESTBED_CACHE")
    path = Path(named) if named else Path(platformdirs.user_cache_dir("testbed"))
    path = path.absolute()
    with host_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, "it is read-only for this user", str(path))
    return path


def content_key(*parts: str | bytes | Path) -> str:
    """Return 16 hexadecimal digits that stand for the parts: text and bytes as they are, files by content."""
    digest = hashlib.sha256()
    for part in parts:
        data = (
            part.read_bytes() if isinstance(part, Path) else part.encode() if isinstance(part, str) else part
        )
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:16]


@contextmanager
def host_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says about the cache into a :class:`HostError` with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = "free some space, or point TESTBED_CACHE to a larger disk"
        else:
            remedy = "point TESTBED_CACHE to a directory you can write to"
        raise HostError(f"cannot write to {error.filename or path}: {error.strerror}", remedy) from error


@contextmanager
def locked(name: str, timeout_s: float = 3600) -> Iterator[None]:
    """Hold the lock ``name`` of this cache; it ends with the process, however that ends.

    :raise HostError: somebody else held it for ``timeout_s``, or the cache cannot be written to.
    """
    directory = cache_dir() / "locks"
    with host_errors(directory):
        directory.mkdir(exist_ok=True)
        lock = filelock.FileLock(directory / f"{name}.lock")
        try:
            lock.acquire(timeout=timeout_s)
        except filelock.Timeout as error:
            raise HostError(
                f"another testbed has held the lock {lock.lock_file} for {timeout_s:.0f} s",
                "wait for it, or end it",
            ) from error
    try:
        yield
    finally:
        lock.release()


def build_once(target: Path, build: Callable[[Path], None]) -> Path:
    """Return ``target``, a directory of the cache; when it is absent, ``build`` fills an empty one that becomes it.

    :param build: called with the directory to fill, at most once at a time on this machine.
    :raise HostError: the cache cannot be written to. Whatever ``build`` raises goes through.
    """
    if target.exists():
        return target
    with locked(f"{target.parent.name}-{target.name}"):
        if target.exists():
            return target
        partial = target.with_name(f".{target.name}.partial")
        with host_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                build(partial)
                partial.rename(target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return target
