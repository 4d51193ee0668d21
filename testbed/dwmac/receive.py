"""A receive channel: from frames in the queue's FIFO to descriptors that the guest gave to the device.

The FIFO is bounded by the guest's own setting and by what the core has; one run fills no more descriptors than a ring
can have (1024).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from testbed.dwmac.clock import CLOCK_HZ, SECOND_NS
from testbed.dwmac.core import Throttle
from testbed.dwmac.descriptors import OWN, Ring, Rx3
from testbed.dwmac.interrupts import Cause
from testbed.dwmac.registers import Bits, channel
from testbed.vfio_user import DeviceEvent, DmaFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.dwmac.core import Core
    from testbed.vfio_user.device import Timer

__all__ = ["Received", "Receiver", "ReceiverState"]

_WRITE_ERROR = 0b100 << 19  # REB of DMA_CHi_Status: reception, while writing
_BUFFER1, _BUFFER2 = int(Rx3.BUFFER1), int(Rx3.BUFFER2)
_DONE, _FIRST = int(Rx3.LAST | Rx3.WORD1), int(Rx3.FIRST)
_TAG_VALID, _LENGTH = int(Rx3.WORD0), int(Rx3.LENGTH)
TAGS = {b"\x81\x00", b"\x88\xa8"}


class Received(msgspec.Struct):
    """A frame that the MAC took.

    :param data: with FCS, and without a tag that was stripped.
    :param errors: bits of word 3 that say what is wrong with it.
    :param status: word 1. :param tag: the stripped tag, or None.
    :param stamp: seconds and fraction at its arrival, or None.
    :param due_ns: when the test's hand lets it go on.
    """

    data: bytes
    errors: int = 0
    status: int = 0
    tag: int | None = None
    stamp: tuple[int, int] | None = None
    due_ns: int = 0


class ReceiverState(msgspec.Struct):
    """What a snapshot holds of a receive channel; times count from the snapshot."""

    position: int
    offset: int
    tail_credit: int
    faulted: bool
    throttle: Throttle
    waiting: list[Received]
    missed: int
    watchdog_ns: int | None


class Receiver:
    """One channel's reception.

    :param pump: what is called when it can go on by itself: it runs all reception.
    """

    def __init__(self, core: Core, number: int, pump: Callable[[], None]) -> None:
        self._core = core
        self._pump = pump
        self._number = number
        self._at = channel(number) >> 2
        self._watchdog: Timer | None = None
        self._watchdog_due_ns = 0
        self.throttle = Throttle()
        self.missed = 0  # frames lost for want of room since the guest last looked
        self.waiting: deque[Received] = deque()
        self.level_bytes = 0  # of the FIFO
        self.rewind()

    def rewind(self) -> None:
        """Begin anew at the first descriptor, as after a write to the ring's base."""
        self.position = 0
        self._offset = 0  # of the first waiting frame: what descriptors already hold
        self._tail_credit = 0
        self._faulted = False

    def reset(self) -> None:
        """Begin anew, without frames."""
        self.rewind()
        self.waiting.clear()
        self.level_bytes = 0
        self._stop_watchdog()

    @property
    def running(self) -> bool:
        """Whether the guest has started it."""
        return bool(self._core.words[self._at + 2] & Bits.RX_SR) and not self._faulted

    def current_address(self) -> int:
        """Return the low word of the address of the next descriptor."""
        ring = Ring.receive(self._core.words, self._number)
        return ring.base + self.position % ring.length * 16 & 0xFFFFFFFF

    def fault(self) -> None:
        """Stop as after an access that the bus refused."""
        self._faulted = True
        self._core.interrupts.cause(self._number, Cause.FBE | _WRITE_ERROR)

    def tail(self, value: int) -> None:
        """Take a new tail pointer: descriptors up to it are the device's.

        While the channel stands still, the distance from the base says how many: none, or all when it points behind
        the ring's end. Afterwards a pointer at the current descriptor means all: the driver filled the ring.
        """
        ring = Ring.receive(self._core.words, self._number)
        if self.running:
            self._tail_credit = (ring.index(value) - self.position) % ring.length or ring.length
        else:
            self._tail_credit = ((value - ring.base) & 0xFFFFFFFF) // 16  # the ring's length may come later

    def put(self, frame: Received) -> None:
        """Add a frame to the FIFO."""
        frame.due_ns = self._core.host.now_ns() + self.throttle.delay_ns if self.throttle.delay_ns else 0
        if frame.due_ns:
            self._core.host.call_at(frame.due_ns, self._pump)
        self.waiting.append(frame)
        self.level_bytes += len(frame.data)

    def run(self) -> None:
        """Fill descriptors with what waits, as far as there are some and the test's hand allows."""
        if not self.waiting or not self.running:
            return
        ring = Ring.receive(self._core.words, self._number)
        left = ring.length
        try:
            descriptors = ring.view(self._core.host)
            while self.waiting and left > 0:
                if not self._fill(ring, descriptors):
                    return
                left -= 1
        except DmaFault:
            self.fault()
            return
        if self.waiting:
            self._core.host.call_at(0, self._pump)

    # One descriptor

    def _fill(self, ring: Ring, descriptors: memoryview) -> bool:
        """Fill the next descriptor, and return whether there was one to fill.

        :raise DmaFault: its buffers are not the guest's memory.
        """
        frame = self.waiting[0]
        if not self.throttle.allows() or (frame.due_ns and frame.due_ns > self._core.host.now_ns()):
            return False
        index = self.position % ring.length
        at = index * 4
        word3 = descriptors[at + 3]
        starved = self._core.hand.honours_tail and self._tail_credit <= 0
        if not word3 & OWN or starved:
            self._core.interrupts.cause(self._number, Cause.RBU)
            return False
        address = descriptors[at] | (descriptors[at + 1] & 0xFF) << 32
        length = len(frame.data)
        if self._offset >= length:
            self._write_stamp(descriptors, at, frame)
        else:
            self._write_frame(descriptors, at, frame, address)
        self.position = (index + 1) % ring.length
        self._tail_credit -= 1
        self.throttle.spend()
        self._core.host.record(DeviceEvent.RX_DONE, self._number, index, min(self._offset, length), address)
        if self._offset > length or (self._offset == length and frame.stamp is None):
            self._finish(frame, interrupts=bool(word3 & Rx3.INTERRUPT))
        return True

    def _write_frame(self, descriptors: memoryview, at: int, frame: Received, address: int) -> None:
        """Write as much of a frame as fits into the buffers of one descriptor."""
        word3, size = descriptors[at + 3], self._core.words[self._at + 2] & 0x7FFE
        start, data = self._offset, frame.data
        done = self._store(address, data[start : start + size]) if word3 & _BUFFER1 else 0
        if word3 & _BUFFER2 and start + done < len(data):
            second = descriptors[at + 2] | (word3 & 0xFF) << 32
            done += self._store(second, data[start + done : start + done + size])
        self._offset = start + done
        flags = _FIRST if start == 0 else 0
        if self._offset == len(data):
            flags |= _DONE | frame.errors | self._kind(frame)
            descriptors[at + 1] = frame.status
            if frame.tag is not None:
                descriptors[at] = frame.tag
                flags |= _TAG_VALID
        descriptors[at + 2] = 0
        descriptors[at + 3] = flags | min(self._offset, _LENGTH)

    def _kind(self, frame: Received) -> int:
        if frame.errors:
            return 0
        if frame.tag is not None or frame.data[12:14] in TAGS:
            return int(Rx3.TAGGED)
        return int(Rx3.TYPE) if frame.data[12] >= 6 else 0

    def _store(self, address: int, data: bytes) -> int:
        if data:
            self._core.host.memory.view(address, len(data))[:] = data
        return len(data)

    def _write_stamp(self, descriptors: memoryview, at: int, frame: Received) -> None:
        """Write the context descriptor that follows a frame with a timestamp."""
        seconds, fraction = frame.stamp or (0, 0)
        descriptors[at], descriptors[at + 1], descriptors[at + 2] = fraction, seconds, 0
        descriptors[at + 3] = int(Rx3.CONTEXT)
        self._offset += 1

    def _finish(self, frame: Received, *, interrupts: bool) -> None:
        self.waiting.popleft()
        self.level_bytes -= len(frame.data)
        self._offset = 0
        if interrupts:
            self._stop_watchdog()
            self._core.interrupts.cause(self._number, Cause.RI)
        elif self._watchdog is None:
            self._start_watchdog(self._watchdog_period_ns())

    # The watchdog that interrupts for frames whose descriptors do not

    def _watchdog_period_ns(self) -> int:
        value = self._core.words[self._at + 14]
        return (value & 0xFF) * (256 << (value >> 16 & 3)) * SECOND_NS // CLOCK_HZ

    def _start_watchdog(self, period_ns: int) -> None:
        if period_ns > 0:
            self._watchdog_due_ns = self._core.host.now_ns() + period_ns
            self._watchdog = self._core.host.call_at(self._watchdog_due_ns, self._bark)

    def _bark(self) -> None:
        self._watchdog = None
        self._core.interrupts.cause(self._number, Cause.RI)

    def _stop_watchdog(self) -> None:
        if self._watchdog:
            self._watchdog.cancel()
        self._watchdog = None

    # Snapshots

    def save(self) -> ReceiverState:
        """Return everything that :meth:`load` needs."""
        now_ns = self._core.host.now_ns()
        waiting = [
            msgspec.structs.replace(frame, due_ns=frame.due_ns and max(frame.due_ns - now_ns, 1))
            for frame in self.waiting
        ]
        watchdog_ns = max(self._watchdog_due_ns - now_ns, 1) if self._watchdog else None
        return ReceiverState(
            position=self.position,
            offset=self._offset,
            tail_credit=self._tail_credit,
            faulted=self._faulted,
            throttle=self.throttle,
            waiting=waiting,
            missed=self.missed,
            watchdog_ns=watchdog_ns,
        )

    def load(self, state: ReceiverState) -> None:
        """Go on from what :meth:`save` returned."""
        self.reset()
        now_ns = self._core.host.now_ns()
        self.position, self._offset, self._tail_credit = state.position, state.offset, state.tail_credit
        self._faulted, self.throttle, self.missed = state.faulted, state.throttle, state.missed
        for frame in state.waiting:
            frame.due_ns = frame.due_ns and frame.due_ns + now_ns
            if frame.due_ns:
                self._core.host.call_at(frame.due_ns, self._pump)
            self.waiting.append(frame)
            self.level_bytes += len(frame.data)
        if state.watchdog_ns is not None:
            self._start_watchdog(state.watchdog_ns)
