"""The device's end of the cable: frames on a stream socket, framed as QEMU's ``-netdev stream`` frames them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

from testbed.traffic.framing import MAX_WIRE_BYTES, Deframer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

__all__ = ["StreamWire"]

RECEIVE_BYTES = 64 << 10
CONGESTED_BYTES = 256 << 10  # waiting to be sent: the device should stop
_LENGTH = struct.Struct(">I")


class _Loop(Protocol):
    def watch(self, fd: int, callback: Callable[[], None], *, for_writing: bool = False) -> None:
        """Call when ready."""

    def unwatch(self, fd: int) -> None:
        """Stop that."""

    def call_at(self, when_ns: int, callback: Callable[[], None]) -> object:
        """Call later."""


def _nothing(*_: object) -> None:
    """Before a model listens."""


class StreamWire:
    """See :class:`testbed.vfio_user.device.Wire`.

    :param sock: its other end is a :class:`testbed.traffic.wire.Wire`, which always reads; None: there is no cable.
    """

    def __init__(self, sock: socket.socket | None, loop: _Loop) -> None:
        self.frames_lost = 0  # sent while congested
        self._sock = sock
        self._loop = loop
        self._deframer = Deframer()
        self._receive: Callable[[Sequence[bytes]], None] = _nothing
        self._ready: Callable[[], None] = _nothing
        self._paused = True
        self._outgoing = bytearray()
        self._flushing = False
        self._waiting = False
        if sock:
            sock.settimeout(0)

    def listen(self, receive: Callable[[Sequence[bytes]], None], ready: Callable[[], None]) -> None:
        """Name the model's callbacks; see the protocol."""
        self._receive, self._ready = receive, ready
        self.resume()

    def pause(self) -> None:
        """Leave frames in the socket."""
        self._paused = True
        self._watch()

    def resume(self) -> None:
        """Take frames again."""
        self._paused = False
        self._watch()

    @property
    def congested(self) -> bool:
        """Whether more waits to be sent than should."""
        return len(self._outgoing) >= CONGESTED_BYTES

    def send(self, frame: bytes | bytearray | memoryview) -> None:
        """Send a frame; those sent between two turns of the loop go out together."""
        if not 0 < len(frame) <= MAX_WIRE_BYTES:
            raise ValueError(f"a frame of {len(frame)} bytes")
        if self.congested:
            self.frames_lost += 1
            return
        self._outgoing += _LENGTH.pack(len(frame))
        self._outgoing += frame
        if not self._flushing:
            self._flushing = True
            self._loop.call_at(0, self._flush)

    def _flush(self) -> None:
        """Write what waits, as much as the socket takes."""
        self._flushing = False
        if self._sock is None:
            self._outgoing.clear()
            return
        was_congested = self.congested
        try:
            del self._outgoing[: self._sock.send(self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._outgoing.clear()  # nobody is there any more
        self._waiting = bool(self._outgoing)
        self._flushing = self._waiting
        self._watch()
        if was_congested and not self.congested:
            self._ready()

    def _watch(self) -> None:
        if self._sock is None:
            return
        if self._waiting:
            self._loop.watch(self._sock.fileno(), self._both, for_writing=True)
        elif self._paused:
            self._loop.unwatch(self._sock.fileno())
        else:
            self._loop.watch(self._sock.fileno(), self._take)

    def _both(self) -> None:
        self._flush()
        if not self._paused:
            self._take()

    def _take(self) -> None:
        if self._sock is None:
            return
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        frames = self._deframer.feed(data)
        if not data or self._deframer.garbage is not None:
            self.pause()  # the other end is gone, or mad
        if frames:
            self._receive(frames)
