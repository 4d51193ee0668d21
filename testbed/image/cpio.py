"""Archives in the kernel's initramfs format: the same bytes for the same input.

Source: Documentation/driver-api/early-userspace/buffer-format.rst, the "newc" variant.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["archive"]

TRAILER = "TRAILER!!!"


def _pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _entry(inode: int, name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    """One entry: 13 fields of 8 hexadecimal digits, the name, the data, each padded to 4 bytes."""
    path = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(path), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _pad(header + path) + _pad(data)


def archive(
    files: Mapping[str, tuple[int, bytes]], devices: Mapping[str, tuple[int, int]] | None = None
) -> bytes:
    """Return the archive of ``files`` and the directories they need.

    :param files: path without leading slash to (permission bits, content).
    :param devices: path to (major, minor) of character devices.
    """
    nodes = devices or {}
    directories = sorted({parent for path in (*files, *nodes) for parent in _parents(path)})
    entries: list[tuple[str, int, bytes, tuple[int, int]]] = [
        *((path, stat.S_IFDIR | 0o755, b"", (0, 0)) for path in directories),
        *((path, stat.S_IFCHR | 0o600, b"", nodes[path]) for path in sorted(nodes)),
        *((path, stat.S_IFREG | mode, data, (0, 0)) for path, (mode, data) in sorted(files.items())),
    ]
    # Inode numbers differ, or the kernel takes two entries for hard links of one file.
    packed = [_entry(number, *entry) for number, entry in enumerate(entries, 1)]
    return b"".join([*packed, _entry(0, TRAILER, 0)])


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
