"""A transmit channel: from descriptors that the guest owns to frames on the wire, and back.

Whatever the guest writes, one run looks at no more descriptors than a ring can have (1024), and a frame is no longer
than the MAC sends (or the TSO engine cuts up).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from testbed.dwmac import checksum
from testbed.dwmac.core import Throttle
from testbed.dwmac.descriptors import OWN, Ring, Tx2, Tx3
from testbed.dwmac.interrupts import Cause
from testbed.dwmac.registers import Bits, channel
from testbed.dwmac.segment import segments
from testbed.vfio_user import DeviceEvent, DmaFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.dwmac.core import Core

__all__ = ["Transmitter", "TransmitterState"]

MAX_FRAME_BYTES = 16384 - 1
MAX_SEGMENTED_BYTES = int(Tx3.PAYLOAD) + 1024
LEAST_FRAME_BYTES = 60
_CONFIGURATION, _SYSBUS, _VLAN_INCL = 0x00, 0x1004 >> 2, 0x60 >> 2
_EAME = 1 << 11
_READ_ERROR = 0b011 << 19  # REB of DMA_CHi_Status: transmission, while reading
_KEPT, _LAST, _FIRST, _CONTEXT = int(Tx3.KEPT), int(Tx3.LAST), int(Tx3.FIRST), int(Tx3.CONTEXT)
_LENGTH = int(Tx2.LENGTH1)
TAGS = {b"\x81\x00", b"\x88\xa8"}


class _Piece(NamedTuple):
    """One descriptor of a frame, as it was read: its place, the address in it, words 2 and 3."""

    place: int
    word0: int
    word2: int
    word3: int


class _Sent(msgspec.Struct):
    """A frame that left, whose descriptors are still to be given back."""

    due_ns: int
    pieces: list[_Piece]
    status: int
    stamp: tuple[int, int] | None
    size: int


class TransmitterState(msgspec.Struct):
    """What a snapshot holds of a transmit channel; ``due_ns`` of what is closing counts from the snapshot."""

    position: int
    mss: int
    tag: int
    faulted: bool
    throttle: Throttle
    closing: list[_Sent]


class Transmitter:
    """One channel's transmission.

    :param loop: takes a frame that the MAC loops back.
    """

    def __init__(self, core: Core, number: int, loop: Callable[[bytes], None]) -> None:
        self._core = core
        self._number = number
        self._at = channel(number) >> 2
        self._loop = loop
        self.throttle = Throttle()
        self.position = 0
        self._mss = self._tag = 0
        self._faulted = False
        self._closing: deque[_Sent] = deque()

    def rewind(self) -> None:
        """Begin anew at the first descriptor, as after a write to the ring's base."""
        self.position = 0
        self._mss = self._tag = 0
        self._faulted = False
        self._closing.clear()

    @property
    def running(self) -> bool:
        """Whether the guest has started it."""
        words = self._core.words
        started = words[self._at + 1] & Bits.TX_ST and words[_CONFIGURATION] & Bits.CONFIG_TE
        return bool(started) and not self._faulted

    def current_address(self) -> int:
        """Return the low word of the address of the next descriptor."""
        ring = Ring.transmit(self._core.words, self._number)
        return ring.base + self.position % ring.length * ring.words * 4 & 0xFFFFFFFF

    def fault(self) -> None:
        """Stop as after an access that the bus refused."""
        self._faulted = True
        self._core.interrupts.cause(self._number, Cause.FBE | _READ_ERROR)

    def run(self) -> None:
        """Send what the guest owns to the device, as far as ring, wire and the test's hand allow."""
        if not self.running:
            return
        ring = Ring.transmit(self._core.words, self._number)
        try:
            descriptors = ring.view(self._core.host)
            self._close(ring, descriptors)
            left = ring.length - sum(len(sent.pieces) for sent in self._closing)
            while left > 0 and not self._core.host.wire.congested:
                used = self._take(ring, descriptors, left)
                if not used:
                    return
                left -= used
        except DmaFault:
            self.fault()
            return
        if left <= 0 and not self._closing:
            self._core.host.call_at(0, self.run)

    def _take(self, ring: Ring, descriptors: memoryview, left: int) -> int:
        """Send one frame or take one context descriptor; return how many descriptors that were, 0 for nothing."""
        pieces = self._gather(ring, descriptors, left)
        if not pieces or not self.throttle.allows(len(pieces)):
            return 0
        self.throttle.spend(len(pieces))
        first = pieces[0]
        self.position = (pieces[-1].place + 1) % ring.length
        if first.word3 & _CONTEXT:
            self._note_context(first)
            sent = _Sent(0, pieces, 0, None, 0)
        else:
            sent = self._send(pieces) if first.word3 & _FIRST else _Sent(0, pieces, 0, None, 0)
        delay = self.throttle.delay_ns
        if not delay and not self._closing:
            self._give_back(ring, descriptors, sent)
        else:
            sent.due_ns = self._core.host.now_ns() + delay
            self._closing.append(sent)
            self._core.host.call_at(sent.due_ns, self.run)
        return len(pieces)

    def _gather(self, ring: Ring, descriptors: memoryview, left: int) -> list[_Piece]:
        """Return the descriptors of the next frame, or nothing when they are not all there."""
        pieces: list[_Piece] = []
        index = self.position % ring.length
        while len(pieces) < left:
            at = index * ring.words + ring.skip
            word3 = descriptors[at + 3]
            if not word3 & OWN:
                self._core.interrupts.cause(self._number, Cause.TBU)
                return []
            if word3 & _CONTEXT and pieces:
                break  # a context in the middle of a frame: what came before it is given back unsent
            address = descriptors[at] | (descriptors[at + 1] & 0xFF) << 32
            pieces.append(_Piece(index, address, descriptors[at + 2], word3))
            if word3 & (_LAST | _CONTEXT):
                break
            index = (index + 1) % ring.length
        return pieces

    def _note_context(self, context: _Piece) -> None:
        if context.word3 & Tx3.CONTEXT_MSS:
            self._mss = context.word2 & _LENGTH
        if context.word3 & Tx3.CONTEXT_TAG:
            self._tag = context.word3 & 0xFFFF

    # The frame

    def _send(self, pieces: list[_Piece]) -> _Sent:
        first = pieces[0]
        status, stamp = 0, None
        segmented = first.word3 & Tx3.SEGMENT and self._core.words[self._at + 1] & Bits.TX_TSE
        data = self._read(pieces, MAX_SEGMENTED_BYTES if segmented else MAX_FRAME_BYTES)
        spoiled = self.throttle.spoiled.pop(0) if self.throttle.spoiled else ""
        size = 0
        if spoiled == "underflow" or data is None or len(data) < 14 or not pieces[-1].word3 & _LAST:
            status = int(Tx3.ERROR | Tx3.UNDERFLOW)
            self._core.counters.add("TX_UNDERFLOW")
        elif spoiled != "drop":
            size = self._to_wire(first, data, segmented=bool(segmented), corrupt=spoiled == "corrupt")
        if first.word2 & Tx2.TIMESTAMP and self._core.clock.enabled and not status:
            stamp = self._core.clock.now()
        return _Sent(0, pieces, status, stamp, size)

    def _read(self, pieces: list[_Piece], most: int) -> bytes | memoryview | None:
        """Return the frame's bytes in guest memory, None when they are more than it may have.

        :raise DmaFault: they do not all lie there.
        """
        memory = self._core.host.memory
        if len(pieces) == 1 and self._core.words[_SYSBUS] & _EAME:
            length = pieces[0].word2 & _LENGTH
            return memory.view(pieces[0].word0, length) if length else b""
        parts, size = [], 0
        for piece in pieces:
            for address, length in self._buffers(piece):
                size += length
                if size > most:
                    return None
                parts.append(memory.view(address, length))
        return b"".join(parts)

    def _buffers(self, piece: _Piece) -> list[tuple[int, int]]:
        """Return the buffers of a descriptor: two when addresses have 32 bits, else one."""
        first, second = piece.word2 & _LENGTH, piece.word2 >> 16 & _LENGTH
        buffers = [(piece.word0, first)]
        if not self._core.words[_SYSBUS] & _EAME:
            buffers = [(piece.word0 & 0xFFFFFFFF, first), (piece.word0 >> 32, second)]
        return [(address, length) for address, length in buffers if length]

    def _to_wire(
        self, first: _Piece, data: bytes | bytearray | memoryview, *, segmented: bool, corrupt: bool
    ) -> int:
        """Send a frame, and return how many bytes left, without FCS."""
        if segmented:
            header_bytes = first.word2 & _LENGTH
            payload = bytes(data[header_bytes : header_bytes + (first.word3 & Tx3.PAYLOAD)])
            frames = segments(bytes(data[:header_bytes]), payload, self._mss)
            return sum(self._emit(frame, corrupt=corrupt) for frame in frames)
        tagging = first.word2 >> 14 & 3
        inserting = first.word3 >> 16 & 3
        if tagging or (inserting and checksum.ether_type(data)[0] in {checksum.IPV4, checksum.IPV6}):
            data = _tagged(data, tagging, self._vlan_tag()) if tagging else bytearray(data)
            checksum.insert(data, inserting)
        return self._emit(data, corrupt=corrupt)

    def _vlan_tag(self) -> int:
        value = self._core.words[_VLAN_INCL]
        return self._tag if value & 1 << 20 else value & 0xFFFF

    def _emit(self, frame: bytes | bytearray | memoryview, *, corrupt: bool) -> int:
        core = self._core
        if len(frame) < LEAST_FRAME_BYTES:
            frame = bytes(frame).ljust(LEAST_FRAME_BYTES, b"\0")
        if corrupt:
            frame = bytes(frame[:-1]) + bytes([frame[-1] ^ 0xFF])
        core.counters.sent(frame)
        if core.words[_CONFIGURATION] & Bits.CONFIG_LM:
            self._loop(bytes(frame))
            return len(frame)
        if not core.on_cable():
            return 0
        core.host.wire.send(frame)
        return len(frame)

    # Write-back

    def _close(self, ring: Ring, descriptors: memoryview) -> None:
        now_ns = self._core.host.now_ns()
        while self._closing and self._closing[0].due_ns <= now_ns:
            self._give_back(ring, descriptors, self._closing.popleft())

    def _give_back(self, ring: Ring, descriptors: memoryview, sent: _Sent) -> None:
        core = self._core
        for piece in sent.pieces:
            at = piece.place % ring.length * ring.words + ring.skip
            word3 = piece.word3 & _KEPT
            if word3 & _LAST:
                word3 |= sent.status
                if sent.stamp:
                    descriptors[at + 1], descriptors[at] = sent.stamp
                    word3 |= Tx3.TIMESTAMPED
            descriptors[at + 3] = word3
            core.host.record(DeviceEvent.TX_DONE, self._number, piece.place, sent.size, piece.word0)
        last = sent.pieces[-1]
        if last.word3 & _LAST and last.word2 & Tx2.INTERRUPT:
            core.interrupts.cause(self._number, Cause.TI)

    # Snapshots

    def save(self) -> TransmitterState:
        """Return everything that :meth:`load` needs."""
        now_ns = self._core.host.now_ns()
        closing = [msgspec.structs.replace(sent, due_ns=sent.due_ns - now_ns) for sent in self._closing]
        return TransmitterState(self.position, self._mss, self._tag, self._faulted, self.throttle, closing)

    def load(self, state: TransmitterState) -> None:
        """Go on from what :meth:`save` returned."""
        self.position, self._mss, self._tag = state.position, state.mss, state.tag
        self._faulted, self.throttle = state.faulted, state.throttle
        now_ns = self._core.host.now_ns()
        self._closing = deque(
            msgspec.structs.replace(sent, due_ns=sent.due_ns + now_ns) for sent in state.closing
        )
        for sent in self._closing:
            self._core.host.call_at(sent.due_ns, self.run)


def _tagged(frame: bytes | bytearray | memoryview, what: int, tag: int) -> bytearray:
    """Return the frame with its VLAN tag removed (1), inserted (2) or replaced (3)."""
    data = bytearray(frame)
    has_tag = bytes(data[12:14]) in TAGS and len(data) >= 18
    if what in {1, 3} and has_tag:
        del data[12:16]
    if what in {2, 3}:
        data[12:12] = b"\x81\x00" + tag.to_bytes(2, "big")
    return data
