"""Which frames are PTP, and which of them get a timestamp (IEEE 1588, MAC_Timestamp_Control)."""

from __future__ import annotations

from testbed.dwmac import checksum
from testbed.dwmac.descriptors import Rx1
from testbed.dwmac.registers import Bits

__all__ = ["classify"]

PORTS = {319, 320}
PTP_ETHERTYPE = 0x88F7
_EVENTS = {0x0, 0x1, 0x2, 0x3}  # Sync, Delay_Req, Pdelay_Req, Pdelay_Resp
# What RDES1 (PMT) calls the message types of the standard.
_NAMED = {0x0: 1, 0x8: 2, 0x1: 3, 0x9: 4, 0x2: 5, 0x3: 6, 0xA: 7, 0xB: 8, 0xD: 9, 0xC: 10}
_ALL_TYPES, _PEER = 1, 3  # of SNAPTYPSEL


def classify(frame: bytes, control: int) -> tuple[int, bool]:
    """Return what word 1 of a receive descriptor says of a PTP message, and whether the frame gets a timestamp.

    :param control: MAC_Timestamp_Control.
    """
    every = bool(control & Bits.TIME_ENALL)
    at, ethernet = _message(frame, control)
    if at is None or len(frame) < at + 2:
        return 0, every
    kind, version = frame[at] & 15, frame[at + 1] & 15
    if (version == 2) != bool(control & Bits.TIME_V2):
        return 0, every
    status = (
        _NAMED.get(kind, 15) << 8
        | (Rx1.PTP_ETHERNET if ethernet else 0)
        | (Rx1.PTP_V2 if version == 2 else 0)
    )
    return int(status), every or _wanted(kind, control)


def _message(frame: bytes, control: int) -> tuple[int | None, bool]:
    """Return where a PTP message begins, None without one, and whether it comes straight over Ethernet."""
    kind, at = checksum.ether_type(frame)
    if kind == PTP_ETHERTYPE:
        return (at if control & Bits.TIME_ETHERNET else None), True
    packet = checksum.parse(frame)
    if packet is None or packet.protocol != checksum.UDP:
        return None, False
    asked = control & (Bits.TIME_IPV4 if packet.version == 4 else Bits.TIME_IPV6)
    port = frame[packet.transport + 2] << 8 | frame[packet.transport + 3]
    return (packet.transport + 8 if asked and port in PORTS else None), False


def _wanted(kind: int, control: int) -> bool:
    selected = control >> 16 & 3
    if selected == _ALL_TYPES and not control & Bits.TIME_EVENT:
        return kind in _NAMED
    if selected == _ALL_TYPES:
        return kind in {0x0, 0x2, 0x3}
    if selected == _PEER:
        return kind in {0x2, 0x3}
    if control & Bits.TIME_MASTER:
        return kind == 0x1
    return kind in (_EVENTS if not control & Bits.TIME_EVENT else {0x0})
