"""The guest's memory, which QEMU shares with us: a memfd, mapped here and there.

Physical address and offset are the same, because the guest has less memory than fits below the PCI hole.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import TYPE_CHECKING, Self

from testbed.errors import GuestLost

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = ["PAGE_BYTES", "GuestMemory"]

PAGE_BYTES = 4096


class GuestMemory:
    """``size`` bytes of guest memory; every address that comes from the guest is checked against it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.fd = os.memfd_create("guest-memory", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # a device model insists on it
            self._map = mmap.mmap(self.fd, size)
        except BaseException:
            os.close(self.fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._map.close()
        os.close(self.fd)

    def read(self, address: int, size: int) -> bytes:
        """Return ``size`` bytes at a physical address.

        :raise GuestLost: they are not within the guest's memory.
        """
        self._check(address, size)
        return self._map[address : address + size]

    def read_pages(self, pages: Sequence[int], size: int) -> bytes:
        """Return the first ``size`` bytes of a range that lies in pages at these physical addresses.

        :raise GuestLost: a page is not within the guest's memory.
        """
        needed = pages[: -(-size // PAGE_BYTES)]
        return b"".join(self.read(page, PAGE_BYTES) for page in needed)[:size]

    def write_pages(self, pages: Sequence[int], data: bytes) -> None:
        """Write ``data`` to the start of a range that lies in pages at these physical addresses.

        :raise GuestLost: the range is shorter, or a page is not within the guest's memory.
        """
        if len(data) > len(pages) * PAGE_BYTES:
            raise GuestLost(f"{len(data)} bytes do not fit into the agent's mailbox of {len(pages)} pages")
        for page, start in zip(pages, range(0, len(data), PAGE_BYTES), strict=False):
            piece = data[start : start + PAGE_BYTES]
            self._check(page, len(piece))
            self._map[page : page + len(piece)] = piece

    def _check(self, address: int, size: int) -> None:
        if not 0 <= address <= self.size - size:
            raise GuestLost(
                f"the agent named the address {address:#x}, but the guest has {self.size:#x} bytes"
            )
