"""Saving a device for a snapshot of its guest, and bringing it back in another process.

QEMU's own snapshot holds nothing of a vfio-user device. The model saves itself. What QEMU keeps for it lies in two
places: the configuration space, which testbed reads and writes back through the monitor, and the table of MSI-X, which
the device reads and writes here as it would any other memory, with DMA_READ and DMA_WRITE to its own BAR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from testbed.vfio_user.config import BAR0
from testbed.vfio_user.device import MsiX
from testbed.vfio_user.protocol import DMA_RW, HEADER, Command, Header, MessageFlags

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.vfio_user.device import Declaration, Device
    from testbed.vfio_user.session import Session

__all__ = ["State"]

ENABLED = 0x80  # in the high byte of MSI-X's control word
_ENTRY_BYTES = 16


class _Saved(msgspec.Struct, frozen=True):
    """A device at rest."""

    device: bytes
    table: bytes


class State:
    """Saves and loads; asks the client for what it keeps.

    :param send: takes a whole message for the client.
    """

    def __init__(self, declaration: Declaration, session: Session, send: Callable[[bytes], None]) -> None:
        self._session = session
        self._send = send
        self._msix = next((each for each in declaration.capabilities if isinstance(each, MsiX)), None)
        self._wide = {bar.index for bar in declaration.bars if bar.wide}
        self._table = b""
        self._then: Callable[[Header, bytes], None] | None = None
        session.reply_from_client = self._hear

    def save(self, device: Device, then: Callable[[bytes, str], None]) -> None:
        """Call ``then`` with everything that :meth:`load` needs, or with why it cannot be had."""

        def finish(header: Header, payload: bytes) -> None:
            table = payload[DMA_RW.size :]
            if header.flags & MessageFlags.ERROR or len(table) != self._table_bytes:
                then(b"", "QEMU does not let the device read its table of MSI-X")
            else:
                then(msgspec.json.encode(_Saved(device.save(), table)), "")

        if self._table_in_use:
            self._ask(Command.DMA_READ, DMA_RW.pack(self._table_address, self._table_bytes), finish)
        else:
            then(msgspec.json.encode(_Saved(device.save(), b"")), "")

    def load(self, device: Device, state: bytes) -> None:
        """Make the device what was saved, but for the table.

        :raise ValueError: that is no saved device.
        """
        saved = msgspec.json.decode(state, type=_Saved)
        device.load(saved.device)
        self._table = saved.table

    def restore_table(self, then: Callable[[str], None]) -> None:
        """Write the saved table; call ``then`` with nothing, or with why it could not be written."""

        def finish(header: Header, _payload: bytes) -> None:
            failed = header.flags & MessageFlags.ERROR
            then("QEMU does not let the device write its table of MSI-X" if failed else "")

        if not self._table:
            then("")
        elif len(self._table) != self._table_bytes:
            then("the saved table is another device's")
        else:
            request = DMA_RW.pack(self._table_address, len(self._table)) + self._table
            self._ask(Command.DMA_WRITE, request, finish)

    @property
    def _table_bytes(self) -> int:
        return self._msix.vectors * _ENTRY_BYTES if self._msix else 0

    @property
    def _table_in_use(self) -> bool:
        config = self._session.config
        return bool(self._msix and config.bytes[config.msix_offset + 3] & ENABLED and config.bus_master)

    @property
    def _table_address(self) -> int:
        if not self._msix:
            raise ValueError("there is no table")
        width = 8 if self._msix.bar in self._wide else 4
        base = int.from_bytes(self._session.config.read(BAR0 + 4 * self._msix.bar, width), "little")
        return (base & ~0xF) + self._msix.table_offset

    def _ask(self, command: Command, payload: bytes, then: Callable[[Header, bytes], None]) -> None:
        """Send the client a request; there is never more than one on its way."""
        if self._then:
            raise ValueError("QEMU still owes an answer")
        self._then = then
        self._send(HEADER.pack(0, command, HEADER.size + len(payload), 0, 0) + payload)

    def _hear(self, header: Header, payload: memoryview) -> None:
        then, self._then = self._then, None
        if then:
            then(header, bytes(payload))
