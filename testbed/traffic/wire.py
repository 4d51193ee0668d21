"""The host's end of a guest's wire: a Unix stream socket whose other end is QEMU's ``-netdev stream``.

A thread reads the socket from the first moment to the last, because QEMU writes to it while holding its big
lock: a peer that stops reading freezes the whole guest, QMP included.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import termios
import threading
import time
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from testbed.errors import GuestLost, TestbedError
from testbed.traffic.framing import MAX_WIRE_BYTES, Deframer, stream_of
from testbed.traffic.pcap import PcapFile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from scapy.interfaces import NetworkInterface

__all__ = ["KEEP_BYTES", "Tap", "Wire"]

KEEP_BYTES = 256 << 20  # received frames kept for take(); what comes beyond is counted, not kept
OVERHEAD_BYTES = 64  # of a frame kept in memory
RECEIVE_BYTES = 256 << 10
FIRST_LOOK_S, LAST_LOOK_S = 0.0002, 0.01  # between two looks at a queue that sends no event when it is empty


class Wire:
    """The wire of one guest; a context manager that owns the socket.

    :param sock: one end of a socketpair(AF_UNIX, SOCK_STREAM); the other is QEMU's.
    :param pcap: where to record the frames of both directions, in the order in which they pass.
    :param keep_bytes: memory for received frames until they are taken; ``frames_not_kept`` counts the rest.
    :raise HostError: the pcap cannot be written; the socket stays the caller's.
    """

    def __init__(self, sock: socket.socket, pcap: Path | None = None, keep_bytes: int = KEEP_BYTES) -> None:
        self.frames_sent = 0
        self.frames_received = 0
        self.frames_not_kept = 0
        self._sock = sock
        self._keep_bytes = keep_bytes
        self._pcap = PcapFile(pcap) if pcap else None
        self._deframer = Deframer()
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._taps: list[Tap] = []
        self._failure: TestbedError | None = None
        self._ended = False
        self._changed = threading.Condition()  # guards all of the above but the socket's sending side
        self._sending = threading.Lock()
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._read, name="wire", daemon=True)
        sock.settimeout(0)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread, close socket and pcap; what was received can still be taken. Twice is once."""
        if self._stop < 0:
            return
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)
        self._stop = -1
        self._sock.close()
        if self._pcap:
            self._pcap.close()

    @property
    def failure(self) -> TestbedError | None:
        """What went wrong while receiving: garbage, a full disk. That QEMU ended is no failure."""
        return self._failure

    @property
    def ended(self) -> bool:
        """Whether nothing can come any more: QEMU's end or ours is closed, or receiving failed."""
        return self._ended

    # Sending

    def send(self, frames: Iterable[bytes], timeout_s: float = 30.0) -> int:
        """Write frames to the wire; return how many.

        :param timeout_s: limit for all of them together.
        :raise GuestLost: QEMU closed its end or did not take them in time; the wire is of no use afterwards.
        :raise UsageError: a frame is empty or longer than QEMU takes; those before it may be sent.
        """
        deadline = time.monotonic() + timeout_s
        count = 0
        with self._sending:
            for piece, held in stream_of(frames):
                self._record(held)
                self._write(memoryview(piece), deadline, timeout_s)
                count += len(held)
                self.frames_sent += len(held)
        return count

    def _record(self, frames: list[bytes]) -> None:
        if self._pcap:
            with self._changed:
                self._pcap.write(frames)

    def _write(self, data: memoryview, deadline: float, timeout_s: float) -> None:
        poller = select.poll()
        while data:
            self._check_open()
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                poller.register(self._sock, select.POLLOUT)
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not poller.poll(left_s * 1000):
                    raise self._stuck("take frames from its wire", len(data), timeout_s) from None
            except OSError as error:
                raise GuestLost(f"expected QEMU to take frames, seen: {error.strerror}") from error

    def _check_open(self) -> None:
        if self._failure:
            raise self._failure
        if self._ended:
            raise GuestLost(
                "expected QEMU to take frames, seen: its end of the wire is closed", "see QEMU's log"
            )

    def outstanding(self) -> int:
        """Return how many bytes QEMU has not read yet; only 0 is exact, see SIOCOUTQ of unix(7)."""
        return _queued_bytes(self._sock, termios.TIOCOUTQ)

    def flush(self, timeout_s: float = 10.0) -> None:
        """Wait until QEMU has read everything that was sent.

        The kernel has no event for it, so this looks again and again, each time a little later.

        :raise GuestLost: QEMU closed its end or did not read in time.
        """
        deadline = time.monotonic() + timeout_s
        pause_s = FIRST_LOOK_S
        while left := self.outstanding():
            with self._changed:
                self._check_open()
                if time.monotonic() > deadline:
                    raise self._stuck("read its wire", left, timeout_s)
                self._changed.wait(pause_s)
            pause_s = min(pause_s * 1.5, LAST_LOOK_S)

    def _stuck(self, deed: str, left_bytes: int, timeout_s: float) -> GuestLost:
        message = f"expected QEMU to {deed} within {timeout_s:g} s, seen {left_bytes} bytes left"
        return GuestLost(message, "it hangs or its NIC takes no frames; see its log")

    # Receiving

    def take(self, timeout_s: float = 0.0) -> bytes | None:
        """Return the next frame from the guest; None when none comes in time or none can come any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._inbox or self._ended, timeout_s)
            return self._pop() if self._inbox else None

    def take_all(self) -> list[bytes]:
        """Return the frames from the guest that have arrived and were not taken yet, in order."""
        with self._changed:
            frames = list(self._inbox)
            self._inbox.clear()
            self._inbox_bytes = 0
        return frames

    def settle(self, timeout_s: float = 10.0) -> None:
        """Wait until everything that QEMU has written so far is received and counted.

        :raise GuestLost: it did not come to an end in time.
        """
        with self._changed:
            if not self._changed.wait_for(self._is_quiet, timeout_s):
                raise GuestLost(
                    f"expected the guest's wire to fall silent within {timeout_s:g} s, seen frames"
                )

    def _is_quiet(self) -> bool:
        return self._ended or not _queued_bytes(self._sock, termios.FIONREAD)

    def tap(self) -> Tap:
        """Return a second reader that gets every frame from now on, whoever takes it here; close it."""
        tap = Tap(self)
        with self._changed:
            self._taps.append(tap)
            if self._ended:
                tap.end()
        return tap

    def untap(self, tap: Tap) -> None:
        """Give a tap no more frames."""
        with self._changed:
            if tap in self._taps:
                self._taps.remove(tap)

    def scapy(self, **addresses: str) -> AbstractContextManager[NetworkInterface]:
        """Make this wire the interface of every scapy call inside; see :mod:`testbed.traffic.supersocket`."""
        from testbed.traffic.supersocket import scapy_interface  # noqa: PLC0415 - scapy takes 0.3 s to import

        return scapy_interface(self, **addresses)

    def _pop(self) -> bytes:
        frame = self._inbox.popleft()
        self._inbox_bytes -= len(frame) + OVERHEAD_BYTES
        return frame

    def _read(self) -> None:
        """Receive until told to stop; the thread's body."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        poller.register(self._stop, select.POLLIN)
        with ExitStack() as at_end:
            at_end.callback(self._end)
            while all(fd != self._stop for fd, _ in poller.poll()):
                with self._changed:
                    if not self._receive():
                        return
                    self._changed.notify_all()

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            for tap in self._taps:
                tap.end()
            self._changed.notify_all()
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the peer was faster

    def _receive(self) -> bool:
        """Take what lies in the socket; return False when it was the last."""
        try:
            data = self._sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""  # a reset: QEMU died
        frames = self._deframer.feed(data)
        try:
            if self._pcap and frames:
                self._pcap.write(frames)
        except TestbedError as error:
            self._failure = error
        self._keep(frames)
        if self._deframer.garbage is not None:
            expected = f"expected a frame of 1 to {MAX_WIRE_BYTES} bytes on the guest's wire"
            self._failure = GuestLost(
                f"{expected}, seen a length of {self._deframer.garbage}", "see QEMU's log"
            )
        return bool(data) and self._failure is None

    def _keep(self, frames: list[bytes]) -> None:
        self.frames_received += len(frames)
        for frame in frames:
            size = len(frame) + OVERHEAD_BYTES
            if self._inbox_bytes + size > self._keep_bytes:
                self.frames_not_kept += 1
            else:
                self._inbox.append(frame)
                self._inbox_bytes += size
        for tap in self._taps:
            tap.put(frames)


class Tap:
    """One more reader of a wire, with a file descriptor that is readable while frames wait."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._frames: deque[tuple[float, bytes]] = deque()
        self._ended = False
        self._ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return a descriptor to select for reading; -1 when closed."""
        return self._ready

    def put(self, frames: list[bytes]) -> None:
        """Add frames; the wire's thread calls it."""
        now = time.time()
        with self._lock:
            if self._ready >= 0 and frames:
                self._frames.extend((now, frame) for frame in frames)
                os.eventfd_write(self._ready, 1)

    def end(self) -> None:
        """Say that nothing comes any more; the descriptor stays readable."""
        with self._lock:
            self._ended = True
            if self._ready >= 0:
                os.eventfd_write(self._ready, 1)

    def take(self) -> tuple[float, bytes] | None:
        """Return the next frame and when it came (seconds since the epoch), or None if none waits.

        :raise EOFError: none can come any more.
        """
        with self._lock:
            if not self._frames:
                if self._ended or self._ready < 0:
                    raise EOFError("the guest's wire has ended")
                return None
            item = self._frames.popleft()
            if not self._frames and not self._ended and self._ready >= 0:
                os.eventfd_read(self._ready)
            return item

    def close(self) -> None:
        """Take the tap off the wire; further calls do nothing."""
        self._wire.untap(self)
        with self._lock:
            if self._ready >= 0:
                os.close(self._ready)
                self._ready = -1


def _queued_bytes(sock: socket.socket, request: int) -> int:
    """Return what FIONREAD or SIOCOUTQ (the same number as TIOCOUTQ) says; 0 for a closed socket."""
    if sock.fileno() < 0:
        return 0
    answer: bytes = fcntl.ioctl(sock, request, bytes(4))
    return int(struct.unpack("i", answer)[0])
