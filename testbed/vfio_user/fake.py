"""A host without QEMU: memory, a clock that stands until told, a cable whose other end is a list."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from testbed.vfio_user.device import DmaFault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from testbed.vfio_user.device import Device
    from testbed.vfio_user.events import DeviceEvent

__all__ = ["FakeHost", "FakeMemory", "Recorded"]


class Recorded(NamedTuple):
    """A row of the device's half of the trace."""

    kind: DeviceEvent
    queue: int
    a: int
    b: int
    c: int


class FakeMemory:
    """Memory from address 0 on; nothing else is mapped."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)
        self.generation = 0

    def view(self, address: int, length: int) -> memoryview:
        """Return writable bytes; see :class:`testbed.vfio_user.device.Memory`."""
        if not 0 <= address <= address + length <= len(self.data):
            raise DmaFault(address, length)
        return memoryview(self.data)[address : address + length]


class FakeTimer:
    """A call that is to come."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Let it not come."""
        self.callback = None


class FakeWire:
    """A cable: ``sent`` is what the device put on it."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.paused = False
        self.congested = False
        self._receive: Callable[[Sequence[bytes]], None] = lambda _: None
        self._ready: Callable[[], None] = lambda: None

    def listen(self, receive: Callable[[Sequence[bytes]], None], ready: Callable[[], None]) -> None:
        """Name the device's callbacks."""
        self._receive, self._ready = receive, ready

    def pause(self) -> None:
        """Take no more frames."""
        self.paused = True

    def resume(self) -> None:
        """Take frames again."""
        self.paused = False

    def send(self, frame: bytes | bytearray | memoryview) -> None:
        """Put a frame on the wire."""
        if not len(frame):
            raise ValueError("an empty frame")
        self.sent.append(bytes(frame))

    def arrive(self, *frames: bytes) -> None:
        """Give the device frames, as if they came."""
        self._receive(frames)

    def clear_up(self) -> None:
        """Be no longer congested."""
        self.congested = False
        self._ready()


@dataclass
class FakeHost:
    """A :class:`testbed.vfio_user.device.Host` for tests and fuzzing, in the model's own process.

    :param vectors: the messages the device sent. :param high: the level of INTA.
    :param rows: what the device recorded.
    """

    memory: FakeMemory = field(default_factory=lambda: FakeMemory(16 << 20))
    wire: FakeWire = field(default_factory=FakeWire)
    interrupts: Literal["none", "intx", "msi", "msix"] = "msix"
    mac: bytes = bytes.fromhex("020000000002")
    vectors: list[int] = field(default_factory=list)
    high: bool = False
    rows: list[Recorded] = field(default_factory=list)
    time_ns: int = 1_000_000

    def __post_init__(self) -> None:
        self._timers: list[tuple[int, int, FakeTimer]] = []
        self._count = 0

    def interrupt(self, vector: int = 0) -> None:
        """Take a message."""
        self.vectors.append(vector)

    def level(self, *, high: bool) -> None:
        """Take the level of INTA."""
        self.high = high

    def now_ns(self) -> int:
        """Return the time."""
        return self.time_ns

    def call_at(self, when_ns: int, callback: Callable[[], None]) -> FakeTimer:
        """Call in :meth:`run`."""
        timer = FakeTimer(callback)
        self._count += 1
        heapq.heappush(self._timers, (when_ns, self._count, timer))
        return timer

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Refuse: there are no descriptors here."""
        raise NotImplementedError

    def unwatch(self, fd: int) -> None:
        """Refuse likewise."""
        raise NotImplementedError

    def record(self, kind: DeviceEvent, queue: int = 0, a: int = 0, b: int = 0, c: int = 0) -> None:
        """Keep a row."""
        self.rows.append(Recorded(kind, queue, a, b, c))

    def run(self, for_ns: int = 0, most: int = 10_000) -> int:
        """Let time pass and make the calls that are due, each at its time; return how many.

        :raise RuntimeError: they were more than ``most``: the device does not come to rest.
        """
        end_ns, count = self.time_ns + for_ns, 0
        while self._timers and self._timers[0][0] <= end_ns:
            when_ns, _, timer = heapq.heappop(self._timers)
            self.time_ns = max(self.time_ns, when_ns)
            if timer.callback:
                timer.callback()
            count += 1
            if count > most:
                raise RuntimeError(f"the device still acts after {most} calls")
        self.time_ns = end_ns
        return count


def started(model: type[Device]) -> tuple[FakeHost, Device]:
    """Return a model and the host it lives at."""
    host = FakeHost()
    return host, model(host)
