"""Device models for tests of the server."""

from __future__ import annotations

import gc
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import pytest

from testbed.vfio_user import (
    Bar,
    Command,
    Declaration,
    Device,
    Express,
    Host,
    Identity,
    Msi,
    MsiX,
    PowerManagement,
)
from testbed.vfio_user.fake_client import Failed

if TYPE_CHECKING:
    from testbed.vfio_user.fake_client import Client


def probe(client: Client) -> Probe:
    device = client.server.device
    assert isinstance(device, Probe)
    return device


def refused(number: int) -> pytest.RaisesContext[Failed]:
    return pytest.raises(Failed, match=os.strerror(number))


@cache
def leave_out_what_is_older() -> None:
    """Let the garbage collector look at what tests make from now on: all of a whole suite takes it 0.1 s."""
    gc.collect()
    gc.freeze()


def descriptors() -> int:
    """Return how many are open, but for those of objects that nobody holds any more: earlier tests leave some."""
    leave_out_what_is_older()
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class Fill(Command, frozen=True, tag="fill"):
    """Write a byte to the memory the guest named."""

    byte: Annotated[int, msgspec.Meta(ge=0, le=255)]


class Probe(Device):
    """Registers that do one thing each, and a memory of what happened."""

    declaration = Declaration(
        Identity(0x1234, 0x5678, revision=3, subsystem_vendor=0x1AF4, subsystem=9),
        bars=(Bar(0, 4096), Bar(2, 4096, wide=True), Bar(4, 64, io=True)),
        capabilities=(PowerManagement(), Msi(4), MsiX(20, bar=2, table_offset=0, pba_offset=2048), Express()),
    )
    commands = (Fill,)

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.registers = bytearray(4096)
        self.written: list[tuple[int, int, int, int]] = []
        self.frames: list[bytes] = []
        self.resets = 0
        host.wire.listen(self.frames.extend, ready=self.on_ready)
        self.readies = 0

    def on_ready(self) -> None:
        self.readies += 1

    def read(self, bar: int, offset: int, size: int) -> int:
        return int.from_bytes(self.registers[offset : offset + size], "little") if bar == 0 else bar

    def write(self, bar: int, offset: int, size: int, value: int) -> None:
        self.written.append((bar, offset, size, value))
        self.registers[offset : offset + size] = value.to_bytes(size, "little")

    def reset(self) -> None:
        self.resets += 1
        self.registers[:] = bytes(4096)

    def save(self) -> bytes:
        return bytes(self.registers)

    def load(self, state: bytes) -> None:
        if len(state) != len(self.registers):
            raise ValueError("not the registers of a probe")
        self.registers[:] = state

    def command(self, command: Command) -> None:
        assert isinstance(command, Fill)
        address = int.from_bytes(self.registers[:8], "little")
        self.host.memory.view(address, 1)[0] = command.byte
