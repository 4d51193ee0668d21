"""The device's half of the trace, in memory that the host shares: it can be read although the process has died.

Layout: head (rows written) and lost (rows that found no place), 4 bytes each, 24 bytes of nothing, then rows of 32
bytes, :data:`testbed.vfio_user.events.ROW`.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import TYPE_CHECKING

from testbed.vfio_user.device import DmaFault
from testbed.vfio_user.events import ROW, DeviceEvent

if TYPE_CHECKING:
    from testbed.vfio_user.memory import GuestMemory

__all__ = ["HEADER", "HEADER_BYTES", "Recorder"]

HEADER_BYTES = 32
HEADER = struct.Struct("<II")
_NUMBER = struct.Struct("<I")


class Recorder:
    """Writes rows.

    :param fd: the shared memory, a multiple of 32 bytes long; None: nothing is kept.
    """

    def __init__(self, fd: int | None, memory: GuestMemory) -> None:
        size = os.fstat(fd).st_size if fd is not None else HEADER_BYTES
        self._table = mmap.mmap(-1 if fd is None else fd, size)
        self._capacity = (size - HEADER_BYTES) // ROW.size
        self._memory = memory
        self._position = 0
        self._recording = False

    def start(self, position: int) -> None:
        """Begin an empty table.

        :param position: physical address of the guest's struct tb_position, whose first word counts its events; or 0.
        """
        self._position = position
        self._recording = True
        HEADER.pack_into(self._table, 0, 0, 0)

    def record(self, time_ns: int, kind: DeviceEvent, queue: int, a: int, b: int, c: int) -> None:
        """Add a row; each number is cut to its width."""
        if not self._recording:
            return
        head, lost = HEADER.unpack_from(self._table)
        if head >= self._capacity:
            HEADER.pack_into(self._table, 0, head, min(lost + 1, 0xFFFFFFFF))
            return
        word = 0xFFFFFFFF
        row = (
            time_ns,
            self._guest_events(),
            kind,
            queue & 0xFFFF,
            a & word,
            b & word,
            c & 0xFFFFFFFFFFFFFFFF,
        )
        ROW.pack_into(self._table, HEADER_BYTES + head * ROW.size, *row)
        HEADER.pack_into(self._table, 0, head + 1, lost)

    def _guest_events(self) -> int:
        if not self._position:
            return 0
        try:
            return int(_NUMBER.unpack(self._memory.peek(self._position, 4))[0])
        except DmaFault:
            return 0
