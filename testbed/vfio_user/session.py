"""Answers to a client's messages: what each command does to device, memory and interrupts.

Nothing here trusts a message: each length, count, index and offset is checked, and what does not fit is answered with
an errno, or with nothing when no reply is wanted.
"""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING

from testbed.vfio_user.config import COMMAND, ConfigSpace
from testbed.vfio_user.device import MsiX
from testbed.vfio_user.memory import GuestMemory, Refused
from testbed.vfio_user.protocol import (
    DEVICE_RESET_AND_PCI,
    DMA_MAP,
    DMA_UNMAP,
    DMA_UNMAP_ALL,
    HEADER,
    INFO,
    IRQ_SET,
    MAX_DMA_MAPS,
    MAX_MESSAGE_FDS,
    MAX_TRANSFER_BYTES,
    MULTI_COUNT,
    MULTI_WRITE,
    REGION_INFO,
    REGION_READ_WRITE,
    REGION_RW,
    VERSION,
    Command,
    Header,
    Irq,
    IrqSet,
    MessageFlags,
    Region,
)

if TYPE_CHECKING:
    import struct
    from collections.abc import Callable

    from testbed.vfio_user.device import Declaration, Device
    from testbed.vfio_user.follower import Follower
    from testbed.vfio_user.interrupts import Interrupts

__all__ = ["Session"]

NO_REPLY, ERROR, TYPE = int(MessageFlags.NO_REPLY), int(MessageFlags.ERROR), int(MessageFlags.TYPE)
REPLY = int(MessageFlags.REPLY)
_CAPABILITIES = {
    "max_msg_fds": MAX_MESSAGE_FDS,
    "max_data_xfer_size": MAX_TRANSFER_BYTES,
    "max_dma_maps": MAX_DMA_MAPS,
    "write_multiple": True,
}
_ACCESS_BYTES = frozenset({1, 2, 4, 8})


class Session:
    """One client's view of one device.

    :param send: takes a whole message for the client.
    """

    def __init__(
        self,
        declaration: Declaration,
        memory: GuestMemory,
        interrupts: Interrupts,
        send: Callable[[bytes], None],
    ) -> None:
        self.config = ConfigSpace(declaration)
        self.reply_from_client: Callable[[Header, memoryview], None] = _ignore
        self.follower: Follower | None = None
        self._device: Device
        self._memory = memory
        self._interrupts = interrupts
        self._send = send
        self._bars = [0] * Region.ROM
        for bar in declaration.bars:
            self._bars[bar.index] = bar.size_bytes
        self._io = {bar.index for bar in declaration.bars if bar.io}
        self._hidden = _hidden(declaration)
        self._handlers: dict[int, Callable[[memoryview, list[int]], bytes]] = {
            Command.VERSION: self._version,
            Command.DMA_MAP: self._dma_map,
            Command.DMA_UNMAP: self._dma_unmap,
            Command.DEVICE_GET_INFO: self._device_info,
            Command.DEVICE_GET_REGION_INFO: self._region_info,
            Command.DEVICE_GET_IRQ_INFO: self._irq_info,
            Command.DEVICE_SET_IRQS: self._set_irqs,
            Command.REGION_READ: self._region_read,
            Command.REGION_WRITE: self._region_write,
            Command.DEVICE_RESET: self._reset,
            Command.REGION_WRITE_MULTI: self._write_multi,
        }

    def attach(self, device: Device) -> None:
        """Name the device, which is made after its host."""
        self._device = device

    def handle(self, header: Header, payload: memoryview, fds: list[int]) -> None:
        """Obey one message; descriptors that nobody keeps are closed.

        :param payload: what follows the header; not used after the call.
        """
        kind = header.flags & TYPE
        if kind == REPLY:
            self.reply_from_client(header, payload)
        elif not kind:
            self._obey(header, payload, fds)
        while fds:
            os.close(fds.pop())

    def end(self) -> None:
        """Forget what a client that is gone had given: its memory and eventfds. The device stays as it is."""
        self._memory.clear()
        self._interrupts.close()

    def _obey(self, header: Header, payload: memoryview, fds: list[int]) -> None:
        handler = self._handlers.get(header.command, _unsupported)
        try:
            answer = handler(payload, fds)
        except Refused as refused:
            if not header.flags & NO_REPLY:
                self._send(HEADER.pack(header.id, header.command, HEADER.size, REPLY | ERROR, refused.number))
            return
        if not header.flags & NO_REPLY:
            self._send(HEADER.pack(header.id, header.command, HEADER.size + len(answer), REPLY, 0) + answer)

    # One function for each command: payload and descriptors in, payload of the reply out

    def _version(self, payload: memoryview, _fds: list[int]) -> bytes:
        major, minor = _unpack(VERSION, payload)
        if major != 0:
            raise Refused(errno.EINVAL, f"version {major}.{minor}")
        said = json.dumps({"capabilities": _CAPABILITIES}, separators=(",", ":")).encode() + b"\0"
        # QEMU reads the reply into the room of its request.
        fits = VERSION.size + len(said) <= len(payload)
        return VERSION.pack(0, 0) + (said if fits else b"")

    def _dma_map(self, payload: memoryview, fds: list[int]) -> bytes:
        _, flags, offset, address, size = _unpack(DMA_MAP, payload)
        if len(fds) > 1:
            raise Refused(errno.EINVAL, f"{len(fds)} descriptors for one mapping")
        self._memory.map(address, size, flags, offset, fds[0] if fds else None)
        return b""

    def _dma_unmap(self, payload: memoryview, _fds: list[int]) -> bytes:
        _, flags, address, size = _unpack(DMA_UNMAP, payload)
        if flags & DMA_UNMAP_ALL:
            self._memory.clear()
        else:
            self._memory.unmap(address, size)
        return bytes(payload[: DMA_UNMAP.size])

    def _device_info(self, payload: memoryview, _fds: list[int]) -> bytes:
        _unpack(INFO, payload)
        return INFO.pack(INFO.size, DEVICE_RESET_AND_PCI, Region.COUNT, Irq.COUNT)

    def _region_info(self, payload: memoryview, _fds: list[int]) -> bytes:
        index = _unpack(REGION_INFO, payload)[2]
        if index >= Region.COUNT:
            raise Refused(errno.EINVAL, f"region {index}")
        size = self._region_bytes(index)
        return REGION_INFO.pack(REGION_INFO.size, REGION_READ_WRITE if size else 0, index, 0, size, 0)

    def _irq_info(self, payload: memoryview, _fds: list[int]) -> bytes:
        index = _unpack(INFO, payload)[2]
        if index >= Irq.ERROR:  # QEMU warns of a type with no interrupts, and not of one that there is not
            raise Refused(errno.EINVAL, f"interrupt type {index}")
        flags, count = self._interrupts.info(index)
        return INFO.pack(INFO.size, flags, index, count)

    def _set_irqs(self, payload: memoryview, fds: list[int]) -> bytes:
        _, flags, index, start, count = _unpack(IRQ_SET, payload)
        data = payload[IRQ_SET.size :] if flags & IrqSet.BOOL else b""
        self._interrupts.set(flags, index, start, count, data, fds)
        return b""

    def _region_read(self, payload: memoryview, _fds: list[int]) -> bytes:
        offset, region, count = _unpack(REGION_RW, payload)
        return REGION_RW.pack(offset, region, count) + self._read(region, offset, count)

    def _region_write(self, payload: memoryview, _fds: list[int]) -> bytes:
        offset, region, count = _unpack(REGION_RW, payload)
        data = payload[REGION_RW.size :]
        if len(data) != count:
            raise Refused(errno.EINVAL, f"{len(data)} bytes where {count} were announced")
        self._write(region, offset, data)
        return REGION_RW.pack(offset, region, count)

    def _write_multi(self, payload: memoryview, _fds: list[int]) -> bytes:
        (writes,) = _unpack(MULTI_COUNT, payload)
        body = payload[MULTI_COUNT.size :]
        if writes * MULTI_WRITE.size != len(body):
            raise Refused(errno.EINVAL, f"{len(body)} bytes for {writes} writes")
        for offset, region, count, data in MULTI_WRITE.iter_unpack(body):
            if count > len(data):
                raise Refused(errno.EINVAL, f"a write of {count} bytes among several")
            self._write(region, offset, memoryview(data)[:count])
        return MULTI_COUNT.pack(writes)

    def _reset(self, _payload: memoryview, _fds: list[int]) -> bytes:
        self.config.reset()
        self._command_changed()
        self._device.reset()
        return b""

    # Regions

    def _region_bytes(self, region: int) -> int:
        if region < Region.ROM:
            return self._bars[region]
        return self.config.size if region == Region.CONFIG else 0

    def _check(self, region: int, offset: int, count: int) -> None:
        """Let through what lies within a region and, in a BAR, is one aligned access.

        :raise Refused: anything else.
        """
        size = self._region_bytes(region) if region < Region.COUNT else 0
        if not 0 < count <= MAX_TRANSFER_BYTES or offset + count > size:
            raise Refused(errno.EINVAL, f"{count} bytes at {offset:#x} of region {region}")
        if region < Region.ROM and (count not in _ACCESS_BYTES or offset % count):
            raise Refused(errno.EINVAL, f"{count} bytes at {offset:#x} are no aligned access")

    def _read(self, region: int, offset: int, count: int) -> bytes:
        self._check(region, offset, count)
        if region == Region.CONFIG:
            return self.config.read(offset, count)
        if self._hidden and self._is_hidden(region, offset):
            return bytes(count)
        if self.follower is None:
            return self._device.read(region, offset, count).to_bytes(count, "little")
        self.follower.before_access()
        value = self._device.read(region, offset, count)
        self.follower.after_access()
        return value.to_bytes(count, "little")

    def _write(self, region: int, offset: int, data: memoryview) -> None:
        count = len(data)
        self._check(region, offset, count)
        if region == Region.CONFIG:
            self.config.write(offset, data)
            if offset <= COMMAND + 1 and offset + count > COMMAND:
                self._command_changed()
        elif not (self._hidden and self._is_hidden(region, offset)):
            if self.follower:
                self.follower.before_access()
            self._device.write(region, offset, count, int.from_bytes(data, "little"))
            if self.follower:
                self.follower.after_access()

    def _is_hidden(self, region: int, offset: int) -> bool:
        return any(region == bar and first <= offset < last for bar, first, last in self._hidden)

    def _command_changed(self) -> None:
        self._memory.set_bus_master(on=self.config.bus_master)
        self._interrupts.intx_disabled = self.config.intx_disabled


def _hidden(declaration: Declaration) -> list[tuple[int, int, int]]:
    """Return BAR, first offset and end of what is QEMU's in the BARs: the tables of MSI-X."""
    return [
        (capability.bar, first, first + size)
        for capability in declaration.capabilities
        if isinstance(capability, MsiX)
        for first, size in (
            (capability.table_offset, 16 * capability.vectors),
            (capability.pba_offset, (capability.vectors + 63) // 64 * 8),
        )
    ]


def _unpack(layout: struct.Struct, payload: memoryview) -> tuple[int, ...]:
    """Return the fixed part of a message.

    :raise Refused: the message is shorter.
    """
    if len(payload) < layout.size:
        raise Refused(errno.EINVAL, f"{len(payload)} bytes where {layout.size} are needed")
    return layout.unpack_from(payload)


def _unsupported(_payload: memoryview, _fds: list[int]) -> bytes:
    raise Refused(errno.ENOTSUP, "no such command")


def _ignore(_header: Header, _payload: memoryview) -> None:
    """Take a reply to a question that nobody asked."""
