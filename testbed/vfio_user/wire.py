"""The device's end of the cable: frames on a stream socket, framed as QEMU's ``-netdev stream`` frames them."""

from __future__ import annotations

import select
import struct
from typing import TYPE_CHECKING

from testbed.traffic.framing import MAX_WIRE_BYTES, Deframer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from testbed.vfio_user.loop import Loop

__all__ = ["StreamWire"]

RECEIVE_BYTES = 64 << 10
CONGESTED_BYTES = 256 << 10  # waiting to be sent: the device should stop
INBOX_BYTES = 256 << 10  # waiting for the device, when it runs: what comes more waits in the socket
FROZEN_INBOX_BYTES = 64 << 20  # and while it stands still: the host is to get rid of what it injects
PATIENCE_MS = 1000
_LENGTH = struct.Struct(">I")


def _nothing(*_: object) -> None:
    """Before a model listens."""


class StreamWire:
    """See :class:`testbed.vfio_user.device.Wire`.

    The socket is the server's to read and write; the device gets frames when it may act.

    :param sock: its other end is a :class:`testbed.traffic.wire.Wire`, which always reads; None: there is no cable.
    """

    def __init__(self, sock: socket.socket | None, loop: Loop) -> None:
        self.frames_lost = 0  # sent while congested
        self._sock = sock
        self._loop = loop
        self._deframer = Deframer()
        self._receive: Callable[[Sequence[bytes]], None] = _nothing
        self._ready: Callable[[], None] = _nothing
        self._inbox: list[bytes] = []
        self._inbox_bytes = 0
        self._paused = True
        self._delivering = False
        self._outgoing = bytearray()
        self._flushing = False
        self._ended = sock is None
        if sock:
            sock.settimeout(0)

    def listen(self, receive: Callable[[Sequence[bytes]], None], ready: Callable[[], None]) -> None:
        """Name the model's callbacks; see the protocol."""
        self._receive, self._ready = receive, ready
        self.resume()

    def pause(self) -> None:
        """Leave frames in the inbox and the socket."""
        self._paused = True

    def resume(self) -> None:
        """Take frames again."""
        self._paused = False
        self._offer()
        self.serve()

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

    # The socket

    def serve(self) -> None:
        """Tell the loop what the socket is to be looked at for; to be called when that may have changed."""
        if self._sock is None or self._ended:
            return
        room = FROZEN_INBOX_BYTES if self._loop.stepped else INBOX_BYTES
        reading = self._inbox_bytes < room
        self._loop.serve(self._sock.fileno(), self._on_socket, reading=reading, writing=bool(self._outgoing))

    def _on_socket(self) -> None:
        self._take()
        if self._outgoing:
            self._flush()
        self.serve()

    def _flush(self) -> None:
        """Write what waits, as much as the socket takes."""
        self._flushing = False
        was_congested = self.congested
        try:
            del self._outgoing[: self._sock.send(self._outgoing) if self._sock else None]
        except BlockingIOError:
            pass
        except OSError:
            self._outgoing.clear()  # nobody is there any more
        if self._outgoing and self._loop.stepped and self._sock and _writable(self._sock):
            self._flush()  # whether the wire is congested must not hang on how fast the other side is
            return
        if self._outgoing:
            self._flushing = True  # the loop says when
            self.serve()
        if was_congested and not self.congested:
            self._loop.call_at(0, self._ready)

    def _take(self) -> None:
        try:
            data = self._sock.recv(RECEIVE_BYTES) if self._sock else b""
        except BlockingIOError:
            return
        except OSError:
            data = b""
        frames = self._deframer.feed(data)
        self._inbox += frames
        self._inbox_bytes += len(data)
        self._offer()
        if self._sock and (not data or self._deframer.garbage is not None):
            self._ended = True  # the other end is gone, or mad
            self._loop.ignore(self._sock.fileno())

    # The device

    def _offer(self) -> None:
        if self._inbox and not self._paused and not self._delivering:
            self._delivering = True
            self._loop.call_at(0, self._deliver)

    def _deliver(self) -> None:
        self._delivering = False
        if self._paused:
            return
        frames, self._inbox, self._inbox_bytes = self._inbox, [], 0
        self._receive(frames)
        self.serve()


def _writable(sock: socket.socket) -> bool:
    """Wait until the other side has read something; False: it never does."""
    poller = select.poll()
    poller.register(sock, select.POLLOUT)
    return bool(poller.poll(PATIENCE_MS))
