"""The MAC management counters (MMC, RFC 2819 and the like), which the driver reads for ethtool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.dwmac.descriptors import Rx1
from testbed.dwmac.registers import REGISTERS, Bits

if TYPE_CHECKING:
    import array

    from testbed.dwmac.checksum import Packet

__all__ = ["FCS_BYTES", "Counters"]

FCS_BYTES = 4
MAX_FRAME_BYTES = 1518
_CONTROL = 0x700 >> 2
_AT = {name: register.offset >> 2 for name, register in REGISTERS.items() if name.startswith("MMC_")}
_SIZES = ((64, "64"), (127, "65_127"), (255, "128_255"), (511, "256_511"), (1023, "512_1023"))
BROADCAST = b"\xff" * 6


def _by_length(direction: str) -> list[int]:
    """Return for each length, up to 1024 bytes, the place of its counter."""
    table = []
    for length in range(1025):
        name = next((name for most, name in _SIZES if length <= most), "1024_MAX")
        table.append(_AT[f"MMC_{direction}_{name}_GB"])
    return table


_TX_LENGTHS, _RX_LENGTHS = _by_length("TX"), _by_length("RX")


class Counters:
    """Counts frames into the registers.

    :param words: the register file.
    """

    def __init__(self, words: array.array[int]) -> None:
        self._words = words

    def control(self, asked: int) -> None:
        """Do what a write to MMC_Control asks; a preset that comes with a reset gives way to it."""
        if asked & Bits.MMC_RESET:
            for at in _AT.values():
                if at > 0x710 >> 2 and at not in {0x800 >> 2, 0x808 >> 2}:
                    self._words[at] = 0

    def add(self, name: str, count: int = 1) -> None:
        """Count one thing, by its register's name without MMC_."""
        self._add(_AT[f"MMC_{name}"], count)

    def _add(self, at: int, count: int = 1) -> None:
        if not self._words[_CONTROL] & Bits.MMC_FREEZE:
            self._words[at] = (self._words[at] + count) & 0xFFFFFFFF

    def sent(self, frame: bytes | bytearray | memoryview) -> None:
        """Count a frame that left; its length is meant with FCS."""
        length = max(len(frame), 60) + FCS_BYTES
        for suffix in ("GB", "G"):
            self._add(_AT[f"MMC_TX_PACKETS_{suffix}"])
            self._add(_AT[f"MMC_TX_OCTETS_{suffix}"], length)
        self._add(_TX_LENGTHS[min(length, 1024)])
        if not frame[0] & 1:
            self._add(_AT["MMC_TX_UNICAST_GB"])
        else:
            kind = "BROADCAST" if frame[:6] == BROADCAST else "MULTICAST"
            self._add(_AT[f"MMC_TX_{kind}_GB"])
            self._add(_AT[f"MMC_TX_{kind}_G"])
        if length > MAX_FRAME_BYTES:
            self._add(_AT["MMC_TX_OVERSIZE_G"])

    def received(self, frame: bytes, *, good: bool) -> None:
        """Count a frame that came; its length is meant with FCS."""
        length = len(frame) + FCS_BYTES
        self._add(_AT["MMC_RX_PACKETS_GB"])
        self._add(_AT["MMC_RX_OCTETS_GB"], length)
        self._add(_RX_LENGTHS[min(length, 1024)])
        if not good:
            return
        self._add(_AT["MMC_RX_OCTETS_G"], length)
        if not frame[0] & 1:
            self._add(_AT["MMC_RX_UNICAST_G"])
        elif frame[:6] == BROADCAST:
            self._add(_AT["MMC_RX_BROADCAST_G"])
        else:
            self._add(_AT["MMC_RX_MULTICAST_G"])
        if length > MAX_FRAME_BYTES:
            self._add(_AT["MMC_RX_OVERSIZE_G"])

    def parsed(self, status: int, packet: Packet) -> None:
        """Count what the checksum engine found in a received packet."""
        family = f"RX_IPV{packet.version}"
        if status & Rx1.HEADER_ERROR:
            self.add(f"{family}_HEADER_ERROR")
            return
        self.add(f"{family}_GOOD")
        if packet.fragment and packet.version == 4:
            self.add(f"{family}_FRAGMENTED")
        kind = {int(Rx1.UDP): "UDP", int(Rx1.TCP): "TCP", int(Rx1.ICMP): "ICMP"}.get(status & 7)
        if kind:
            self.add(f"RX_{kind}_{'ERROR' if status & Rx1.PAYLOAD_ERROR else 'GOOD'}")
        elif not packet.fragment:
            self.add(f"{family}_NO_PAYLOAD")
