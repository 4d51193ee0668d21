"""The checksum engine: IPv4 header, TCP, UDP and ICMP checksums, made and verified.

Frames are the guest's or the wire's: any bytes. What cannot be parsed is passed on as it is.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from testbed.dwmac.descriptors import Rx1

__all__ = ["Insert", "Packet", "insert", "internet_sum", "parse", "verify"]

TAGS = {0x8100, 0x88A8}
IPV4, IPV6 = 0x0800, 0x86DD
ICMP, TCP, UDP, ICMPV6 = 1, 6, 17, 58
_FIELD = {TCP: 16, UDP: 6, ICMP: 2, ICMPV6: 2}  # where the checksum lies in the header
_LEAST = {TCP: 20, UDP: 8, ICMP: 4, ICMPV6: 4}
_EXTENSIONS = {0, 43, 60}  # hop by hop, routing, destination options


class Insert(enum.IntEnum):
    """What a transmit descriptor asks for (TDES3, CIC)."""

    NONE = 0
    HEADER = 1
    PAYLOAD = 2  # the guest put the sum of the pseudo header into the field
    FULL = 3


@dataclass(frozen=True)
class Packet:
    """Where things lie in a frame that carries IP.

    :param protocol: of layer 4, or 0 when there is none that the engine knows or the packet is a fragment.
    :param end: of the packet; what follows is padding.
    """

    version: int
    network: int
    transport: int
    end: int
    protocol: int
    fragment: bool = False


def ether_type(frame: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Return the EtherType behind up to two VLAN tags, and where what it names begins."""
    at = 12
    kind = frame[at] << 8 | frame[at + 1] if len(frame) >= 14 else 0
    for _ in range(2):
        if kind not in TAGS or len(frame) < at + 6:
            break
        at += 4
        kind = frame[at] << 8 | frame[at + 1]
    return kind, at + 2


def parse(frame: bytes | bytearray | memoryview) -> Packet | None:
    """Return where IP lies in a frame, None when it has none or is cut short."""
    kind, at = ether_type(frame)
    if kind == IPV4:
        return _parse_v4(frame, at)
    return _parse_v6(frame, at) if kind == IPV6 else None


def _parse_v4(frame: bytes | bytearray | memoryview, at: int) -> Packet | None:
    if len(frame) < at + 20 or frame[at] >> 4 != 4:
        return None
    header, total = (frame[at] & 15) * 4, frame[at + 2] << 8 | frame[at + 3]
    if header < 20 or total < header or at + total > len(frame):
        return None
    fragment = bool((frame[at + 6] << 8 | frame[at + 7]) & 0x3FFF)
    protocol = 0 if fragment else _known(frame[at + 9], total - header)
    return Packet(4, at, at + header, at + total, protocol, fragment)


def _parse_v6(frame: bytes | bytearray | memoryview, at: int) -> Packet | None:
    if len(frame) < at + 40 or frame[at] >> 4 != 6:
        return None
    end = at + 40 + (frame[at + 4] << 8 | frame[at + 5])
    following, transport = frame[at + 6], at + 40
    if end > len(frame):
        return None
    while following in _EXTENSIONS and transport + 8 <= end:
        following, transport = frame[transport], transport + 8 + frame[transport + 1] * 8
    if transport > end:
        return None
    return Packet(6, at, transport, end, _known(following, end - transport), following == 44)


def _known(protocol: int, length: int) -> int:
    return protocol if length >= _LEAST.get(protocol, 1 << 16) else 0


def internet_sum(data: bytes | bytearray | memoryview) -> int:
    """Return the ones' complement sum of 16-bit words (RFC 1071), 0 only for zeroes."""
    number = int.from_bytes(data, "big") << (8 if len(data) % 2 else 0)
    return number and (number % 0xFFFF or 0xFFFF)


def _pseudo(frame: bytes | bytearray | memoryview, packet: Packet) -> int:
    addresses = slice(12, 20) if packet.version == 4 else slice(8, 40)
    header = bytes(frame[packet.network : packet.network + 40])[addresses]
    return internet_sum(header) + packet.protocol + packet.end - packet.transport


def insert(frame: bytearray, what: int) -> None:
    """Fill in the checksums of a frame to be sent, in place."""
    packet = parse(frame)
    if packet is None or what == Insert.NONE:
        return
    if packet.version == 4:
        at = packet.network + 10
        frame[at : at + 2] = b"\0\0"
        frame[at : at + 2] = _complement(internet_sum(frame[packet.network : packet.transport]))
    if what == Insert.HEADER or not packet.protocol:
        return
    at = packet.transport + _FIELD[packet.protocol]
    start = 0
    if what == Insert.FULL:
        frame[at : at + 2] = b"\0\0"
        start = _pseudo(frame, packet) if packet.protocol != ICMP else 0
    value = _complement(start + internet_sum(frame[packet.transport : packet.end]))
    if packet.protocol == UDP and value == b"\0\0":
        value = b"\xff\xff"
    frame[at : at + 2] = value


def verify(frame: bytes) -> tuple[int, Packet | None]:
    """Return what word 1 of a receive descriptor says of a frame, and the packet."""
    packet = parse(frame)
    if packet is None:
        return int(Rx1.BYPASSED), None
    status = int(Rx1.IPV4 if packet.version == 4 else Rx1.IPV6)
    if packet.version == 4 and internet_sum(frame[packet.network : packet.transport]) != 0xFFFF:
        return status | Rx1.HEADER_ERROR, packet
    if not packet.protocol:
        return status | Rx1.BYPASSED, packet
    status |= {TCP: Rx1.TCP, UDP: Rx1.UDP}.get(packet.protocol, Rx1.ICMP)
    if not _payload_intact(frame, packet):
        status |= Rx1.PAYLOAD_ERROR
    return status, packet


def _payload_intact(frame: bytes, packet: Packet) -> bool:
    at = packet.transport
    if packet.protocol == UDP and frame[at + 6 : at + 8] == b"\0\0":
        return packet.version == 4  # the sender did not make one, which IPv6 does not allow
    start = 0 if packet.protocol == ICMP else _pseudo(frame, packet)
    return _complement(start + internet_sum(frame[at : packet.end])) == b"\0\0"


def _complement(total: int) -> bytes:
    folded = total % 0xFFFF or (0xFFFF if total else 0)
    return (0xFFFF - folded).to_bytes(2, "big")
