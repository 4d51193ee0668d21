"""A device that lives in the guest's time, so that equal inputs give equal runs.

The guest's clock is known from its memory (struct tb_position of images/agent/protocol.h). The device catches up with
it before each access of the guest and does what that asks for before the guest goes on, for the guest waits. An
interrupt, though, would reach the guest whenever QEMU's main loop gets to it: those wait until the machine is stopped,
and the device says in the guest's memory that it wants that, and when.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from testbed.vfio_user.device import DmaFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.vfio_user.loop import Loop
    from testbed.vfio_user.memory import GuestMemory

__all__ = ["DUE_OFFSET", "FOLLOWS_OFFSET", "NOW_OFFSET", "Follower"]

NOW_OFFSET, DUE_OFFSET, FOLLOWS_OFFSET = 8, 16, 24  # in struct tb_position
_TIME = struct.Struct("<Q")
AT_ONCE = 1


class Follower:
    """Keeps a device in step with the guest.

    :param position: physical address of the guest's struct tb_position.
    :param send: sends an interrupt now.
    """

    def __init__(self, loop: Loop, memory: GuestMemory, position: int, send: Callable[[int], None]) -> None:
        self._loop = loop
        self._memory = memory
        self._position = position
        self._send = send
        self._waiting: list[int] = []
        self._stopped = False
        loop.move_clock(self._guest_now())

    def interrupt(self, vector: int) -> None:
        """Send an interrupt, now if the machine is stopped, else as soon as it is."""
        if self._stopped:
            self._send(vector)
        else:
            self._waiting.append(vector)

    def before_access(self) -> None:
        """Catch up with the guest, which is about to access the device."""
        self._loop.catch_up(self._guest_now())

    def after_access(self) -> None:
        """Do what the access asked for, and say when a stop is wanted."""
        self._loop.catch_up(0)
        self.tell()

    def at_stop(self) -> None:
        """Do all that is due while the machine is stopped."""
        self._stopped = True
        try:
            waiting, self._waiting = self._waiting, []
            for vector in waiting:
                self._send(vector)
            self._loop.catch_up(self._guest_now())
        finally:
            self._stopped = False
        self.tell()

    def tell(self) -> None:
        """Write when the device wants the machine stopped."""
        when_ns = self._loop.next_ns()
        due = AT_ONCE if self._waiting else 0 if when_ns is None else max(when_ns, AT_ONCE)
        try:
            _TIME.pack_into(self._memory.peek(self._position + DUE_OFFSET, _TIME.size), 0, due)
        except DmaFault:
            return  # the guest's memory is not mapped: it has no agent that could read this

    def _guest_now(self) -> int:
        try:
            return int(_TIME.unpack(self._memory.peek(self._position + NOW_OFFSET, _TIME.size))[0])
        except DmaFault:
            return 0
