"""Normal descriptors in ring mode: four words each, and what their bits mean.

Sources: databook 5.10a, chapter on descriptors; the kernel's dwmac4_descs.h names the same bits.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.dwmac.registers import Bits, channel

if TYPE_CHECKING:
    import array

    from testbed.vfio_user import Host

__all__ = ["OWN", "Ring", "Rx1", "Rx3", "Tx2", "Tx3"]

OWN = 1 << 31
ADDRESS_MASK = (1 << 40) - 1
RING_MASK = 0x3FF  # of the ring length registers: 1024 descriptors at most
NORMAL_BYTES, EXTENDED_BYTES = 16, 32


class Tx2(enum.IntFlag):
    """Word 2 of a transmit descriptor, read format; lengths lie in bits 0 to 13 and 16 to 29."""

    LENGTH1 = 0x3FFF
    TIMESTAMP = 1 << 30
    INTERRUPT = 1 << 31


class Tx3(enum.IntFlag):
    """Word 3 of a transmit descriptor."""

    LENGTH = 0x7FFF
    PAYLOAD = 0x3FFFF  # of a frame to be segmented
    CONTEXT_TAG = 1 << 16
    TIMESTAMPED = 1 << 17  # write-back format
    SEGMENT = 1 << 18
    CONTEXT_MSS = 1 << 26
    LAST = 1 << 28
    FIRST = 1 << 29
    CONTEXT = 1 << 30
    KEPT = LAST | FIRST | CONTEXT  # what the write-back leaves of the read format
    ERROR = 1 << 15
    NO_CARRIER = 1 << 10
    UNDERFLOW = 1 << 2


class Rx1(enum.IntFlag):
    """Word 1 of a receive descriptor, write-back format: what the payload is."""

    UDP = 1
    TCP = 2
    ICMP = 3
    HEADER_ERROR = 1 << 3
    IPV4 = 1 << 4
    IPV6 = 1 << 5
    BYPASSED = 1 << 6
    PAYLOAD_ERROR = 1 << 7
    PTP_ETHERNET = 1 << 12
    PTP_V2 = 1 << 13
    TIMESTAMP = 1 << 14


class Rx3(enum.IntFlag):
    """Word 3 of a receive descriptor."""

    BUFFER1 = 1 << 24  # read format
    BUFFER2 = 1 << 25
    INTERRUPT = 1 << 30
    LENGTH = 0x7FFF  # write-back format
    SUMMARY = 1 << 15
    TAGGED = 0b100 << 16  # the type of the frame: a VLAN tag
    DOUBLE_TAGGED = 0b101 << 16
    TYPE = 0b011 << 16
    RECEIVE_ERROR = 1 << 20
    OVERFLOW = 1 << 21
    WATCHDOG = 1 << 22
    GIANT = 1 << 23
    CRC = 1 << 24
    WORD0 = 1 << 25
    WORD1 = 1 << 26
    WORD2 = 1 << 27
    LAST = 1 << 28
    FIRST = 1 << 29
    CONTEXT = 1 << 30


@dataclass(frozen=True)
class Ring:
    """Where a channel's descriptors lie, by the registers that the guest wrote: nothing here is to be trusted.

    :param words: four-byte words from one descriptor to the next. :param skip: words before the four that count.
    """

    base: int
    length: int
    words: int
    skip: int

    @classmethod
    def transmit(cls, registers: array.array[int], number: int) -> Ring:
        """Read the registers of a transmit channel."""
        at = channel(number) >> 2
        extended = bool(registers[at + 1] & Bits.TX_EDSE)
        base = (registers[at + 4] << 32 | registers[at + 5]) & ADDRESS_MASK & ~0xF
        return cls(base, (registers[at + 11] & RING_MASK) + 1, 8 if extended else 4, 4 if extended else 0)

    @classmethod
    def receive(cls, registers: array.array[int], number: int) -> Ring:
        """Read the registers of a receive channel."""
        at = channel(number) >> 2
        base = (registers[at + 6] << 32 | registers[at + 7]) & ADDRESS_MASK & ~0xF
        return cls(base, (registers[at + 12] & RING_MASK) + 1, 4, 0)

    def view(self, host: Host) -> memoryview:
        """Return all descriptors as words.

        :raise DmaFault: they do not lie in the guest's memory.
        """
        return host.memory.view(self.base, self.length * self.words * 4).cast("I")

    def index(self, tail: int) -> int:
        """Return which descriptor a tail pointer (the low 32 bits of an address) names; it may be any number."""
        return ((tail - self.base) & 0xFFFFFFFF) // (self.words * 4) % self.length
