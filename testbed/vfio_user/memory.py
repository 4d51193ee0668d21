"""The guest's memory as a device reaches it: what the client has mapped, and nothing else."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
from dataclasses import dataclass

from testbed.vfio_user.device import DmaFault
from testbed.vfio_user.protocol import DMA_WRITABLE, MAX_DMA_MAPS

__all__ = ["GuestMemory", "Refused"]

ADDRESS_LIMIT = 1 << 64
_NOTHING = memoryview(b"")


class Refused(Exception):
    """A message cannot be obeyed; the reply bears this errno."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"{os.strerror(number)}: {why}")
        self.number = number


@dataclass(frozen=True)
class _Mapping:
    """One range of bus addresses. ``view`` is empty where the device has no business: ROM, or nothing to map."""

    address: int
    size: int
    view: memoryview


class GuestMemory:
    """See :class:`testbed.vfio_user.device.Memory`.

    No mapping is taken away under a view: its pages are unmapped when the last view of it is gone. The file behind it
    cannot be made shorter, so that no access ends in SIGBUS.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._mappings: list[_Mapping] = []
        self._bus_master = False
        self._first, self._last = 1, 0  # the mapping used last: its addresses, and its bytes; none yet
        self._view = _NOTHING

    def view(self, address: int, length: int) -> memoryview:
        """Return bytes that the device may read and write; see :meth:`testbed.vfio_user.device.Memory.view`."""
        if not self._first <= address <= address + length <= self._last:
            self._find(address, length)
        start = address - self._first
        return self._view[start : start + length]

    def peek(self, address: int, length: int) -> memoryview:
        """Return bytes whether or not the device may reach memory now; for the server itself."""
        for mapping in self._mappings:
            start = address - mapping.address
            if length >= 0 <= start and start + length <= len(mapping.view):
                return mapping.view[start : start + length]
        raise DmaFault(address, length)

    def set_bus_master(self, *, on: bool) -> None:
        """Let the device reach memory, or no longer."""
        if on != self._bus_master:
            self._bus_master = on
            self._changed()

    def map(self, address: int, size: int, flags: int, offset: int, fd: int | None) -> None:
        """Take a range that the client offers; the descriptor stays the caller's.

        :raise Refused: it overlaps another, is not what it says, or there are too many.
        """
        if not 0 < size <= ADDRESS_LIMIT - address:
            raise Refused(errno.EINVAL, f"{size} bytes at {address:#x} are no range")
        if any(
            address < other.address + other.size and other.address < address + size
            for other in self._mappings
        ):
            raise Refused(errno.EEXIST, f"{size} bytes at {address:#x} overlap a mapping")
        if len(self._mappings) >= MAX_DMA_MAPS:
            raise Refused(errno.ENOSPC, f"there are {MAX_DMA_MAPS} mappings")
        writable = flags & DMA_WRITABLE and fd is not None
        view = _mapped(fd, offset, size) if writable and fd is not None else _NOTHING
        self._mappings.append(_Mapping(address, size, view))
        self._changed()

    def unmap(self, address: int, size: int) -> None:
        """Forget a range.

        :raise Refused: it is none of those mapped.
        """
        for mapping in self._mappings:
            if (mapping.address, mapping.size) == (address, size):
                self._mappings.remove(mapping)
                self._changed()
                return
        raise Refused(errno.ENOENT, f"{size} bytes at {address:#x} are not mapped")

    def clear(self) -> None:
        """Forget everything."""
        self._mappings.clear()
        self._changed()

    def _changed(self) -> None:
        self.generation += 1
        self._first, self._last, self._view = 1, 0, _NOTHING

    def _find(self, address: int, length: int) -> None:
        """Make the mapping that holds a range the one used last."""
        for mapping in self._mappings if self._bus_master and length >= 0 else ():
            end = mapping.address + len(mapping.view)
            if mapping.address <= address <= address + length <= end:
                self._first, self._last, self._view = mapping.address, end, mapping.view
                return
        raise DmaFault(address, length)


def _mapped(fd: int, offset: int, size: int) -> memoryview:
    """Return a shared mapping of part of a file that nobody can make shorter.

    :raise Refused: it is no such file, or too short.
    """
    status = os.fstat(fd)
    try:
        sealed = stat.S_ISREG(status.st_mode) and fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    except OSError:
        sealed = 0
    if not sealed:
        raise Refused(errno.EPERM, "guest memory must be a memfd sealed against shrinking")
    if offset % mmap.ALLOCATIONGRANULARITY or offset + size > status.st_size:
        raise Refused(errno.EINVAL, f"{size} bytes at {offset:#x} are not in a file of {status.st_size}")
    try:
        return memoryview(mmap.mmap(fd, size, mmap.MAP_SHARED, offset=offset))
    except (OSError, ValueError, OverflowError) as error:
        raise Refused(errno.ENOMEM, str(error)) from error
