"""The cache: directories named by their content, whole or absent, shared by any number of processes.

Nothing in it is ever changed in place. A builder fills a directory beside the target under a lock that the operating
system drops with the process; a rename makes it visible. Whatever a killed builder left is removed by the next one.

Who takes an entry holds it as long as the process lives, by a shared lock of the directory itself, so that
:mod:`testbed.inventory` never removes what is in use. An entry's modification time is when it was last taken.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import filelock
import msgspec
import platformdirs

from testbed.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ORIGIN", "Origin", "build_once", "cache_dir", "content_key", "hold", "host_errors", "locked"]

ORIGIN = "origin.json"
_held: dict[Path, int] = {}


class Origin(msgspec.Struct, frozen=True):
    """What an entry is and what it was made from; origin.json in it.

    :param about: one line for a person.
    :param made_of: other entries (``kernels/ID``), or ``toolchain:IDENTITY``; it is of no use without them.
    """

    about: str
    made_of: tuple[str, ...]


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


def hold(entry: Path) -> bool:
    """Keep an entry from being removed as long as this process lives, and note that it was used now.

    :return: False when there is no such entry.
    """
    try:
        fd = os.open(entry, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    with suppress(OSError):  # a file system without locks, or somebody else's entry
        fcntl.flock(fd, fcntl.LOCK_SH)
        os.utime(fd)
    if not _is_still(entry, fd):
        os.close(fd)
        return False
    if _is_still(entry, _held.get(entry, -1)):
        os.close(fd)
    else:
        _held[entry] = fd
    return True


def _is_still(entry: Path, fd: int) -> bool:
    """Whether the open directory is the one of this name; it is removed by taking its name away first."""
    try:
        return fd >= 0 and os.path.samestat(entry.stat(), os.fstat(fd))
    except OSError:
        return False


def build_once(target: Path, build: Callable[[Path], None], origin: Origin | None = None) -> Path:
    """Return ``target``, a directory of the cache; when it is absent, ``build`` fills an empty one that becomes it.

    :param build: called with the directory to fill, at most once at a time on this machine.
    :raise HostError: the cache cannot be written to. Whatever ``build`` raises goes through.
    """
    if hold(target):
        return target
    with locked(f"{target.parent.name}-{target.name}"):
        if hold(target):
            return target
        partial = target.with_name(f".{target.name}.partial")
        with host_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                build(partial)
                if origin:
                    (partial / ORIGIN).write_bytes(msgspec.json.encode(origin))
                partial.rename(target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        hold(target)
    return target
