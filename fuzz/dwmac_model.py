"""Atheris target: what a guest and its wire can do to the DesignWare EQOS model, in this process, without QEMU.

    python fuzz/dwmac_model.py -runs=1000000 [CORPUS]

An input is a list of deeds: registers written and read, descriptors put into rings, frames that come, time that passes,
commands of a test, a snapshot. Nothing may escape from the model, it must come to rest by itself, it reads and writes
nothing but guest memory, keeps no more frames than a full wire, and every frame it sends is one.
"""

from __future__ import annotations

import signal
import struct
import sys
from typing import TYPE_CHECKING, Union

import atheris
import msgspec

with atheris.instrument_imports(include=["testbed.dwmac"]):
    from testbed.dwmac import DwmacIntel, StmmacPci
    from testbed.dwmac.commands import COMMANDS
    from testbed.dwmac.registers import BAR_BYTES, REGISTERS
    from testbed.dwmac.transmit import Transmitter
from testbed.vfio_user.fake import FakeHost, FakeMemory

if TYPE_CHECKING:
    from types import FrameType

    from testbed.dwmac import Eqos

__all__ = ["Transmitter", "main", "one"]

COVERS = [
    f"testbed.dwmac.{name}"
    for name in (
        *("checksum", "clock", "core", "counters", "descriptors", "device", "effects", "filters", "grip"),
        *("interrupts", "mac", "phy", "ptp", "receive", "register_file", "segment", "transmit"),
    )
]
MEMORY_BYTES = 1 << 18
MOST_DEEDS = 40
MOST_CALLS = 3000  # of the host's, until the model must have come to rest
LIMIT_S = 1.0  # of CPU time for one input
RINGS = (0x1000, 0x9000)
OFFSETS = sorted(register.offset for register in REGISTERS.values())
ADDRESSES = [0x10000, 0x20000, 0x1000, MEMORY_BYTES - 32, MEMORY_BYTES, 0, 0xFFFFFFF0]
OWN, CONTEXT, FIRST, LAST, SEGMENT = 1 << 31, 1 << 30, 1 << 29, 1 << 28, 1 << 18
FLAGS = [OWN | FIRST | LAST, OWN | FIRST, OWN, OWN | LAST, OWN | CONTEXT, OWN | FIRST | SEGMENT, 0]
HEADERS = [
    bytes.fromhex("020000000002020000000001 0800 4500002e00010000401100000a0000010a000002 00010002001a0000"),
    bytes.fromhex("020000000002020000000001 0800 4500003000010000400600000a0000010a000002")
    + bytes.fromhex("0001000200000000 00000000 50180000 00000000"),
    bytes.fromhex("020000000002020000000001 86dd 6000000000101140" + "00" * 32 + "0001000200100000"),
    bytes.fromhex("020000000002020000000001 8100a005 0800 4500"),
    bytes.fromhex("020000000002020000000001 88f7 0002"),
    bytes.fromhex("ffffffffffff020000000001 0806 0001"),
    bytes.fromhex("0180c2000001020000000001 8808 0001"),
    b"",
]  # fmt: skip
_DECODER: msgspec.json.Decoder[object] = msgspec.json.Decoder(Union[COMMANDS])  # noqa: UP007 - a tuple of types


class Overtime(AssertionError):
    """The model turns without end."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise Overtime(f"more than {LIMIT_S:g} s for one input")


class Guest:
    """Does what an input says."""

    def __init__(self, data: atheris.FuzzedDataProvider) -> None:
        self.data = data
        self.host = FakeHost(memory=FakeMemory(MEMORY_BYTES))
        self.model = data.PickValueInList([DwmacIntel, DwmacIntel, StmmacPci])
        self.host.interrupts = (
            "intx" if self.model is StmmacPci else data.PickValueInList(["msix", "msi", "none"])
        )
        self.device: Eqos = self.model(self.host)
        self.ring = data.PickValueInList([1, 2, 4, 24])
        self._set_up(self.ring)

    def _set_up(self, ring: int) -> None:
        """Bring the device to where a driver has it: no input would find the way there."""
        for name, value in (
            ("DMA_MODE", 1 << 16 if self.model is DwmacIntel else 0),
            ("DMA_SYSBUS_MODE", 1 << 11),
            ("MTL_RXQ_DMA_MAP0", 0x03020100),
            ("MAC_RXQ_CTRL0", 0xAA),
            ("MAC_CONFIGURATION", 1 << 27 | 1 << 16 | 3),
            ("MAC_PACKET_FILTER", 1),
        ):
            self.write(REGISTERS[name].offset, value)
        for number in range(2):
            for name, value in (
                ("TXDESC_LIST_ADDRESS", RINGS[0] + 0x2000 * number),
                ("RXDESC_LIST_ADDRESS", RINGS[1] + 0x2000 * number),
                ("TXDESC_RING_LENGTH", ring - 1),
                ("RXDESC_RING_LENGTH", ring - 1),
                ("RX_INTERRUPT_WATCHDOG_TIMER", 0x10),
                ("INTERRUPT_ENABLE", 0xFFFF),
                ("RX_CONTROL", 512 | 1),
                ("TX_CONTROL", 1 << 12 | 1),
            ):
                self.write(REGISTERS[f"DMA_CH{number}_{name}"].offset, value)

    def write(self, offset: int, value: int) -> None:
        self.device.write(0, offset, 4, value)

    def rest(self, for_ns: int = 0) -> None:
        """Let time pass; what the model still asks for at the end would go on for ever."""
        self.host.run(for_ns, MOST_CALLS)
        self.host.rows.clear()
        self.host.vectors.clear()
        for frame in self.host.wire.sent:
            assert 60 <= len(frame) <= 17_000, f"a frame of {len(frame)} bytes"
        self.host.wire.sent.clear()

    # Deeds

    def register(self) -> None:
        self.write(self.data.PickValueInList(OFFSETS), self.data.ConsumeIntInRange(0, 0xFFFFFFFF))

    def bits(self) -> None:
        """Change one bit of a register, as drivers do."""
        offset = self.data.PickValueInList(OFFSETS)
        self.write(offset, self.device.read(0, offset, 4) ^ 1 << self.data.ConsumeIntInRange(0, 31))

    def access(self) -> None:
        size = self.data.PickValueInList([1, 2, 4, 8])
        offset = self.data.ConsumeIntInRange(0, BAR_BYTES - 8) // size * size
        if self.data.ConsumeBool():
            assert 0 <= self.device.read(0, offset, size) < 1 << 8 * size
        else:
            self.device.write(0, offset, size, self.data.ConsumeIntInRange(0, (1 << 8 * size) - 1))

    def descriptors(self) -> None:
        """Put some descriptors into a ring, and say so."""
        transmits, number = self.data.ConsumeBool(), self.data.ConsumeIntInRange(0, 1)
        base = RINGS[not transmits] + 0x2000 * number
        for _ in range(self.data.ConsumeIntInRange(1, 6)):
            at = base + 16 * self.data.ConsumeIntInRange(0, self.ring)
            address = self.data.PickValueInList(ADDRESSES)
            lengths = self.data.ConsumeIntInRange(0, 0xFFFFFFFF) if self.data.ConsumeBool() else 64
            word3 = self.data.PickValueInList(FLAGS) | self.data.ConsumeIntInRange(0, 0x0FFFFFFF)
            words = (address, self.data.PickValueInList([0, 0, 1, 0xFF]), lengths, word3)
            struct.pack_into("<4I", self.host.memory.data, at, *words)
        header = self.data.PickValueInList(HEADERS)
        self.host.memory.data[0x10000 : 0x10000 + len(header)] = header
        name = f"DMA_CH{number}_{'TX' if transmits else 'RX'}DESC_TAIL_POINTER"
        self.write(REGISTERS[name].offset, base + 16 * self.data.ConsumeIntInRange(0, 32))

    def frames(self) -> None:
        header = self.data.PickValueInList(HEADERS)
        made = header + self.data.ConsumeBytes(self.data.ConsumeIntInRange(1, 80))
        made = made.ljust(self.data.PickValueInList([0, 60, 600, 1514, 9000, 12_000]), b"\0")
        self.host.wire.arrive(*[made] * self.data.ConsumeIntInRange(1, 20))

    def time(self) -> None:
        self.rest(self.data.PickValueInList([0, 1_000, 100_000, 10_000_000]))

    def command(self) -> None:
        kind = self.data.PickValueInList(list(COMMANDS))
        words: dict[str, object] = {"command": kind.__struct_config__.tag}
        for name in kind.__struct_fields__:
            words[name] = self.data.PickValueInList(
                {
                    "direction": ["rx", "tx"],
                    "what": ["drop", "corrupt", "crc", "overrun", "length", "underflow"],
                    "honoured": [True, False],
                    "on": [True, False],
                }.get(name, [0, 1, 2, 3])
            )
        try:
            self.device.command(_DECODER.decode(msgspec.json.encode(words)))  # type: ignore[arg-type] # one of COMMANDS
        except msgspec.ValidationError:
            return

    def snapshot(self) -> None:
        """Go on in another device from what this one saved, or from something else."""
        state = self.device.save()
        if self.data.ConsumeBool():
            state = state[: self.data.ConsumeIntInRange(0, len(state))]
        host = FakeHost(memory=self.host.memory, interrupts=self.host.interrupts)
        device = self.model(host)
        try:
            device.load(state)
        except ValueError:
            return
        self.host, self.device = host, device

    def mdio(self) -> None:
        """Read or write a register of the PHY, mostly of the one that is there."""
        self.write(REGISTERS["MAC_MDIO_DATA"].offset, self.data.ConsumeIntInRange(0, 0xFFFF))
        address = self.data.PickValueInList([1, 1, 1, 2]) << 21 | self.data.ConsumeIntInRange(0, 31) << 16
        operation = self.data.PickValueInList([1, 3, 3, 0, 2]) << 2 | self.data.PickValueInList([0, 0, 0, 2])
        self.write(REGISTERS["MAC_MDIO_ADDRESS"].offset, address | operation | 1)

    def ptp(self) -> None:
        """Take timestamps of some messages, as the bits say, with a clock that runs."""
        self.write(REGISTERS["MAC_SUB_SECOND_INCREMENT"].offset, self.data.ConsumeIntInRange(0, 0xFFFFFF))
        self.write(REGISTERS["MAC_TIMESTAMP_CONTROL"].offset, 1 | self.data.ConsumeIntInRange(0, 0x7FFFF))

    def filters(self) -> None:
        """Choose what the MAC takes: addresses by hash, tags by a filter and by hash."""
        self.write(
            REGISTERS["MAC_PACKET_FILTER"].offset, self.data.ConsumeIntInRange(0, 0xFFFFFFFF) | 1 << 16
        )
        self.write(REGISTERS["MAC_VLAN_TAG_DATA"].offset, 3 << 16 | self.data.PickValueInList([0, 5]))
        tag = self.data.ConsumeIntInRange(0, 31) << 2 | self.data.ConsumeIntInRange(0, 3)
        self.write(REGISTERS["MAC_VLAN_TAG"].offset, tag | self.data.ConsumeIntInRange(0, 0xF) << 22)
        self.write(REGISTERS["MAC_RXQ_CTRL1"].offset, self.data.ConsumeIntInRange(0, 0xFFFFFFFF))
        self.write(REGISTERS["MAC_RXQ_CTRL2"].offset, self.data.ConsumeIntInRange(0, 0xFFFFFFFF))

    def others(self) -> None:
        what = self.data.ConsumeIntInRange(0, 3)
        if what == 0:
            self.device.reset()
        elif what == 1:
            self.device.plug(connected=self.data.ConsumeBool())
        else:
            self.host.wire.congested = what == 2
            self.host.wire.clear_up()


def one(data: bytes) -> None:
    """Run one input."""
    provider = atheris.FuzzedDataProvider(data)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        guest = Guest(provider)
        deeds = [
            *(guest.register, guest.bits, guest.bits, guest.access, guest.descriptors, guest.descriptors),
            *(guest.frames, guest.frames, guest.time, guest.command, guest.snapshot, guest.others),
            *(guest.mdio, guest.ptp, guest.filters),
        ]
        for _ in range(MOST_DEEDS):
            if not provider.remaining_bytes():
                break
            provider.PickValueInList(deeds)()
            guest.rest()
        guest.rest(50_000_000)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def main() -> None:
    """Run until an input fails or there are enough."""
    signal.signal(signal.SIGVTALRM, _stop)
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
