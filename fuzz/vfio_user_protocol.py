"""Atheris target: any bytes, descriptors and order of messages on the socket of a device model, in this process.

    python fuzz/vfio_user_protocol.py -runs=1000000 [CORPUS]

Nothing may escape but :class:`Disconnected`. The device at the other end checks that it sees only what the interface
promises; every view of memory is compared with what a simple list says is mapped; every answer is whole; no descriptor
stays open.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import sys
from pathlib import Path
from typing import ClassVar

import atheris

with atheris.instrument_imports(include=["testbed.vfio_user"]):
    from testbed.vfio_user.connection import Connection, Disconnected
    from testbed.vfio_user.device import (
        Bar,
        Declaration,
        Device,
        DmaFault,
        Express,
        Identity,
        Msi,
        MsiX,
        PowerManagement,
    )
    from testbed.vfio_user.interrupts import Interrupts
    from testbed.vfio_user.loop import Loop
    from testbed.vfio_user.memory import GuestMemory
    from testbed.vfio_user.protocol import DMA_MAP, HEADER, MAX_MESSAGE_BYTES, REGION_RW, Command, Region
    from testbed.vfio_user.session import Session

COVERS = [f"testbed.vfio_user.{name}" for name in ("session", "connection", "memory", "interrupts", "config")]
PAGES = 16
MOST_MESSAGES = 24
CHECK_EVERY = 64  # executions between two counts of open descriptors
# For each command the widths of its payload's numbers, and below what most of them should be to mean anything.
FIELDS: dict[int, tuple[tuple[int, int], ...]] = {
    Command.VERSION: ((2, 2), (2, 2)),
    Command.DMA_MAP: ((4, 64), (4, 4), (8, 3), (8, 8), (8, 8)),
    Command.DMA_UNMAP: ((4, 64), (4, 4), (8, 8), (8, 8)),
    Command.DEVICE_GET_INFO: ((4, 64), (4, 4), (4, 4), (4, 4)),
    Command.DEVICE_GET_REGION_INFO: ((4, 64), (4, 4), (4, 12), (4, 4), (8, 8), (8, 8)),
    Command.DEVICE_GET_IRQ_INFO: ((4, 64), (4, 4), (4, 8), (4, 4)),
    Command.DEVICE_SET_IRQS: ((4, 64), (4, 64), (4, 6), (4, 24), (4, 24)),
    Command.REGION_READ: ((8, 8192), (4, 10), (4, 16)),
    Command.REGION_WRITE: ((8, 8192), (4, 10), (4, 16)),
    Command.REGION_WRITE_MULTI: ((8, 4), (8, 8192), (4, 10), (4, 12), (8, 256)),
}
IN_PAGES = {(Command.DMA_MAP, at) for at in (2, 3, 4)} | {(Command.DMA_UNMAP, at) for at in (2, 3)}


SENSIBLE_IRQ_FLAGS = [0x24, 0x24, 0x24, 0x21, 0x22, 0x11, 0x12, 0x09, 0x14, 0x0C, 0x27, 0]


class Strict(Device):
    """A device that takes nothing but what the interface promises."""

    declaration = Declaration(
        Identity(0x1234, 0x5678),
        bars=(Bar(0, 4096), Bar(2, 8192, wide=True), Bar(4, 64, io=True)),
        capabilities=(PowerManagement(), Msi(4), MsiX(20, 2, 0, 4096), Express()),
    )
    sizes: ClassVar = {0: 4096, 2: 8192, 4: 64}

    def check(self, bar: int, offset: int, size: int) -> None:
        assert size in {1, 2, 4, 8} and not offset % size, f"{size} bytes at {offset}"
        assert offset >= 0 and offset + size <= self.sizes[bar], f"{size} bytes at {offset} of BAR {bar}"
        assert bar != 2 or not (offset < 320 or 4096 <= offset < 4104), "QEMU's own table"

    def read(self, bar: int, offset: int, size: int) -> int:
        self.check(bar, offset, size)
        return (1 << 8 * size) - 1

    def write(self, bar: int, offset: int, size: int, value: int) -> None:
        self.check(bar, offset, size)
        assert 0 <= value < 1 << 8 * size

    def reset(self) -> None:
        pass

    def save(self) -> bytes:
        return b""

    def load(self, state: bytes) -> None:
        pass


def memory_file(size: int, seals: int) -> int:
    fd = os.memfd_create("fuzz", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


MEMORY = memory_file(PAGES * 4096, fcntl.F_SEAL_SHRINK)
FILES = [MEMORY, os.eventfd(0), os.eventfd(0), memory_file(4096, 0), os.open("/dev/null", os.O_RDONLY)]
executions = 0


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class Execution:
    """One client from its first message to its last."""

    def __init__(self, data: bytes) -> None:
        self.take = atheris.FuzzedDataProvider(data)
        self.memory = GuestMemory()
        self.loop = Loop()
        self.interrupts = Interrupts(Strict.declaration, self.loop)
        self.session = Session(Strict.declaration, self.memory, self.interrupts, self.answer)
        self.session.attach(Strict(self))  # type: ignore[arg-type] # it asks nothing of its host
        self.client, theirs = socket.socketpair()
        self.client.settimeout(0)
        self.connection = Connection(theirs, self.session)

    def answer(self, message: bytes) -> None:
        assert len(message) == HEADER.unpack_from(message)[2] <= MAX_MESSAGE_BYTES, "half an answer"
        self.connection.send(message)
        assert self.client.recv(MAX_MESSAGE_BYTES) == message

    def run(self) -> None:
        try:
            if self.take.ConsumeBool():
                self.begin_as_qemu_does()
            for _ in range(MOST_MESSAGES):
                if not self.take.remaining_bytes():
                    return
                self.act(self.take.ConsumeIntInRange(0, 7))
        except Disconnected:
            return
        finally:
            self.session.end()
            self.connection.close()
            self.client.close()
            self.loop.close()

    def act(self, what: int) -> None:
        if what == 0:
            data = self.take.ConsumeBytes(self.take.ConsumeIntInRange(1, 64))
            self.send(data, self.take.ConsumeIntInRange(0, 3))
        elif what == 1:
            self.use_device()
        elif what == 2:
            self.loop.turn(0)
        elif what == 3:
            self.switch_bus_master()
        else:
            self.send_message()

    def begin_as_qemu_does(self) -> None:
        payload = DMA_MAP.pack(DMA_MAP.size, 3, 0, 0, 4096 * self.take.ConsumeIntInRange(1, PAGES))
        self.send(
            HEADER.pack(1, Command.DMA_MAP, HEADER.size + len(payload), 0, 0) + payload, 1, Command.DMA_MAP
        )
        self.switch_bus_master()

    def switch_bus_master(self) -> None:
        value = self.take.PickValueInList([7, 7, 7, 0x407, 3])
        payload = REGION_RW.pack(4, Region.CONFIG, 2) + value.to_bytes(2, "little")
        self.send(HEADER.pack(1, Command.REGION_WRITE, HEADER.size + len(payload), 0, 0) + payload, 0)

    def send_message(self) -> None:
        command = self.take.PickValueInList([*FIELDS, Command.DEVICE_RESET, 0, 11, 12, 77])
        numbers = [self.number(command, at) for at in range(len(FIELDS.get(command, ())))]
        payload = b"".join(numbers)
        payload += self.take.ConsumeBytes(self.take.ConsumeIntInRange(0, 24))
        wrong = self.take.ConsumeIntInRange(0, 31) == 0
        size = self.take.ConsumeInt(4) & 0xFFFFFFFF if wrong else HEADER.size + len(payload)
        flags = self.take.PickValueInList([0, 0, 0, 0x10, 1, 0x21, 0xFFFFFFFF])
        fds = self.take.PickValueInList([0, 0, 1, 2, 20])
        if self.take.ConsumeIntInRange(0, 3):  # as many as belong to it
            count = int.from_bytes(numbers[4], "little") if command == Command.DEVICE_SET_IRQS else 0
            fds = 1 if command == Command.DMA_MAP else min(count, 20)
        self.send(HEADER.pack(1, command, size, flags, 0) + payload, fds, command)

    def number(self, command: int, at: int) -> bytes:
        width, below = FIELDS[command][at]
        if self.take.ConsumeIntInRange(0, 15) == 0:
            return self.take.ConsumeBytes(width).ljust(width, b"\xff")
        if (command, at) == (Command.DEVICE_SET_IRQS, 1):
            return self.take.PickValueInList(SENSIBLE_IRQ_FLAGS).to_bytes(4, "little")
        unit = 4096 if (command, at) in IN_PAGES else 1
        return (self.take.ConsumeIntInRange(0, below) * unit).to_bytes(width, "little")

    def send(self, data: bytes, fds: int, command: int = 0) -> None:
        """Send bytes in one or two pieces, and descriptors with the first."""
        fitting = {Command.DMA_MAP: 0, Command.DEVICE_SET_IRQS: 1}.get(command)
        if fitting is None or self.take.ConsumeIntInRange(0, 7) == 0:
            fitting = self.take.ConsumeIntInRange(0, len(FILES) - 1)
        files = array.array("i", [FILES[fitting]] * fds)
        cut = self.take.ConsumeIntInRange(1, len(data)) if data and self.take.ConsumeBool() else len(data)
        for piece in (data[:cut], data[cut:]):
            if piece:
                ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)] if files else []
                self.client.sendmsg([piece], ancillary)
                files = array.array("i")
                if self.take.ConsumeIntInRange(0, 3):
                    self.connection.drain()

    def use_device(self) -> None:
        """Do what a device may do at any time, and see that memory is what it should be."""
        self.interrupts.message(self.take.ConsumeIntInRange(-1, 24))
        self.interrupts.level(high=self.take.ConsumeBool())
        address, length = self.take.ConsumeInt(5) & ~0xF, self.take.ConsumeIntInRange(-1, 9000)
        if self.take.ConsumeBool():
            address %= (PAGES + 2) * 4096
        try:
            view = self.memory.view(address, length)
        except DmaFault:
            return
        assert len(view) == length and not view.readonly
        view[:] = bytes(length)


def one(data: bytes) -> None:
    """Run one input."""
    global executions  # noqa: PLW0603 - libFuzzer calls a function and nothing else
    before = descriptors() if executions % CHECK_EVERY == 0 else 0
    Execution(data).run()
    if before:
        assert descriptors() == before, "a descriptor stayed open"
    executions += 1


def main() -> None:
    """Fuzz; the arguments are libFuzzer's."""
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
