"""A small NIC: as much of Realtek's RTL8139C as the kernel's 8139too needs. See docs/adding-a-nic.md."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from testbed.vfio_user import Bar, Declaration, Device, DeviceEvent, DmaFault, Identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.vfio_user import Host

TX_STATUS, TX_ADDRESS, RX_RING, COMMAND, RX_READ, RX_WRITE = 0x10, 0x20, 0x30, 0x37, 0x38, 0x3A
MASK, STATUS, TX_CONFIG, EEPROM, LINK_STATUS = 0x3C, 0x3E, 0x40, 0x50, 0x64
RESET, RX_ON, RX_EMPTY = 0x10, 0x08, 0x01
RX_OK, TX_OK, RX_FULL = 0x01, 0x04, 0x10
SENT, ABORTED = 0xA000, 0x40002000
RING_BYTES = 32768
READ_ONLY = (*range(TX_CONFIG, TX_CONFIG + 4), LINK_STATUS, LINK_STATUS + 1, RX_WRITE, RX_WRITE + 1)


class Rtl8139(Device):
    """Four Tx buffers, an Rx ring of bytes, and INTx."""

    declaration = Declaration(
        Identity(vendor=0x10EC, device=0x8139, revision=0x10),
        bars=(Bar(0, 256, io=True), Bar(1, 256)),
    )

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.registers = bytearray(256)
        self.reset()
        host.wire.listen(self.receive, ready=self.update)

    def reset(self) -> None:
        self.registers[:] = bytes(256)
        self.registers[:6] = self.host.mac
        self.set(TX_CONFIG, 4, 0x74000000)  # this is an RTL8139C
        self.set(LINK_STATUS, 2, 0x782D)  # the link is up, negotiation done
        self.set(RX_READ, 2, 0xFFF0)  # always 16 bytes behind
        self.eeprom_clocks, self.eeprom_bits = 0, 0
        self.update()

    def get(self, offset: int, size: int) -> int:
        return int.from_bytes(self.registers[offset : offset + size], "little")

    def set(self, offset: int, size: int, value: int) -> None:
        self.registers[offset : offset + size] = value.to_bytes(size, "little")

    def read(self, bar: int, offset: int, size: int) -> int:
        return self.get(offset, size)

    def write(self, bar: int, offset: int, size: int, value: int) -> None:
        if offset == STATUS:
            self.set(STATUS, 2, self.get(STATUS, 2) & ~value)  # write 1 to clear
        elif offset == COMMAND and value & RESET:
            self.reset()
        elif offset == EEPROM:
            self.clock_eeprom(value)
        elif not any(offset <= at < offset + size for at in READ_ONLY):
            self.set(offset, size, value)
        if size == 4 and TX_STATUS <= offset < TX_ADDRESS:
            self.host.call_at(0, lambda: self.transmit((offset - TX_STATUS) // 4))
        self.update()

    def update(self) -> None:
        """Derive what depends on the other registers: the flag of an empty ring, and the interrupt."""
        empty = self.waiting() == 0
        self.registers[COMMAND] = self.registers[COMMAND] & ~RX_EMPTY | (RX_EMPTY if empty else 0)
        self.host.level(high=bool(self.get(STATUS, 2) & self.get(MASK, 2)))

    def waiting(self) -> int:
        """Return how many bytes of the Rx ring the driver has not read."""
        return (self.get(RX_WRITE, 2) - self.get(RX_READ, 2) - 16) % RING_BYTES

    def transmit(self, number: int) -> None:
        status, address = (self.get(base + 4 * number, 4) for base in (TX_STATUS, TX_ADDRESS))
        if status & SENT:
            return  # one write after the other, and this one has been served
        try:
            frame = bytes(self.host.memory.view(address, status & 0x1FFF))
        except DmaFault:
            frame = b""
        if frame:
            self.host.wire.send(frame)
        self.host.record(DeviceEvent.TX_DONE, a=number, b=len(frame), c=address)
        self.set(TX_STATUS + 4 * number, 4, status | (SENT if frame else ABORTED))
        self.raise_cause(TX_OK)

    def receive(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            data = struct.pack("<HH", 1, max(len(frame), 60) + 4) + frame.ljust(60, b"\0") + bytes(4)
            data += bytes(-len(data) % 4)
            start = self.get(RX_WRITE, 2)
            room = RING_BYTES - 4 - self.waiting() if self.registers[COMMAND] & RX_ON else 0
            if len(data) <= min(room, 2048) and self.store(self.get(RX_RING, 4) + start, data):
                self.set(RX_WRITE, 2, (start + len(data)) % RING_BYTES)
                self.host.record(DeviceEvent.RX_DONE, a=start, b=len(frame))
                self.raise_cause(RX_OK)
            else:
                self.host.record(DeviceEvent.DROPPED, b=len(frame))
                self.raise_cause(RX_FULL)

    def store(self, address: int, data: bytes) -> bool:
        try:
            self.host.memory.view(address, len(data))[:] = data
        except DmaFault:
            return False
        return True

    def raise_cause(self, cause: int) -> None:
        self.set(STATUS, 2, self.get(STATUS, 2) | cause)
        self.update()

    def clock_eeprom(self, value: int) -> None:
        """Be a 93C46 whose words 7 to 9 hold the MAC address: nine bits in, a start bit first; sixteen bits out."""
        chip_select, clock, data_in = value & 8, value & 4, value >> 1 & 1
        if not chip_select:
            self.eeprom_clocks, self.eeprom_bits = 0, 0
        elif clock and (self.eeprom_clocks or data_in):
            self.eeprom_clocks += 1
            if self.eeprom_clocks <= 9:
                self.eeprom_bits = self.eeprom_bits << 1 | data_in
        word = (self.eeprom_bits & 0x3F) * 2 - 14
        content = int.from_bytes(self.host.mac[word : word + 2], "little") if 0 <= word < 6 else 0
        bit = 25 - self.eeprom_clocks
        self.registers[EEPROM] = value & 0xFE | (content >> bit & 1 if 0 <= bit < 16 else 0)

    def save(self) -> bytes:
        return bytes(self.registers)

    def load(self, state: bytes) -> None:
        if len(state) != len(self.registers):
            raise ValueError("not the registers of an RTL8139")
        self.registers[:] = state
        self.update()
