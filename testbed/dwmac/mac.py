"""The MAC's reception: frames of the wire are filtered, checked, stripped, timestamped and handed to the queues' FIFOs.

When a FIFO fills and flow control is on, the link partner is paused, as IEEE 802.3 annex 31B has it, and its frames
wait at its end. Without flow control what finds no room is lost, as on any wire.
"""

from __future__ import annotations

import zlib
from collections import deque
from typing import TYPE_CHECKING

from testbed.dwmac import checksum
from testbed.dwmac.descriptors import Rx1, Rx3
from testbed.dwmac.ptp import classify
from testbed.dwmac.receive import Received, Receiver
from testbed.dwmac.registers import CHANNELS, Bits, queue
from testbed.vfio_user import DeviceEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.dwmac.core import Core

__all__ = ["SPOILS", "Drop", "Mac"]

LEAST_FRAME_BYTES = 60
LINE_BYTES = (
    16 << 20
)  # that a paused link partner keeps itself: all frames of a barrier, 10000 of 1514 bytes, fit
STANDARD_BYTES, JUMBO_BYTES = 1518, 9018  # with FCS; a VLAN tag comes on top
PAUSE = (b"\x01\x80\xc2\x00\x00\x01", b"\x88\x08")
SPOILS = {
    "crc": int(Rx3.SUMMARY | Rx3.CRC),
    "overrun": int(Rx3.SUMMARY | Rx3.OVERFLOW),
    "length": int(Rx3.SUMMARY | Rx3.GIANT),
    "watchdog": int(Rx3.SUMMARY | Rx3.WATCHDOG),
    "receive": int(Rx3.SUMMARY | Rx3.RECEIVE_ERROR),
}
"""What the test's hand can do to a received frame: the error that its descriptor then shows."""
_COUNTED = {
    "crc": "RX_CRC_ERROR",
    "overrun": "RX_FIFO_OVERFLOW",
    "length": "RX_JABBER_ERROR",
    "watchdog": "RX_WATCHDOG_ERROR",
    "receive": "RX_RECEIVE_ERROR",
}
_CONFIGURATION, _VLAN_TAG, _RX_FLOW = 0x00, 0x50 >> 2, 0x90 >> 2
_QUEUE_STATUS = 0xC20 >> 2


class Drop:
    """Why the device did not take a frame: the numbers in DROPPED events."""

    FILTERED, NO_ROOM, DISABLED, ASKED = 1, 2, 3, 4


class Mac:
    """Reception: the FIFOs and what comes before them. ``receivers`` are the channels behind, by number."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.receivers = [Receiver(core, number, self.pump) for number in range(CHANNELS)]
        self._waiting: deque[bytes] = deque()  # at the link partner's end
        self._waiting_bytes = 0
        self._paused = False
        self._pumping = self._wire_paused = False
        self.spoiled: list[str] = []

    def reset(self) -> None:
        """Forget what waits in the FIFOs; what waits at the other end of the cable stays there."""
        for receiver in self.receivers:
            receiver.reset()
        self._paused = False

    def receive(self, frames: Sequence[bytes]) -> None:
        """Take frames from the wire."""
        self._waiting.extend(frames)
        self._waiting_bytes += sum(map(len, frames))
        self.pump()

    def pump(self) -> None:
        """Move frames on: from the wire to the FIFOs and from there to the rings, as far as there is room."""
        if self._pumping:
            return  # a looped frame of our own: the pump that runs takes it along
        self._pumping = True
        try:
            self._run_channels()
            while self._waiting and not self._paused:
                frame = self._waiting.popleft()
                self._waiting_bytes -= len(frame)
                self._admit(frame)
                self._follow_levels()
            self._run_channels()
        finally:
            self._pumping = False
        full = self._waiting_bytes > LINE_BYTES
        if full != self._wire_paused:
            self._wire_paused = full
            (self._core.host.wire.pause if full else self._core.host.wire.resume)()

    def _run_channels(self) -> None:
        for receiver in self.receivers:
            if receiver.waiting:
                receiver.run()
        self._paused = self._paused and any(
            receiver.level_bytes > self._threshold(number, shift=14)
            for number, receiver in enumerate(self.receivers)
        )

    def _follow_levels(self) -> None:
        """Empty FIFOs that are filling, and pause the link partner when that does not help."""
        for number, receiver in enumerate(self.receivers):
            if receiver.level_bytes <= self._threshold(number, shift=8):
                continue
            receiver.run()
            if receiver.level_bytes > self._threshold(number, shift=8) and self._pauses(number):
                self._core.counters.add("TX_PAUSE")
                self._paused = True

    def _pauses(self, number: int) -> bool:
        words = self._core.words
        asked = words[(queue(number) + 0x30) >> 2] & 1 << 7 and words[(0x70 >> 2) + number] & Bits.FLOW_TFE
        return bool(asked) and self._core.phy.partner_pauses

    def fifo_bytes(self, number: int) -> int:
        """Return how much a queue's FIFO holds (RQS)."""
        return ((self._core.words[(queue(number) + 0x30) >> 2] >> 20 & 0x3F) + 1) * 256

    def _threshold(self, number: int, *, shift: int) -> int:
        """Return the level at which flow control begins (RFA, bit 8) or ends (RFD, bit 14)."""
        code = self._core.words[(queue(number) + 0x30) >> 2] >> shift & 0x3F
        return max(self.fifo_bytes(number) - 1024 - 512 * code, 0)

    # One frame

    def _admit(self, frame: bytes) -> None:
        core = self._core
        if not core.on_cable() or not core.words[_CONFIGURATION] & Bits.CONFIG_RE:
            core.host.record(DeviceEvent.DROPPED, 0, Drop.DISABLED, len(frame))
            return
        if len(frame) < LEAST_FRAME_BYTES:
            frame = frame.ljust(LEAST_FRAME_BYTES, b"\0")  # its sender's MAC would have done that
        spoil = self.spoiled.pop(0) if self.spoiled else ""
        if spoil == "drop":
            core.host.record(DeviceEvent.DROPPED, 0, Drop.ASKED, len(frame))
            return
        if spoil == "corrupt":
            frame = frame[:-1] + bytes([frame[-1] ^ 0xFF])
        if spoil in _COUNTED:
            core.counters.add(_COUNTED[spoil])
        errors = SPOILS.get(spoil, 0) or self._length_error(frame)
        core.counters.received(frame, good=not errors)
        if not self._is_pause(frame):
            self._queue(frame, errors)

    def _queue(self, frame: bytes, errors: int) -> None:
        """Put a frame into the FIFO that the filters choose, if they take it and there is room."""
        core = self._core
        passed = core.filters.take(frame)
        if passed is None:
            core.host.record(DeviceEvent.DROPPED, 0, Drop.FILTERED, len(frame))
            return
        number = core.filters.queue(frame, passed)
        if number is None:
            core.host.record(DeviceEvent.DROPPED, 0, Drop.DISABLED, len(frame))
            return
        receiver = self.receivers[core.filters.channel(number, passed)]
        room = self.fifo_bytes(number) - len(frame) - 4
        if receiver.level_bytes and receiver.level_bytes > room:
            receiver.run()
        if receiver.level_bytes and receiver.level_bytes > room:
            self._overflow(number, len(frame))
        else:
            receiver.put(self._received(frame, errors))

    def _length_error(self, frame: bytes) -> int:
        if len(frame) <= STANDARD_BYTES - 4:
            return 0
        jumbo = self._core.words[_CONFIGURATION] & Bits.CONFIG_JE
        most = (JUMBO_BYTES if jumbo else STANDARD_BYTES) + (4 if frame[12:14] == b"\x81\x00" else 0)
        return SPOILS["length"] if len(frame) + 4 > most else 0

    def _is_pause(self, frame: bytes) -> bool:
        """Return whether a frame is a pause that the MAC obeys; there is nothing of ours for it to wait for."""
        if (frame[:6], frame[12:14]) != PAUSE or not self._core.words[_RX_FLOW] & Bits.FLOW_RFE:
            return False
        self._core.counters.add("RX_PAUSE")
        return True

    def _overflow(self, number: int, length: int) -> None:
        self.receivers[number].missed += 1
        self._core.counters.add("RX_FIFO_OVERFLOW")
        self._core.host.record(DeviceEvent.DROPPED, number, Drop.NO_ROOM, length)
        at = (queue(number) + 0x2C) >> 2
        self._core.words[at] |= 1 << 16
        if self._core.words[at] & 1 << 24:
            self._core.words[_QUEUE_STATUS] |= 1 << number
            self._core.interrupts.update_common()

    def _received(self, frame: bytes, errors: int) -> Received:
        words = self._core.words
        status, stamp, tag = 0, None, None
        if words[_CONFIGURATION] & Bits.CONFIG_IPC and not errors:
            status, packet = checksum.verify(frame)
            if packet:
                self._core.counters.parsed(status, packet)
        if self._core.clock.enabled and not errors:
            message, snapshot = classify(frame, words[0xB00 >> 2])
            status |= message
            if snapshot:
                stamp = self._core.clock.now()
                status |= Rx1.TIMESTAMP
        if frame[12:14] == b"\x81\x00" and len(frame) >= 18:
            self._core.counters.add("RX_VLAN_GB")
            if words[_VLAN_TAG] >> 21 & 3 in {1, 3}:
                found = frame[14] << 8 | frame[15]
                tag = found if words[_VLAN_TAG] & Bits.VLAN_EVLRXS else None
                frame = frame[:12] + frame[16:]
        fcs = zlib.crc32(frame) ^ (0xFFFFFFFF if errors & Rx3.CRC else 0)
        return Received(frame + fcs.to_bytes(4, "little"), errors, status, tag, stamp)

    # Snapshots

    def save(self) -> list[bytes]:
        """Return the frames that wait at the link partner's end."""
        return list(self._waiting)

    def load(self, waiting: list[bytes]) -> None:
        """Go on from what :meth:`save` returned."""
        self._waiting = deque(waiting)
        self._waiting_bytes = sum(map(len, waiting))
        self._paused = False
