"""QEMU's end of a wire without QEMU, for tests."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Self

from testbed.traffic.framing import Deframer, stream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["FakeQemu"]


class FakeQemu:
    """Reads frames from its end of a socketpair and answers them.

    :param answer: called with each frame, in a thread of its own; what it returns is sent back.
    """

    def __init__(self, answer: Callable[[bytes], Iterable[bytes]] = lambda _: ()) -> None:
        self.received: list[bytes] = []
        self.host_end, self._sock = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._answer = answer
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="fake-qemu", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.host_end.close()

    def start(self) -> Self:
        """Begin to read; before that, this is a QEMU that takes no frames."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Close this end, as a QEMU that exits does."""
        if self._sock.fileno() >= 0:
            self._sock.shutdown(socket.SHUT_RDWR)
            if self._thread.is_alive():
                self._thread.join()
            self._sock.close()

    def send(self, frames: Iterable[bytes]) -> None:
        """Send frames to the host; blocks as QEMU does when the host does not read."""
        for piece, _ in stream_of(frames):
            self._sock.sendall(piece)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes that may be half a frame or none."""
        self._sock.sendall(data)

    def wait_for(self, count: int, timeout_s: float = 5.0) -> list[bytes]:
        """Return the frames received once there are ``count`` of them, or when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.received) >= count, timeout_s)
            return list(self.received)

    def _read(self) -> None:
        deframer = Deframer()
        while data := self._sock.recv(1 << 16):
            for frame in deframer.feed(data):
                with self._changed:
                    self.received.append(frame)
                    self._changed.notify_all()
                self.send(self._answer(frame))
