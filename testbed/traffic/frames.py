"""Numbered frames: an Ethernet header, struct tb_payload of images/agent/protocol.h, and a filling.

The filling depends on the sequence number, so that a stale buffer cannot look right. The checksum is zlib's
crc32 of the frame from offset 14 on, with the checksum's own field 0.

Frames of the user's own keep their bytes and carry their number behind them, in struct tb_trailer.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from testbed.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ETHERTYPE",
    "HOST_MAC",
    "MAGIC",
    "MAX_FRAME_BYTES",
    "MIN_FRAME_BYTES",
    "Numbered",
    "numbered_behind",
    "numbered_frames",
    "parse",
]

ETHERTYPE = 0x88B5  # TB_ETHERTYPE: IEEE 802, local experimental
MAGIC = 0x44454254  # TB_MAGIC
HOST_MAC = "02:00:00:00:00:01"  # as images/agent/frame.c has it
HEADER_BYTES = 14
FILLING_AT = HEADER_BYTES + 16
CHECKSUM_AT = HEADER_BYTES + 12
TRAILER = struct.Struct(">5I")  # magic, sequence, bytes, checksum, verdict
TRAILER_MAGIC = 0x54424F46
VLAN_TYPES = (b"\x81\x00", b"\x88\xa8")
XDP_PASS = 2
MIN_FRAME_BYTES = 60
MAX_FRAME_BYTES = 9014
BATCH = 4096  # frames laid out at once; bounds memory

_HEAD = np.dtype(
    [
        ("destination", "u1", 6),
        ("source", "u1", 6),
        ("ethertype", ">u2"),
        ("magic", ">u4"),
        ("sequence", ">u4"),
        ("bytes", ">u4"),
        ("checksum", ">u4"),
    ]
)


class Numbered(NamedTuple):
    """What a numbered frame says of itself."""

    sequence: int
    intact: bool  # magic, length and checksum are right


def mac_bytes(mac: str) -> bytes:
    """Return the six bytes of ``02:00:00:00:00:02``.

    :raise UsageError: it is not a MAC address.
    """
    parts = mac.split(":")
    if len(parts) != 6 or not all(len(part) == 2 and part.isalnum() for part in parts):
        raise UsageError(f"expected a MAC address, seen {mac!r}", "write six pairs of hexadecimal digits")
    try:
        return bytes(int(part, 16) for part in parts)
    except ValueError:
        message = f"expected a MAC address, seen {mac!r}"
        raise UsageError(message, "write six pairs of hexadecimal digits") from None


def numbered_frames(
    first: int, count: int, frame_bytes: int, destination: str, verdict: int | None = None
) -> list[bytes]:
    """Return frames numbered from ``first`` on.

    :param first: sequence number of the first one; numbers stay below 2^32.
    :param frame_bytes: length of each in bytes without FCS, 60 to 9014.
    :param destination: MAC address of the guest.
    :param verdict: what the first byte of the filling shall be (TB_VERDICT_AT of images/agent/protocol.h).
    :raise UsageError: a length or number out of range.
    """
    if not MIN_FRAME_BYTES <= frame_bytes <= MAX_FRAME_BYTES:
        message = f"expected frames of {MIN_FRAME_BYTES} to {MAX_FRAME_BYTES} bytes, seen {frame_bytes}"
        raise UsageError(message, "an MTU of 1500 allows 1514 bytes without FCS, one of 9000 allows 9014")
    if count < 0 or not 0 <= first <= 2**32 - count:
        message = f"expected sequence numbers of 0 to {2**32 - 1}, seen {first} and {count} on"
        raise UsageError(message, "start a new run")
    guest = mac_bytes(destination)
    frames: list[bytes] = []
    for start in range(first, first + count, BATCH):
        frames += _batch(start, min(BATCH, first + count - start), frame_bytes, guest, verdict)
    return frames


def _batch(first: int, count: int, frame_bytes: int, guest: bytes, verdict: int | None) -> list[bytes]:
    """Lay the frames out as rows of one table, shape (count, frame_bytes), add the checksums, cut it up."""
    table = np.empty((count, frame_bytes), dtype=np.uint8)
    heads = np.zeros(count, dtype=_HEAD)
    heads["destination"] = np.frombuffer(guest, dtype=np.uint8)
    heads["source"] = np.frombuffer(mac_bytes(HOST_MAC), dtype=np.uint8)
    heads["ethertype"] = ETHERTYPE
    heads["magic"] = MAGIC
    heads["sequence"] = np.arange(first, first + count, dtype=np.uint64)
    heads["bytes"] = frame_bytes
    table[:, :FILLING_AT] = heads.view(np.uint8).reshape(count, FILLING_AT)
    table[:, FILLING_AT:] = _filling(heads["sequence"], frame_bytes - FILLING_AT)
    if verdict is not None:
        table[:, FILLING_AT] = verdict
    covered = np.ascontiguousarray(table[:, HEADER_BYTES:]).tobytes()
    width = frame_bytes - HEADER_BYTES
    sums = [zlib.crc32(covered[at : at + width]) for at in range(0, len(covered), width)]
    table[:, CHECKSUM_AT:FILLING_AT] = np.array(sums, dtype=">u4").view(np.uint8).reshape(count, 4)
    data = table.tobytes()
    return [data[at : at + frame_bytes] for at in range(0, len(data), frame_bytes)]


def _filling(sequences: NDArray[np.uint32], width: int) -> NDArray[np.uint8]:
    """Return rows of bytes, shape (n, width): a number's hash, then that plus 1, 2, ... modulo 256."""
    seeds = (sequences.astype(np.uint64) * np.uint64(0x9E3779B1) >> np.uint64(16)).astype(np.uint8)
    return np.add.outer(seeds, np.arange(width, dtype=np.uint64).astype(np.uint8))


def numbered_behind(first: int, frames: list[bytes], verdict: int | None = None) -> list[bytes]:
    """Return frames of the user's own, padded, each with struct tb_trailer of images/agent/protocol.h at its end.

    :param first: sequence number of the first one.
    :param verdict: XDP action; PASS by default.
    """
    numbered = []
    for sequence, frame in enumerate(frames, first):
        body = frame.ljust(MIN_FRAME_BYTES - TRAILER.size, b"\0")
        start = _behind_tags(body, len(body))
        length = len(body) + TRAILER.size - (start - HEADER_BYTES)
        words = [TRAILER_MAGIC, sequence, length, 0, XDP_PASS if verdict is None else verdict]
        words[3] = zlib.crc32(TRAILER.pack(*words), zlib.crc32(body[start:]))
        numbered.append(body + TRAILER.pack(*words))
    return numbered


def _behind_tags(frame: bytes, end: int) -> int:
    """Return where the frame goes on behind its EtherType, VLAN tags before ``end`` skipped."""
    start = HEADER_BYTES
    while frame[start - 2 : start] in VLAN_TYPES and start + 4 <= end:
        start += 4
    return start


def parse(frame: bytes) -> Numbered | None:
    """Return what a frame from the guest says, or None if it is not a numbered one."""
    if len(frame) < FILLING_AT:
        return None
    if frame[12:14] != ETHERTYPE.to_bytes(2, "big"):
        return _parse_behind(frame)
    magic, sequence, length, checksum = (int.from_bytes(frame[at : at + 4], "big") for at in (14, 18, 22, 26))
    crc = zlib.crc32(frame[HEADER_BYTES:CHECKSUM_AT])
    crc = zlib.crc32(frame[FILLING_AT:], zlib.crc32(bytes(4), crc))
    return Numbered(sequence, magic == MAGIC and length == len(frame) and crc == checksum)


def _parse_behind(frame: bytes) -> Numbered | None:
    at = len(frame) - TRAILER.size
    if at < HEADER_BYTES:
        return None
    magic, sequence, length, checksum, verdict = TRAILER.unpack(frame[at:])
    if magic != TRAILER_MAGIC:
        return None
    start = _behind_tags(frame, at)
    crc = zlib.crc32(TRAILER.pack(magic, sequence, length, 0, verdict), zlib.crc32(frame[start:at]))
    return Numbered(sequence, length == len(frame) - (start - HEADER_BYTES) and crc == checksum)
