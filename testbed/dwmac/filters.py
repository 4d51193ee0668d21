"""Which received frames the MAC takes, and to which queue they go."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.dwmac.checksum import ether_type
from testbed.dwmac.registers import CHANNELS, MAC_ADDRESSES, VLAN_FILTERS, Bits

if TYPE_CHECKING:
    import array

__all__ = ["Filters", "Pass"]

BROADCAST = b"\xff" * 6
PTP, AV, LLDP = 0x88F7, 0x22F0, 0x88CC
_FILTER, _HASH, _VLAN_TAG, _VLAN_HASH = 0x08 >> 2, 0x10 >> 2, 0x50 >> 2, 0x58 >> 2
_CTRL0, _CTRL1, _CTRL2, _CTRL4, _MAP = 0xA0 >> 2, 0xA4 >> 2, 0xA8 >> 2, 0x94 >> 2, 0xC30 >> 2
_VEN, _ETV = 1 << 16, 1 << 17


@dataclass(frozen=True)
class Pass:
    """What the filters say of a frame that the MAC takes.

    :param fits: whether it passed; promiscuous modes take others too.
    :param selected: the DMA channel that the matching address names, or None.
    """

    fits: bool = True
    selected: int | None = None


class Filters:
    """Address and VLAN filters and queue routing, as the registers say.

    ``forced``, when not None, is the queue of every frame: the test's hand, in place of a flexible parser.

    :param words: the register file.
    """

    def __init__(self, words: array.array[int]) -> None:
        self._words = words
        self.forced: int | None = None
        self.reset()

    def reset(self) -> None:
        """Forget the VLAN filters, which lie behind two registers."""
        self.vlans = [0] * VLAN_FILTERS
        self.changed()

    def changed(self) -> None:
        """Follow a change of a filter register."""
        self._perfect: dict[bytes, int | None] | None = None

    def access_vlans(self, tag: int) -> None:
        """Read or write the VLAN filter that MAC_VLAN_Tag names (its OFS field)."""
        index = tag >> 2 & 31
        data = 0x54 >> 2
        if index >= VLAN_FILTERS:
            return
        if tag & Bits.VLAN_CT:
            self._words[data] = self.vlans[index]
        else:
            self.vlans[index] = self._words[data]

    # Is it ours?

    def take(self, frame: bytes) -> Pass | None:
        """Return what the filters say of a frame, None when the MAC drops it."""
        value = self._words[_FILTER]
        if not self._vlan_fits(frame, value):
            return Pass(fits=False) if value & Bits.FILTER_RA else None
        destination = frame[:6]
        addresses = self._addresses() if self._perfect is None else self._perfect
        if value & Bits.FILTER_PR:
            return Pass(destination in addresses, addresses.get(destination))
        fits = self._destination_fits(destination, value, addresses)
        if value & Bits.FILTER_DAIF and not destination[0] & 1:
            fits = not fits
        if fits:
            return Pass(selected=addresses.get(destination))
        return Pass(fits=False) if value & Bits.FILTER_RA else None

    def _destination_fits(self, destination: bytes, value: int, addresses: dict[bytes, int | None]) -> bool:
        if destination == BROADCAST:
            return not value & Bits.FILTER_DBF
        if destination[0] & 1 and value & Bits.FILTER_PM:
            return True
        hashed = value & (Bits.FILTER_HMC if destination[0] & 1 else Bits.FILTER_HUC)
        perfect = destination in addresses
        if hashed:
            return self._in_hash(destination) or bool(value & Bits.FILTER_HPF and perfect)
        return perfect

    def _addresses(self) -> dict[bytes, int | None]:
        """Return the perfect addresses, each with the channel that it selects."""
        found: dict[bytes, int | None] = {}
        for index in range(MAC_ADDRESSES):
            high, low = self._words[(0x300 >> 2) + 2 * index], self._words[(0x304 >> 2) + 2 * index]
            if high & 1 << 31 or index == 0:
                address = low.to_bytes(4, "little") + (high & 0xFFFF).to_bytes(2, "little")
                found.setdefault(address, high >> 16 & 7)
        self._perfect = found
        return found

    def _in_hash(self, destination: bytes) -> bool:
        bit = _reversed(zlib.crc32(destination)) >> 26
        return bool(self._words[_HASH + (bit >> 5)] >> (bit & 31) & 1)

    def _vlan_fits(self, frame: bytes, value: int) -> bool:
        if not value & Bits.FILTER_VTFE or frame[12:14] not in {b"\x81\x00", b"\x88\xa8"} or len(frame) < 16:
            return True
        tag = self._words[_VLAN_TAG]
        hashed = bool(tag & Bits.VLAN_VTHM)
        filters = [entry for entry in self.vlans if entry & _VEN]
        if not filters and not hashed:
            return True
        control = frame[14] << 8 | frame[15]
        fits = any(not (entry ^ control) & (0xFFF if entry & _ETV else 0xFFFF) for entry in filters)
        if hashed and not fits:
            fits = bool(self._words[_VLAN_HASH] >> _vlan_hash(control & 0xFFF) & 1)
        return fits != bool(tag & Bits.VLAN_VTIM)

    # Where does it go?

    def queue(self, frame: bytes, passed: Pass) -> int | None:
        """Return the queue of a frame that was taken, None when that one is not enabled."""
        number = self.forced if self.forced is not None else self._route(frame, passed)
        number %= CHANNELS
        return number if self._words[_CTRL0] >> 2 * number & 3 else None

    def channel(self, number: int, passed: Pass) -> int:
        """Return the DMA channel that serves a queue for a frame."""
        mapping = self._words[_MAP] >> 8 * number
        if mapping & 0x10 and passed.selected is not None:
            return passed.selected % CHANNELS
        return (mapping & 7) % CHANNELS

    def _route(self, frame: bytes, passed: Pass) -> int:
        control1, control4 = self._words[_CTRL1], self._words[_CTRL4]
        group = frame[0] & 1
        if not passed.fits and control4 & (1 << 8 if group else 1):
            return control4 >> (9 if group else 1) & 7
        if group and control1 & 1 << 20:
            return control1 >> 16 & 7
        if frame[12:14] == b"\x81\x00" and len(frame) >= 16:
            return self._by_priority(frame[14] >> 5)
        kind, _ = ether_type(frame)
        shift = {AV: 0, PTP: 4, LLDP: 8}.get(kind, 12)
        return control1 >> shift & 7

    def _by_priority(self, priority: int) -> int:
        priorities = self._words[_CTRL2]
        for number in range(CHANNELS):
            if priorities >> 8 * number >> priority & 1:
                return number
        return 0


def _reversed(value: int) -> int:
    return int(f"{value:032b}"[::-1], 2)


def _vlan_hash(identifier: int) -> int:
    """Return the upper four bits of the CRC over the 12 bits of a VLAN identifier, lowest bit first."""
    crc = 0xFFFFFFFF
    for bit in range(12):
        odd = (crc ^ identifier >> bit) & 1
        crc = crc >> 1 ^ (0xEDB88320 if odd else 0)
    return _reversed(~crc & 0xFFFFFFFF) >> 28
