"""Plays the driver of a DesignWare EQOS: sets it up, gives it descriptors, and looks at what it made of them."""

from __future__ import annotations

import struct

from testbed.dwmac import DwmacIntel, Eqos
from testbed.dwmac.registers import REGISTERS
from testbed.vfio_user.fake import FakeHost

OWN = 1 << 31
FIRST, LAST, CONTEXT = 1 << 29, 1 << 28, 1 << 30
RING, BUFFERS = 0x10000, 0x100000
BUFFER_BYTES = 2048
MAC = bytes.fromhex("020000000002")
PEER = bytes.fromhex("020000000001")


def frame(length: int = 64, *, to: bytes = MAC, kind: bytes = b"\x88\xb5", fill: int = 0) -> bytes:
    """Return an Ethernet frame without FCS."""
    return (to + PEER + kind).ljust(length, bytes([fill]))


class Driver:
    """One channel in use, with rings of ``ring`` descriptors each."""

    def __init__(self, ring: int = 16, number: int = 0, model: type[Eqos] = DwmacIntel) -> None:
        self.host = FakeHost()
        self.device = model(self.host)
        self.ring, self.number = ring, number
        self.tx_next = self.rx_next = 0
        self.stride = 16

    def write(self, name: str, value: int) -> None:
        self.device.write(0, REGISTERS[self.name(name)].offset, 4, value)

    def read(self, name: str) -> int:
        return self.device.read(0, REGISTERS[self.name(name)].offset, 4)

    def name(self, name: str) -> str:
        return name.replace("DMA_CH_", f"DMA_CH{self.number}_").replace("MTL_Q_", f"MTL_Q{self.number}_")

    def up(self, *, riwt: int = 0xA0, fifo_blocks: int = 15, enable: int = 0xD0C1) -> Driver:
        """Do what the kernel's driver does when the interface comes up."""
        self.write("DMA_MODE", 1)
        self.write("DMA_MODE", 1 << 16)
        self.write("DMA_SYSBUS_MODE", 1 << 11)
        base = RING + 0x10000 * self.number
        self.write("DMA_CH_TXDESC_LIST_ADDRESS", base)
        self.write("DMA_CH_RXDESC_LIST_ADDRESS", base + 0x8000)
        self.write("DMA_CH_TXDESC_RING_LENGTH", self.ring - 1)
        self.write("DMA_CH_RXDESC_RING_LENGTH", self.ring - 1)
        self.write("DMA_CH_RX_INTERRUPT_WATCHDOG_TIMER", riwt)
        self.write("DMA_CH_INTERRUPT_ENABLE", enable)
        self.write("MTL_RXQ_DMA_MAP0", 0x03020100)
        self.write("MAC_RXQ_CTRL0", 0xAA)
        self.write("MTL_Q_RX_OPERATION_MODE", fifo_blocks << 20 | 1 << 7 | 3 << 14 | 1 << 8)
        self.write("MAC_CONFIGURATION", 1 << 16 | 3)
        self.write("DMA_CH_RX_CONTROL", BUFFER_BYTES | 1)
        self.write("DMA_CH_TX_CONTROL", self.device.registers.words[0x1104 >> 2] | 1)
        self.run()
        return self

    def run(self, for_ns: int = 0) -> None:
        self.host.run(for_ns)

    # Descriptors

    def tx_at(self, index: int) -> int:
        return RING + 0x10000 * self.number + index % self.ring * self.stride + self.stride - 16

    def rx_at(self, index: int) -> int:
        return RING + 0x10000 * self.number + 0x8000 + index % self.ring * 16

    def words(self, address: int) -> tuple[int, ...]:
        return struct.unpack_from("<4I", self.host.memory.data, address)

    def set_words(self, address: int, *words: int) -> None:
        struct.pack_into("<4I", self.host.memory.data, address, *words)

    def rx_buffer(self, index: int) -> int:
        return BUFFERS + index % self.ring * BUFFER_BYTES

    def tx_buffer(self, index: int) -> int:
        return BUFFERS + 0x400000 + index % self.ring * 16384

    def give(self, count: int = 1, *, interrupt: bool = False) -> None:
        """Give the device empty receive buffers."""
        for _ in range(count):
            word3 = OWN | 1 << 24 | (1 << 30 if interrupt else 0)
            self.set_words(self.rx_at(self.rx_next), self.rx_buffer(self.rx_next), 0, 0, word3)
            self.rx_next += 1
        self.write("DMA_CH_RXDESC_TAIL_POINTER", self.rx_at(self.rx_next))
        self.run()

    def queue_words(self, *words: int) -> int:
        """Put one transmit descriptor into the ring; return its place."""
        index = self.tx_next
        self.set_words(self.tx_at(index), *words)
        self.tx_next += 1
        return index

    def queue(self, data: bytes, *, interrupt: bool = False, word2: int = 0, word3: int = 0) -> int:
        """Queue a frame in one descriptor."""
        address = self.tx_buffer(self.tx_next)
        self.host.memory.data[address : address + len(data)] = data
        word2 |= len(data) | (1 << 31 if interrupt else 0)
        return self.queue_words(address, 0, word2, word3 | OWN | FIRST | LAST | len(data))

    def kick(self) -> None:
        self.write("DMA_CH_TXDESC_TAIL_POINTER", self.tx_at(self.tx_next))
        self.run()

    def send(self, *frames: bytes, interrupt: bool = False) -> None:
        for data in frames:
            self.queue(data, interrupt=interrupt)
        self.kick()

    def tx_status(self, index: int) -> int:
        return self.words(self.tx_at(index))[3]

    def rx_status(self, index: int) -> int:
        return self.words(self.rx_at(index))[3]

    def received(self, index: int) -> bytes:
        """Return what a receive descriptor says it holds, FCS included."""
        length = self.rx_status(index) & 0x7FFF
        address = self.rx_buffer(index)
        return bytes(self.host.memory.data[address : address + length])

    def arrive(self, *frames: bytes) -> None:
        self.host.wire.arrive(*frames)
        self.run()
