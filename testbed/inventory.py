"""What lies in the cache, why it is kept, and the removal of what is not.

Entries that are made of others say so (:class:`testbed.cache.Origin`). What is made of something that is not current
is not current either. A running testbed holds what it uses, so whatever is held stays.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import filelock
import msgspec

from testbed import image
from testbed.cache import ORIGIN, Origin, cache_dir, host_errors, locked
from testbed.errors import HostError
from testbed.guest.runtime import owner_is_dead
from testbed.kernel.debian import Record
from testbed.toolchain import open_toolchain
from testbed.toolchain.root import current_root, discard, installed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["DAYS", "Entry", "State", "examine", "prune"]

DAYS = 14.0
State = Literal["current", "in use", "stale", "dead"]
_ENTRY = re.compile(r"[0-9a-f]{16}(\.[0-9a-f]{16})?")  # how build_once and set-up name what they made
_LEFT = re.compile(r"\.(.+)\.(partial|removed)")
_NEEDED_BY_SNAPSHOTS = {"images", "vmlinux"}  # of no use by themselves, and soon made again
#: Can be made again at a cost, and takes much room: kept as long as it is used.
_KEPT_WHILE_USED = {"built", "digests", "snapshots", "sources", "trees"}
_DAY_S = 86400


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in the cache.

    :param kind: the folder it lies in. :param last_used: seconds since the epoch.
    :param state: ``current``: will be used again; ``in use``: not current, but a running testbed has it; ``stale``:
        superseded, or unused for long; ``dead``: left by a testbed that was killed.
    :param why: what the state is owed to.
    """

    kind: str
    name: str
    about: str
    bytes: int
    last_used: float
    state: State
    why: str

    @property
    def path(self) -> Path:
        """Where it lies."""
        return cache_dir() / self.kind / self.name


@dataclass(frozen=True)
class _Found:
    """A directory of the cache and what it says of itself."""

    path: Path
    origin: Origin | None

    @property
    def id(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"

    @cached_property
    def last_used(self) -> float:
        return self.path.stat().st_mtime


def examine(days: float = DAYS) -> list[Entry]:
    """Return everything in the cache, by kind and last use.

    :param days: what was not used for so long is stale, if it can be made again.
    :raise HostError: the cache cannot be read.
    """
    with locked("inventory", 600), host_errors(cache_dir()):
        return _examine(days)


def prune(days: float = DAYS) -> list[Entry]:
    """Remove what is stale or dead, and return it; nothing that a running testbed uses is touched.

    :raise HostError: something cannot be removed.
    """
    with locked("inventory", 600), host_errors(cache_dir()):
        removed = [entry for entry in _examine(days) if entry.state in {"stale", "dead"} and _remove(entry)]
        for kind in ("toolchain", "kernels"):
            for link in _children(kind):
                if link.is_symlink() and not link.exists():
                    link.unlink()
        return removed


def _examine(days: float) -> list[Entry]:
    kinds = sorted(path.name for path in cache_dir().iterdir() if path.is_dir())
    found = [
        _Found(path, _origin(path))
        for kind in kinds
        for path in _children(kind)
        if _ENTRY.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    ]
    reasons = _Reasons(found, days)
    entries = [_entry(each, *_state(each, reasons)) for each in found]
    entries += [_left(path) for kind in kinds for path in _children(kind) if _LEFT.fullmatch(path.name)]
    entries += [_run(path) for path in _children("run")]
    entries += [_apt(path) for path in _children("apt")]
    known = {entry.kind for entry in entries} | {"locks", "run", "apt"}
    entries += [_other(kind) for kind in kinds if kind not in known and _children(kind)]
    return sorted(entries, key=lambda entry: (entry.kind, -entry.last_used))


class _Reasons:
    """Why entries are not current."""

    def __init__(self, found: list[_Found], days: float) -> None:
        self._found = {each.id: each for each in found}
        self._oldest = time.time() - days * _DAY_S
        self._days = days
        self._live = self._roots()
        snapshots = [each for each in found if each.path.parent.name == "snapshots"]
        kept = [each for each in snapshots if not self._superseded(each) and each.last_used >= self._oldest]
        self._needed = {name for each in kept if each.origin for name in each.origin.made_of}

    def of(self, each: _Found) -> str:
        """Return why the entry is not current; nothing when it is."""
        kind = each.path.parent.name
        if each.id in self._live:
            return ""
        if kind in {"toolchain", "kernels"}:
            return "superseded"
        superseded = self._superseded(each)
        if superseded:
            return superseded
        if kind in _NEEDED_BY_SNAPSHOTS and each.id not in self._needed:
            return "no snapshot in use needs it"
        if (kind in _KEPT_WHILE_USED or not each.origin) and each.last_used < self._oldest:
            return f"unused for {self._days:g} days"
        return ""

    def _superseded(self, each: _Found) -> str:
        for name in each.origin.made_of if each.origin else ():
            if name in self._live:
                continue
            made_of = self._found.get(name)
            if made_of is None or name.startswith("kernels/") or self._superseded(made_of):
                return f"made with {name.partition(':')[0]}, which is superseded"
            if made_of.path.parent.name == "images" and not _is_derived(made_of):
                return "made with an older image"
        return ""

    def _roots(self) -> set[str]:
        """Return what is current by itself: toolchains, their image, the kernels that have a name."""
        live = {f"kernels/{link.resolve().name}" for link in _children("kernels") if link.is_symlink()}
        root = current_root()
        live |= {f"toolchain/{root.name}"} if root else set()
        for kind in ("root", "host"):
            with suppress(HostError):
                toolchain = open_toolchain(kind)
                live |= {f"toolchain:{toolchain.identity}", f"images/{image.key(toolchain)}"}
        return live


def _is_derived(each: _Found) -> bool:
    """Whether an image was made from another one."""
    return each.origin is not None and any(name.startswith("images/") for name in each.origin.made_of)


def _state(each: _Found, reasons: _Reasons) -> tuple[State, str]:
    why = reasons.of(each)
    if not why:
        return "current", ""
    with _exclusive(each.path) as free:
        return ("stale", why) if free else ("in use", why)


def _entry(each: _Found, state: State, why: str) -> Entry:
    path = each.path
    return Entry(
        kind=path.parent.name,
        name=path.name,
        about=_about(each),
        bytes=_bytes(path),
        last_used=each.last_used,
        state=state,
        why=why,
    )


def _about(each: _Found) -> str:
    if each.origin:
        return each.origin.about
    with suppress(OSError, msgspec.MsgspecError):
        if each.path.parent.name == "kernels":
            record = msgspec.json.decode((each.path / "kernel.json").read_bytes(), type=Record)
            return f"{record.release}, {record.version}"
        if each.path.parent.name == "toolchain":
            return f"{len(installed(each.path))} packages"
    return ""


def _origin(path: Path) -> Origin | None:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((path / ORIGIN).read_bytes(), type=Origin)
    return None


def _left(path: Path) -> Entry:
    """Return what a build left, or is making at this moment."""
    return _leftover(path, "unfinished", dead=path.name.endswith(".removed") or _is_free(_lock_of(path)))


def _run(path: Path) -> Entry:
    return _leftover(path, "of a running guest", dead=owner_is_dead(path))


def _apt(path: Path) -> Entry:
    return _leftover(path, "lists of packages", dead=_is_free(_lock_of(path)))


def _lock_of(path: Path) -> str:
    """Return the lock that whoever works in such a directory has."""
    kind = path.parent.name
    if kind == "apt":
        return f"kernel-{path.name}"
    left = _LEFT.fullmatch(path.name)
    return "toolchain" if kind == "toolchain" else f"{kind}-{left[1] if left else path.name}"


def _leftover(path: Path, about: str, *, dead: bool) -> Entry:
    return Entry(
        kind=path.parent.name,
        name=path.name,
        about=about,
        bytes=_bytes(path),
        last_used=path.stat().st_mtime,
        state="dead" if dead else "in use",
        why="left by a testbed that was killed" if dead else "",
    )


def _other(kind: str) -> Entry:
    path = cache_dir() / kind
    return Entry(
        kind=kind,
        name="",
        about="",
        bytes=_bytes(path),
        last_used=path.stat().st_mtime,
        state="current",
        why="not judged",
    )


def _children(kind: str) -> list[Path]:
    directory = cache_dir() / kind
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _remove(entry: Entry) -> bool:
    """Remove an entry; return False when somebody took it in the meantime."""
    if entry.state == "dead" and entry.kind != "run":
        try:
            with locked(_lock_of(entry.path), 0):
                discard(entry.path)
        except HostError as error:
            if isinstance(error.__cause__, filelock.Timeout):
                return False
            raise
        return True
    doomed = entry.path
    if entry.state == "stale":
        doomed = entry.path.with_name(f".{entry.name}.removed")
        with _exclusive(entry.path) as free:
            if not free:
                return False
            entry.path.rename(doomed)  # who looks for it from now on finds nothing
    discard(doomed)
    return True


@contextmanager
def _exclusive(path: Path) -> Iterator[bool]:
    """Give whether nobody holds the entry; nobody can take it within the context."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


def _is_free(lock: str) -> bool:
    """Whether nobody holds a lock of the cache at this moment."""
    try:
        with locked(lock, 0):
            return True
    except HostError as error:
        if isinstance(error.__cause__, filelock.Timeout):
            return False
        raise


def _bytes(path: Path) -> int:
    """Return what a tree takes on the disk; what may not be looked into counts as nothing."""
    return sum(_sizes(path))


def _sizes(path: Path) -> Iterable[int]:
    with suppress(OSError):
        yield path.lstat().st_blocks * 512
        if path.is_dir() and not path.is_symlink():
            with os.scandir(path) as inside:
                for each in inside:
                    yield from _sizes(Path(each.path))
