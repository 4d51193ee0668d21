"""The mirror of a source tree in the cache: what a kernel is built in, so that the user's tree stays as it is.

A file that changes in the tree, or that a patch changed in the mirror, is written anew with the time of that moment,
and only then: make compiles what must be compiled, however often one switches between states. What is known of each
file (size, time, digest) is kept, so that only files whose size or time changed are read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from testbed.cache import Origin, build_once, cache_dir, content_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from testbed.kernel.tree import Tree

__all__ = ["Mirror", "digest_of", "digests_of"]


class _Known(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was seen last."""

    size: int
    time_ns: int
    digest: bytes


class _Record(msgspec.Struct):
    """What is known of a tree and of its mirror, by path; ``made`` are files that patches may have made."""

    tree: dict[str, _Known] = msgspec.field(default_factory=dict)
    mirror: dict[str, _Known] = msgspec.field(default_factory=dict)
    made: list[str] = msgspec.field(default_factory=list)


class Mirror:
    """A mirror; one process at a time works with it.

    :param directory: where it is kept: ``source/`` is the mirror itself.
    """

    def __init__(self, directory: Path, tree: Tree) -> None:
        self.source = directory / "source"
        self._tree = tree
        self._file = directory / "mirror.msgpack"
        self._record = _Record()
        with suppress(OSError, msgspec.MsgspecError):
            self._record = msgspec.msgpack.decode(self._file.read_bytes(), type=_Record)
        self.source.mkdir(parents=True, exist_ok=True)

    def scan(self) -> dict[str, bytes]:
        """Return the digest of every file of the tree, by path."""
        self._record.tree = dict(_look(self._tree.path, self._tree.files(), self._record.tree))
        self._save()
        return {path: known.digest for path, known in self._record.tree.items()}

    def state(self) -> str:
        """Return what stands for the content of the whole tree, after :meth:`scan`."""
        every = sorted(self._record.tree.items())
        return content_key(*(part for path, known in every for part in (path, known.digest)))

    def sync(self) -> None:
        """Make the mirror equal to the tree as it was scanned."""
        known, first = self._record.mirror, not self._record.mirror
        for path in (*known, *self._record.made):
            if path not in self._record.tree:
                (self.source / path).unlink(missing_ok=True)
        self._record.mirror = {path: each for path, each in known.items() if path in self._record.tree}
        self._record.made = []
        folders: set[Path] = set()
        for path, wanted in self._record.tree.items():
            have, target = self._record.mirror.get(path), self.source / path
            if have and have.digest == wanted.digest and _is_same(target, have):
                continue
            if target.parent not in folders:
                target.parent.mkdir(parents=True, exist_ok=True)
                folders.add(target.parent)
            _write(self._tree.path / path, target, keep_time=first)
            seen = target.lstat()
            self._record.mirror[path] = _Known(seen.st_size, seen.st_mtime_ns, wanted.digest)
        self._save()

    def will_change(self, paths: Iterable[str]) -> None:
        """Note that patches are about to make or change these files; the next sync takes it back."""
        self._record.made = [*self._record.made, *paths]
        self._save()

    def _save(self) -> None:
        partial = self._file.with_suffix(".partial")
        partial.write_bytes(msgspec.msgpack.encode(self._record))
        partial.replace(self._file)


def _look(root: Path, paths: Iterable[str], known: dict[str, _Known]) -> Iterator[tuple[str, _Known]]:
    """Yield what each file that exists is; only those whose size or time is not the known one are read."""
    top = os.fspath(root)
    for path in paths:
        full = f"{top}/{path}"
        try:
            seen = os.lstat(full)
        except OSError:
            continue  # git still tracks it
        before = known.get(path)
        if before and (before.size, before.time_ns) == (seen.st_size, seen.st_mtime_ns):
            yield path, before
        elif stat.S_ISREG(seen.st_mode) or stat.S_ISLNK(seen.st_mode):
            yield path, _Known(seen.st_size, seen.st_mtime_ns, _digest(full, seen.st_mode))


def digests_of(tree: Tree) -> dict[str, bytes]:
    """Return the digest of every file of a tree that is never changed, by path; all are read once and for all."""
    target = cache_dir() / "digests" / content_key(str(tree.path))

    def fill(directory: Path) -> None:
        found = {path: known.digest for path, known in _look(tree.path, tree.files(), {})}
        (directory / "digests.msgpack").write_bytes(msgspec.msgpack.encode(found))

    file = build_once(target, fill, Origin(f"digests of {tree.name}, {tree.version}", ())) / "digests.msgpack"
    return msgspec.msgpack.decode(file.read_bytes(), type=dict[str, bytes])


def digest_of(file: Path) -> bytes:
    """Return what stands for a file's content, and for whether it can be executed."""
    return _digest(os.fspath(file), file.lstat().st_mode)


def _digest(path: str, mode: int) -> bytes:
    """Return a digest of a file's content and of whether it can be executed, or of where a link points."""
    if stat.S_ISLNK(mode):
        return hashlib.blake2b(b"link " + os.fsencode(os.readlink(path)), digest_size=12).digest()  # noqa: PTH115
    with open(path, "rb") as file:  # noqa: PTH123 - a hundred thousand of them
        data = file.read()
    return hashlib.blake2b((b"x" if mode & stat.S_IXUSR else b"-") + data, digest_size=12).digest()


def _is_same(path: Path, known: _Known) -> bool:
    try:
        seen = path.lstat()
    except OSError:
        return False
    return (seen.st_size, seen.st_mtime_ns) == (known.size, known.time_ns)


def _write(source: Path, target: Path, *, keep_time: bool) -> None:
    target.unlink(missing_ok=True)
    if keep_time or source.is_symlink():
        shutil.copy2(source, target, follow_symlinks=False)
    else:
        shutil.copy(source, target)
