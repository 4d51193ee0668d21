"""TCP segmentation (and that of UDP): one frame of headers and much payload becomes frames of MSS bytes each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.dwmac import checksum
from testbed.dwmac.checksum import TCP, Insert

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LEAST_MSS", "segments"]

LEAST_MSS = 64  # below it a descriptor could ask for frames without end (databook 5.10a, TDES2 of a context)
_FIN_PSH, _CWR = 0x09, 0x80


def segments(header: bytes, payload: bytes, mss: int) -> Iterator[bytearray]:
    """Yield the frames of one that is to be segmented; none when its headers are no TCP or UDP over IP.

    :param header: Ethernet to TCP or UDP, the lengths and checksums in it of no meaning.
    :param mss: bytes of payload in each frame but the last.
    """
    mss = max(mss, LEAST_MSS)
    starts = range(0, max(len(payload), 1), mss)
    for number, start in enumerate(starts):
        frame = bytearray(header) + payload[start : start + mss]
        if not _set_lengths(frame, len(header), number):
            return
        packet = checksum.parse(frame)
        if packet is None or packet.protocol not in {TCP, checksum.UDP}:
            return
        if packet.protocol == TCP:
            _set_tcp(frame, packet.transport, start, first=number == 0, last=start == starts[-1])
        else:
            length = len(frame) - packet.transport
            frame[packet.transport + 4 : packet.transport + 6] = length.to_bytes(2, "big")
        checksum.insert(frame, Insert.FULL)
        yield frame


def _set_lengths(frame: bytearray, header_bytes: int, number: int) -> bool:
    kind, at = checksum.ether_type(frame)
    length = len(frame) - at
    if kind == checksum.IPV4 and header_bytes >= at + 20 and length < 1 << 16:
        identification = (frame[at + 4] << 8 | frame[at + 5]) + number
        frame[at + 2 : at + 6] = length.to_bytes(2, "big") + (identification & 0xFFFF).to_bytes(2, "big")
        return True
    if kind == checksum.IPV6 and header_bytes >= at + 40 and length - 40 < 1 << 16:
        frame[at + 4 : at + 6] = (length - 40).to_bytes(2, "big")
        return True
    return False


def _set_tcp(frame: bytearray, at: int, offset: int, *, first: bool, last: bool) -> None:
    sequence = int.from_bytes(frame[at + 4 : at + 8], "big") + offset
    frame[at + 4 : at + 8] = (sequence & 0xFFFFFFFF).to_bytes(4, "big")
    if not last:
        frame[at + 13] &= ~_FIN_PSH & 0xFF
    if not first:
        frame[at + 13] &= ~_CWR & 0xFF
