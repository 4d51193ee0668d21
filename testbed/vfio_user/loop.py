"""The server's one thread: descriptors, timers and the clock, running freely or in steps.

What belongs to the server (the client's socket, the control channel) is always served. What belongs to the device (its
timers, its wire) is served as soon as it is due, or, when stepped, only inside :meth:`Loop.advance`.
"""

from __future__ import annotations

import heapq
import select
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Loop", "Restless"]

MAX_TURNS = 100_000  # of one advance


class Restless(Exception):
    """A stepped device goes on and on at one instant."""


class _Timer:
    """A call that is to come; see :class:`testbed.vfio_user.device.Timer`."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Let it not come."""
        self.callback = None


class Loop:
    """See the module; a context manager that owns the epoll descriptor."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._served: dict[int, Callable[[], None]] = {}
        self._device: dict[int, tuple[Callable[[], None], int]] = {}
        self._timers: list[tuple[int, int, _Timer]] = []
        self._sequence = 0
        self._stepped = False
        self._now_ns = 0
        self._stopping = False

    def close(self) -> None:
        """Close the epoll descriptor."""
        self._epoll.close()

    # The clock

    @property
    def stepped(self) -> bool:
        """Whether the device acts only when told to."""
        return self._stepped

    def now_ns(self) -> int:
        """Return the device's time."""
        return self._now_ns if self._stepped else time.monotonic_ns()

    def call_at(self, when_ns: int, callback: Callable[[], None]) -> _Timer:
        """Call when the device's time has come; in the order of times, then of calls."""
        timer = _Timer(callback)
        self._sequence += 1
        heapq.heappush(self._timers, (when_ns, self._sequence, timer))
        return timer

    def next_ns(self) -> int | None:
        """Return when the next timer is due."""
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def _run_due(self, now_ns: int) -> int:
        """Make the calls that are due; return how many. What they ask for at once has its turn in the next round."""
        last, count = self._sequence, 0
        timers = self._timers
        while timers and timers[0][0] <= now_ns and timers[0][1] <= last:
            callback = heapq.heappop(timers)[2].callback
            if callback is not None:
                callback()
                count += 1
        return count

    # Descriptors

    def serve(self, fd: int, callback: Callable[[], None]) -> None:
        """Call whenever a descriptor of the server's own is readable or its other end is gone."""
        self._served[fd] = callback
        self._epoll.register(fd, select.EPOLLIN)

    def watch(self, fd: int, callback: Callable[[], None], *, for_writing: bool = False) -> None:
        """Call whenever a descriptor of the device's is readable, or also when it is writable."""
        mask = select.EPOLLIN | (select.EPOLLOUT if for_writing else 0)
        before = self._device.get(fd)
        self._device[fd] = (callback, mask)
        if self._stepped or (before and before[1] == mask):
            return
        if before:
            self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)

    def unwatch(self, fd: int) -> None:
        """Watch it no more."""
        if self._device.pop(fd, None) and not self._stepped:
            self._epoll.unregister(fd)

    # Running

    def stop(self) -> None:
        """Return from :meth:`run` after this turn."""
        self._stopping = True

    def run(self) -> None:
        """Serve until told to stop."""
        while not self._stopping:
            self.turn(self._wait_s())

    def turn(self, wait_s: float) -> None:
        """Wait for descriptors at most so long (-1: for ever), call for those that are ready, then for timers."""
        for fd, _ in self._epoll.poll(wait_s):
            callback = self._served.get(fd) or self._device.get(fd, (None,))[0]
            if callback is not None:
                callback()
        if not self._stepped and self._timers:
            self._run_due(time.monotonic_ns())

    def _wait_s(self) -> float:
        when_ns = None if self._stepped else self.next_ns()
        if when_ns is None:
            return -1
        return max(when_ns - time.monotonic_ns(), 0) / 1e9

    # Stepping

    def step_from(self, now_ns: int) -> None:
        """Let the device act in steps from now on; its time is ``now_ns``. Timers keep what they have left to run."""
        shift = now_ns - self.now_ns()
        if not self._stepped:
            for fd in self._device:
                self._epoll.unregister(fd)
            self._stepped = True
        self._now_ns = now_ns
        self._shift(shift)

    def run_freely(self) -> None:
        """Let the device act by itself."""
        if not self._stepped:
            return
        self._shift(time.monotonic_ns() - self._now_ns)
        self._stepped = False
        for fd, (_, mask) in self._device.items():
            self._epoll.register(fd, mask)

    def _shift(self, by_ns: int) -> None:
        self._timers = [(when + by_ns if when else 0, number, timer) for when, number, timer in self._timers]
        heapq.heapify(self._timers)

    def advance(self, to_ns: int) -> int | None:
        """Let a stepped device do all that is due until then, timer by timer; return when the next is due.

        :raise Restless: it never comes to rest.
        """
        for _ in range(MAX_TURNS):
            acted = self._serve_device() + self._run_due(self._now_ns)
            if acted:
                continue
            when_ns = self.next_ns()
            if when_ns is None or when_ns > to_ns:
                self._now_ns = max(self._now_ns, to_ns)
                return when_ns
            self._now_ns = max(self._now_ns, when_ns)
        raise Restless(f"the device still acts after {MAX_TURNS} turns before {to_ns} ns")

    def _serve_device(self) -> int:
        """Call for each descriptor of the device's that is ready; return how many were readable."""
        poller = select.poll()
        for fd, (_, mask) in self._device.items():
            poller.register(fd, mask)
        readable = 0
        for fd, _ in poller.poll(0):
            callback, mask = self._device.get(fd, (None, 0))
            if callback is not None:
                callback()
                readable += 1
        return readable
