"""Frames on a byte stream as QEMU's ``-netdev stream`` carries them.

Each frame follows its length, 4 bytes, big-endian. Source: net/stream.c and net_fill_rstate() of net/net.c
in QEMU.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from testbed.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["MAX_WIRE_BYTES", "Deframer", "stream_of"]

MAX_WIRE_BYTES = 4096 + 65536  # NET_BUFSIZE of QEMU's include/net/net.h
CHUNK_BYTES = 128 << 10
_LENGTH = struct.Struct(">I")


def stream_of(frames: Iterable[bytes]) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the stream in pieces of about 128 KiB, each with the frames it holds; a frame is never split.

    :raise UsageError: a frame is empty or longer than QEMU takes.
    """
    parts: list[bytes] = []
    held: list[bytes] = []
    size = 0
    for frame in frames:
        length = len(frame)
        if not 0 < length <= MAX_WIRE_BYTES:
            message = f"expected a frame of 1 to {MAX_WIRE_BYTES} bytes, seen {length}"
            raise UsageError(message, "send it in smaller frames")
        parts += (_LENGTH.pack(length), frame)
        held.append(frame)
        size += length
        if size >= CHUNK_BYTES:
            yield b"".join(parts), held
            parts, held, size = [], [], 0
    if held:
        yield b"".join(parts), held


class Deframer:
    """Takes a stream apart again, however it was split.

    ``garbage`` is the first absurd length seen, else None; what follows it is not looked at.
    """

    def __init__(self) -> None:
        self.garbage: int | None = None
        self._rest = b""

    @property
    def pending_bytes(self) -> int:
        """How many bytes of an unfinished frame, its length included, have come."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that ``data`` completes, in order."""
        if self.garbage is not None:
            return []
        data = self._rest + data
        frames, start, end = [], 0, len(data)
        while end - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, start)
            if not 0 < length <= MAX_WIRE_BYTES:
                self.garbage = length
                break
            stop = start + _LENGTH.size + length
            if stop > end:
                break
            frames.append(data[start + _LENGTH.size : stop])
            start = stop
        self._rest = data[start:]
        return frames
