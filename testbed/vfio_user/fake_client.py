"""QEMU's end of the protocol without QEMU, for tests: one thread, no waiting, a server that is turned by hand."""

from __future__ import annotations

import array
import contextlib
import fcntl
import mmap
import os
import socket
from typing import TYPE_CHECKING, Self

from testbed.vfio_user.protocol import (
    DMA_MAP,
    DMA_UNMAP,
    DMA_WRITABLE,
    HEADER,
    IRQ_SET,
    MULTI_COUNT,
    MULTI_WRITE,
    REGION_RW,
    VERSION,
    Command,
    Header,
    IrqSet,
    MessageFlags,
    Region,
)
from testbed.vfio_user.server import Channels, Server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from testbed.vfio_user.device import Device

__all__ = ["Client", "Failed", "memory_file"]

MAC = bytes.fromhex("020000000002")
_TURNS = 10


class Failed(Exception):
    """The server answered with this errno."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.number = number


def memory_file(size: int, *, sealed: bool = True) -> int:
    """Return a memfd as guest memory is made of."""
    fd = os.memfd_create("fake-memory", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if sealed:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return fd


class Client:
    """A client and the server it talks to.

    ``memory`` is what the device sees at address 0 after :meth:`map_memory`.

    :param directory: for the socket.
    :param wire: the device's end of a cable. :param control: the server's end of a control channel.
    """

    def __init__(
        self,
        model: type[Device],
        directory: Path,
        wire: socket.socket | None = None,
        control: socket.socket | None = None,
        events: int | None = None,
    ) -> None:
        self._stack = contextlib.ExitStack()
        listener = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        path = directory / "nic"
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen()
        self.server = Server(model, Channels(listener, control, wire, events), MAC)
        self._stack.callback(self.server.close)
        self.sock = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        self.sock.connect(str(path))
        self.sock.settimeout(0)
        self.server.turn()
        self.memory = memoryview(bytearray())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close everything."""
        self._stack.close()

    # Messages

    def send(self, command: int, payload: bytes = b"", fds: Sequence[int] = (), flags: int = 0) -> None:
        """Put one message on the socket."""
        header = HEADER.pack(7, command, HEADER.size + len(payload), flags, 0)
        self.send_raw(header + payload, fds)

    def send_raw(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Put bytes on the socket, with descriptors."""
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.sock.sendmsg([data], ancillary)

    def receive(self) -> tuple[Header, bytes] | None:
        """Let the server work; return its next message, if it has one."""
        for _ in range(_TURNS):
            try:
                data = self.sock.recv(HEADER.size)
            except BlockingIOError:
                self.server.turn()
                continue
            header = Header._make(HEADER.unpack(data))
            size = header.size - HEADER.size
            return header, self.sock.recv(size) if size else b""
        return None

    def request(self, command: int, payload: bytes = b"", fds: Sequence[int] = ()) -> bytes:
        """Return the payload of the answer.

        :raise Failed: the server refuses.
        """
        self.send(command, payload, fds)
        answer = self.receive()
        if answer is None:
            raise TimeoutError("the server does not answer")
        header, body = answer
        if (header.id, header.command, header.flags & MessageFlags.TYPE) != (7, command, MessageFlags.REPLY):
            raise ValueError(f"expected the answer to {command}, seen {header}")
        if header.flags & MessageFlags.ERROR:
            raise Failed(header.error)
        return body

    # What QEMU does

    def version(self, capabilities: bytes = b'{"capabilities":{}}'.ljust(200) + b"\0") -> bytes:
        """Say hello."""
        return self.request(Command.VERSION, VERSION.pack(0, 0) + capabilities)

    def map_memory(self, size: int = 1 << 20, address: int = 0) -> None:
        """Give the device memory, and let it use it."""
        fd = memory_file(size)
        try:
            self.map(address, size, fd)
            mapping = self._stack.enter_context(contextlib.closing(mmap.mmap(fd, size)))
            self.memory = self._stack.enter_context(memoryview(mapping))
        finally:
            os.close(fd)
        self.write(Region.CONFIG, 4, 2, 0x0007)

    def map(self, address: int, size: int, fd: int | None, offset: int = 0, flags: int = 3) -> None:
        """Map a file."""
        payload = DMA_MAP.pack(DMA_MAP.size, flags | DMA_WRITABLE, offset, address, size)
        self.request(Command.DMA_MAP, payload, [] if fd is None else [fd])

    def unmap(self, address: int, size: int) -> bytes:
        """Take a mapping back."""
        return self.request(Command.DMA_UNMAP, DMA_UNMAP.pack(DMA_UNMAP.size, 0, address, size))

    def read(self, region: int, offset: int, size: int) -> int:
        """Read a register."""
        answer = self.request(Command.REGION_READ, REGION_RW.pack(offset, region, size))
        return int.from_bytes(answer[REGION_RW.size :], "little")

    def write(self, region: int, offset: int, size: int, value: int) -> None:
        """Write a register and wait for the answer."""
        self.request(Command.REGION_WRITE, _write(region, offset, size, value))

    def post(self, region: int, offset: int, size: int, value: int) -> None:
        """Write a register; there is no answer."""
        self.send(Command.REGION_WRITE, _write(region, offset, size, value), flags=MessageFlags.NO_REPLY)

    def write_multi(self, *writes: tuple[int, int, int, int]) -> None:
        """Write (region, offset, size, value) in one message."""
        body = b"".join(
            MULTI_WRITE.pack(offset, region, size, value.to_bytes(8, "little"))
            for region, offset, size, value in writes
        )
        self.request(Command.REGION_WRITE_MULTI, MULTI_COUNT.pack(len(writes)) + body)

    def set_irqs(
        self, flags: int, index: int, start: int, count: int, data: bytes = b"", fds: Sequence[int] = ()
    ) -> None:
        """Configure interrupts."""
        payload = IRQ_SET.pack(IRQ_SET.size + len(data), flags, index, start, count) + data
        self.request(Command.DEVICE_SET_IRQS, payload, fds)

    def listen(self, index: int, count: int = 1) -> list[int]:
        """Return eventfds that the first interrupts of a type write to; they are closed with the client."""
        fds = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(count)]
        for fd in fds:
            self._stack.callback(os.close, fd)
        self.set_irqs(IrqSet.EVENTFD | IrqSet.TRIGGER, index, 0, count, fds=fds)
        return fds


def _write(region: int, offset: int, size: int, value: int) -> bytes:
    return REGION_RW.pack(offset, region, size) + value.to_bytes(size, "little")
