"""The PCI configuration space, made from a declaration.

Sources: PCI Local Bus Specification 3.0, chapter 6; PCI Express Base Specification, 7.5.
QEMU reads it all once, emulates BARs and message interrupts itself, and passes every write on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.vfio_user.device import Express, Msi, MsiX, PowerManagement

if TYPE_CHECKING:
    from testbed.vfio_user.device import Bar, Capability, Declaration

__all__ = ["ConfigSpace"]

SIZE, EXPRESS_SIZE = 256, 4096
COMMAND, STATUS, BAR0, CAPABILITIES, INTERRUPT_LINE, INTERRUPT_PIN = 0x04, 0x06, 0x10, 0x34, 0x3C, 0x3D
COMMAND_WRITABLE = 0x0547  # I/O, memory, bus master, parity, SERR, INTx disable
BUS_MASTER, INTX_DISABLE = 0x4, 0x400
HAS_CAPABILITIES = 0x10
FIRST_CAPABILITY = 0x40
_MULTIPLE_MESSAGE = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}


class ConfigSpace:
    """256 or 4096 bytes, and which of their bits the guest can write.

    ``msi_offset`` and ``msix_offset`` say where the capabilities lie; 0: nowhere.
    """

    def __init__(self, declaration: Declaration) -> None:
        express = any(isinstance(capability, Express) for capability in declaration.capabilities)
        self.size = EXPRESS_SIZE if express else SIZE
        self.bytes = bytearray(self.size)
        self.msi_offset = 0
        self.msix_offset = 0
        self._writable = bytearray(self.size)
        self._declare(declaration)
        self._initial = bytes(self.bytes)

    def reset(self) -> None:
        """Take all writes back."""
        self.bytes[:] = self._initial

    @property
    def bus_master(self) -> bool:
        """Whether the guest lets the device reach memory."""
        return bool(self.bytes[COMMAND] & BUS_MASTER)

    @property
    def intx_disabled(self) -> bool:
        """Whether the guest has switched INTx off."""
        return bool(self.bytes[COMMAND + 1] & INTX_DISABLE >> 8)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes; the caller has checked that they are there."""
        return bytes(self.bytes[offset : offset + size])

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Take the writable bits of a write; the caller has checked its place."""
        for at, value in enumerate(data, offset):
            mask = self._writable[at]
            self.bytes[at] = self.bytes[at] & ~mask | value & mask

    def saved_dwords(self) -> list[int]:
        """Return the offsets of what the guest may have set, in the order in which to write it back.

        BARs and interrupt line first; then MSI, its control word last; then the command register, so that the device
        can reach memory; MSI-X's control word at the end, when its table is there again.
        """
        messages = [self.msi_offset + at for at in (4, 8, 12, 0)] if self.msi_offset else []
        last = [self.msix_offset] if self.msix_offset else []
        return [*range(BAR0, BAR0 + 24, 4), INTERRUPT_LINE, *messages, COMMAND, *last]

    # Declaring

    def _put(self, offset: int, size: int, value: int, writable: int = 0) -> None:
        self.bytes[offset : offset + size] = value.to_bytes(size, "little")
        self._writable[offset : offset + size] = writable.to_bytes(size, "little")

    def _declare(self, declaration: Declaration) -> None:
        identity = declaration.identity
        self._put(0x00, 2, identity.vendor)
        self._put(0x02, 2, identity.device)
        self._put(COMMAND, 2, 0, COMMAND_WRITABLE)
        self._put(STATUS, 2, HAS_CAPABILITIES if declaration.capabilities else 0)
        self._put(0x08, 1, identity.revision)
        self._put(0x09, 3, identity.class_code)
        self._put(0x0C, 2, 0, 0xFFFF)  # cache line size and latency timer do nothing
        self._put(0x2C, 2, identity.subsystem_vendor)
        self._put(0x2E, 2, identity.subsystem)
        self._put(INTERRUPT_LINE, 1, 0, 0xFF)
        self._put(INTERRUPT_PIN, 1, 1 if declaration.intx else 0)
        for bar in declaration.bars:
            self._declare_bar(bar)
        self._link(declaration.capabilities)

    def _declare_bar(self, bar: Bar) -> None:
        least = 4 if bar.io else 16
        if bar.size_bytes & (bar.size_bytes - 1) or not least <= bar.size_bytes <= 1 << 30 or bar.index > 5:
            raise ValueError(f"BAR {bar.index} cannot have {bar.size_bytes} bytes")
        kind = 1 if bar.io else (4 if bar.wide else 0) | (8 if bar.prefetchable else 0)
        width = 8 if bar.wide else 4
        self._put(BAR0 + 4 * bar.index, width, kind, (1 << 8 * width) - bar.size_bytes)

    def _link(self, capabilities: tuple[Capability, ...]) -> None:
        """Lay the capabilities out one behind the other."""
        link, offset = CAPABILITIES, FIRST_CAPABILITY
        for capability in capabilities:
            self._put(link, 1, offset)
            size = self._declare_capability(capability, offset)
            link, offset = offset + 1, (offset + size + 3) & ~3

    def _declare_capability(self, capability: Capability, at: int) -> int:
        """Write one capability, without its link; return its size."""
        match capability:
            case PowerManagement():
                self._put(at, 1, 0x01)
                self._put(at + 2, 2, 0x0003)
                self._put(at + 4, 4, 0x0008, 0x0003)  # no soft reset; the power state
                return 8
            case Msi(vectors):
                self.msi_offset = at
                self._put(at, 1, 0x05)
                self._put(at + 2, 2, 0x0080 | _MULTIPLE_MESSAGE[vectors] << 1, 0x0071)
                self._put(at + 4, 10, 0, (1 << 80) - 4)
                return 14
            case MsiX(vectors, bar, table_offset, pba_offset):
                self.msix_offset = at
                self._put(at, 1, 0x11)
                self._put(at + 2, 2, vectors - 1, 0xC000)
                self._put(at + 4, 4, table_offset | bar)
                self._put(at + 8, 4, pba_offset | bar)
                return 12
            case Express():
                self._put(at, 1, 0x10)
                self._put(at + 2, 2, 0x0002)  # version 2, endpoint
                self._put(at + 4, 4, 0x00008000)  # role-based error reporting
                self._put(at + 8, 4, 0x00002810, 0x7FFF)
                self._put(at + 12, 4, 0x00000011)  # 2.5 GT/s, one lane
                self._put(at + 16, 4, 0x00110000, 0x0FFF)
                return 60
