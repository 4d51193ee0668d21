"""The client's socket: messages and their descriptors in, messages out."""

from __future__ import annotations

import array
import os
import select
import socket
from typing import TYPE_CHECKING

from testbed.vfio_user.protocol import HEADER, MAX_MESSAGE_BYTES, Header

if TYPE_CHECKING:
    from testbed.vfio_user.session import Session

__all__ = ["Connection", "Disconnected"]

RECEIVE_BYTES = 64 << 10
MAX_FDS = 253  # the kernel's own limit of one message (SCM_MAX_FD)
SEND_LIMIT_MS = 1000
_ANCILLARY_BYTES = socket.CMSG_SPACE(MAX_FDS * 4)


class Disconnected(Exception):
    """The client is gone, or says what cannot be a message."""


class Connection:
    """Takes a stream of bytes and descriptors apart into messages.

    Descriptors that came with a chunk of the stream belong to the message that the chunk's last byte belongs to: the
    kernel ends a chunk behind what was sent with them, but may put other messages before it.
    """

    def __init__(self, sock: socket.socket, session: Session) -> None:
        self._sock = sock
        self._session = session
        self._buffer = bytearray(RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._fds: list[int] = []
        self._fds_end = 0  # end, in the buffer, of the chunk that they came with
        sock.settimeout(0)

    def close(self) -> None:
        """Close the socket and what was left unused."""
        self._close_fds()
        self._sock.close()

    def receive(self) -> None:
        """Take what has come and obey the messages that are complete.

        :raise Disconnected: nothing will ever come.
        """
        try:
            count, ancillary, _, _ = self._sock.recvmsg_into([self._view[self._filled :]], _ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise Disconnected(str(error)) from error
        fds = _descriptors(ancillary) if ancillary else []
        if not count:
            self._fds += fds
            raise Disconnected("the client closed the connection")
        self.take(count, fds)

    def drain(self) -> None:
        """Receive until nothing waits.

        :raise Disconnected: nothing will ever come.
        """
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        while poller.poll(0):
            self.receive()

    def take(self, count: int, fds: list[int]) -> None:
        """Go on with ``count`` bytes more in the buffer, and descriptors that came with them.

        :raise Disconnected: they are no messages.
        """
        if fds:
            self._close_fds()  # those of a message that never became whole
            self._fds, self._fds_end = fds, self._filled + count
        end = self._filled + count
        start = 0
        while end - start >= HEADER.size:
            header = Header._make(HEADER.unpack_from(self._buffer, start))
            if not HEADER.size <= header.size <= MAX_MESSAGE_BYTES:
                raise Disconnected(f"a message of {header.size} bytes")
            stop = start + header.size
            if stop > end:
                break
            mine: list[int] = []
            if self._fds and start < self._fds_end <= stop:
                mine, self._fds = self._fds, mine
            self._session.handle(header, self._view[start + HEADER.size : stop], mine)
            start = stop
        if start:
            self._buffer[: end - start] = self._buffer[start:end]
            self._fds_end -= start
        self._filled = end - start

    def put(self, data: bytes) -> None:
        """Fill the buffer by hand, as a test or a fuzzer does; then call :meth:`take`."""
        self._view[self._filled : self._filled + len(data)] = data

    def send(self, message: bytes) -> None:
        """Send a message to the client, which waits for it.

        :raise Disconnected: it does not read.
        """
        while True:
            try:
                sent = self._sock.send(message)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                raise Disconnected(str(error)) from error
            if sent == len(message):
                return
            message = message[sent:]
            poller = select.poll()
            poller.register(self._sock, select.POLLOUT)
            if not poller.poll(SEND_LIMIT_MS):
                raise Disconnected(f"the client did not read for {SEND_LIMIT_MS} ms")

    def _close_fds(self) -> None:
        while self._fds:
            os.close(self._fds.pop())


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return fds.tolist()
