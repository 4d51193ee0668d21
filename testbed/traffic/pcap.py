"""A pcap file with nanoseconds, written as frames pass.

Source: the libpcap file format (pcap-savefile(5)): magic 0xa1b23c4d, version 2.4, LINKTYPE_ETHERNET.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Self

from testbed.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["PcapFile"]

_FILE = struct.Struct("<IHHiIII")
_RECORD = struct.Struct("<IIII")
SNAP_BYTES = 262144


class PcapFile:
    """A pcap being written.

    Each write call holds whole records, so that a killed process leaves a readable file.

    :param path: the file; replaced if it exists.
    :raise HostError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last_ns = 0
        try:
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise self._unwritable(error) from error
        self._write(_FILE.pack(0xA1B23C4D, 2, 4, 0, 0, SNAP_BYTES, 1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, frames: Iterable[bytes]) -> None:
        """Append frames under one time stamp, the host's; stamps never go back.

        :raise HostError: the disk is full or the file gone.
        """
        self._last_ns = max(self._last_ns, time.time_ns())
        seconds, nanoseconds = divmod(self._last_ns, 10**9)
        parts: list[bytes] = []
        for frame in frames:
            length = len(frame)
            parts += (_RECORD.pack(seconds, nanoseconds, length, length), frame)
        self._write(b"".join(parts))

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) or 0 :]
        except OSError as error:
            self.close()
            raise self._unwritable(error) from error

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        self._file.close()

    def _unwritable(self, error: OSError) -> HostError:
        message = f"expected to write the pcap {self.path}, seen: {error.strerror or error}"
        return HostError(message, "free some space or name another file")
