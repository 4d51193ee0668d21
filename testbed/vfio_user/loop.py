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
        self._device: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[int, int, _Timer]] = []
        self._sequence = 0
        self._stepped = False
        self._now_ns = 0
        self._ahead_ns = 0  # of the host's clock, when running freely
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
        return self._now_ns if self._stepped else time.monotonic_ns() + self._ahead_ns

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

    def serve(
        self, fd: int, callback: Callable[[], None], *, reading: bool = True, writing: bool = False
    ) -> None:
        """Call whenever a descriptor of the server's own is ready or its other end is gone; again: changes that."""
        mask = (select.EPOLLIN if reading else 0) | (select.EPOLLOUT if writing else 0)
        if fd in self._served:
            self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)
        self._served[fd] = callback

    def ignore(self, fd: int) -> None:
        """Serve it no more."""
        if self._served.pop(fd, None):
            self._epoll.unregister(fd)

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call whenever a descriptor of the device's is readable."""
        if fd not in self._device and not self._stepped:
            self._epoll.register(fd, select.EPOLLIN)
        self._device[fd] = callback

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
            callback = self._served.get(fd) or self._device.get(fd)
            if callback is not None:
                callback()
        if not self._stepped and self._timers:
            self._run_due(self.now_ns())

    def _wait_s(self) -> float:
        when_ns = None if self._stepped else self.next_ns()
        if when_ns is None:
            return -1
        return max(when_ns - self.now_ns(), 0) / 1e9

    # Stepping

    def freeze(self) -> None:
        """Let the device act no more by itself; its clock stands."""
        if not self._stepped:
            self._now_ns = time.monotonic_ns() + self._ahead_ns
            self._stepped = True
            for fd in self._device:
                self._epoll.unregister(fd)

    def run_freely(self) -> None:
        """Let the device act by itself again; its clock goes on from where it stood."""
        if self._stepped:
            self._ahead_ns = self._now_ns - time.monotonic_ns()
            self._stepped = False
            for fd in self._device:
                self._epoll.register(fd, select.EPOLLIN)

    def move_clock(self, to_ns: int) -> None:
        """Let a frozen device's time be another; timers keep what they have left to run."""
        by_ns, self._now_ns = to_ns - self._now_ns, to_ns
        self._timers = [(when + by_ns if when else 0, number, timer) for when, number, timer in self._timers]
        heapq.heapify(self._timers)

    def catch_up(self, to_ns: int) -> None:
        """Let a frozen device do all that its timers are due for until then; its descriptors are not looked at.

        :raise Restless: it never comes to rest.
        """
        for _ in range(MAX_TURNS):
            if self._run_due(self._now_ns):
                continue
            when_ns = self.next_ns()
            if when_ns is None or when_ns > to_ns:
                self._now_ns = max(self._now_ns, to_ns)
                return
            self._now_ns = max(self._now_ns, when_ns)
        raise Restless(f"the device still acts after {MAX_TURNS} turns at one instant")

    def advance(self, by_ns: int) -> int | None:
        """Let a frozen device do all that is due in so many nanoseconds, timer by timer.

        :return: in how many nanoseconds after that the next timer is due.
        :raise Restless: it never comes to rest.
        """
        end_ns = self._now_ns + by_ns
        for _ in range(MAX_TURNS):
            if self._serve_device() + self._run_due(self._now_ns):
                continue
            when_ns = self.next_ns()
            if when_ns is None or when_ns > end_ns:
                self._now_ns = end_ns
                return None if when_ns is None else when_ns - end_ns
            self._now_ns = when_ns
        raise Restless(f"the device still acts after {MAX_TURNS} turns at one instant")

    def _serve_device(self) -> int:
        """Call for each descriptor of the device's that is readable; return how many were."""
        if not self._device:
            return 0
        poller = select.poll()
        for fd in self._device:
            poller.register(fd, select.POLLIN)
        count = 0
        for fd, _ in poller.poll(0):
            if callback := self._device.get(fd):
                callback()
                count += 1
        return count
