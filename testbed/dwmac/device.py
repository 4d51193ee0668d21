"""The device: its PCI face, its registers' effects, and its parts put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from testbed.dwmac.clock import Clock
from testbed.dwmac.commands import COMMANDS
from testbed.dwmac.core import Core, Hand
from testbed.dwmac.counters import Counters
from testbed.dwmac.effects import READS, WRITES
from testbed.dwmac.filters import Filters
from testbed.dwmac.grip import apply
from testbed.dwmac.interrupts import Interrupts
from testbed.dwmac.mac import Mac
from testbed.dwmac.phy import Phy
from testbed.dwmac.receive import ReceiverState
from testbed.dwmac.register_file import RegisterFile
from testbed.dwmac.registers import BAR_BYTES, CHANNELS, Access
from testbed.dwmac.transmit import Transmitter, TransmitterState
from testbed.vfio_user import Bar, Command, Declaration, Device, DeviceEvent, Identity, MsiX, PowerManagement

if TYPE_CHECKING:
    from testbed.vfio_user import Host

__all__ = ["DwmacIntel", "Eqos", "StmmacPci"]


class _State(msgspec.Struct):
    """A snapshot."""

    words: bytes
    vlans: list[int]
    forced: int | None
    interrupts: list[int]
    held: bool
    hand: Hand
    phy: list[int]
    clock: int
    rx_spoiled: list[str]
    waiting: list[bytes]
    transmitters: list[TransmitterState]
    receivers: list[ReceiverState]


class Eqos(Device):
    """A DesignWare EQOS core with four channels in each direction; its subclasses give it a place on a bus."""

    commands: ClassVar[tuple[type[Command], ...]] = COMMANDS

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.registers = RegisterFile()
        words = self.registers.words
        self.core = Core(
            host=host,
            words=words,
            interrupts=Interrupts(host, words),
            counters=Counters(words),
            clock=Clock(host, words),
            phy=Phy(self._link_changed),
            filters=Filters(words),
            hand=Hand(),
        )
        self.mac = Mac(self.core)
        self.transmitters = [
            Transmitter(self.core, number, lambda frame: self.mac.receive([frame]))
            for number in range(CHANNELS)
        ]
        self._tx_due = [False] * CHANNELS
        self._rx_due = False
        self._preset_address()
        host.wire.listen(self.mac.receive, self._run_all)

    # The bus

    def read(self, bar: int, offset: int, size: int) -> int:
        """Return a register, or a part of one; what is none reads 0."""
        if bar or offset + size > BAR_BYTES:
            return 0
        if size == 8:
            return self.read(bar, offset, 4) | self.read(bar, offset + 4, 4) << 32
        register = self.registers.at(offset & ~3)
        if register is None:
            return 0
        effect = READS.get(register.effect)
        value = effect(self, register) if effect else self.registers.read(register)
        return value >> (offset & 3) * 8 & ((1 << size * 8) - 1)

    def write(self, bar: int, offset: int, size: int, value: int) -> None:
        """Take a write; a part of a register keeps the rest of it."""
        if bar or offset + size > BAR_BYTES:
            return
        if size == 8:
            self.write(bar, offset, 4, value & 0xFFFFFFFF)
            self.write(bar, offset + 4, 4, value >> 32)
            return
        register = self.registers.at(offset & ~3)
        if register is None or register.access in {Access.READ_ONLY, Access.COUNTER}:
            return
        if size < 4:
            shift, mask = (offset & 3) * 8, (1 << size * 8) - 1
            kept = 0 if register.access is Access.CLEAR_BY_ONE else self.registers.words[register.offset >> 2]
            value = kept & ~(mask << shift) | (value & mask) << shift
        effect = WRITES.get(register.effect)
        if effect:
            effect(self, register, value & 0xFFFFFFFF)
        else:
            self.registers.write(register, value & 0xFFFFFFFF)

    def reset(self) -> None:
        """Begin anew, the cable and what the test has set included."""
        self.software_reset()
        self.core.hand = Hand()
        self.core.filters.forced = None
        self.core.phy.partner_pauses = True
        self.core.interrupts.held = False
        self.mac.spoiled.clear()

    def software_reset(self) -> None:
        """Do what DMA_Mode.SWR does: everything begins anew but the PHY and the cable."""
        self.registers.reset()
        self._preset_address()
        for transmitter in self.transmitters:
            transmitter.rewind()
        self.mac.reset()
        self.core.filters.reset()
        self.core.interrupts.reset()
        self.core.clock.reset()

    def _preset_address(self) -> None:
        self.registers.words[0x300 >> 2] = 1 << 31 | int.from_bytes(self.host.mac[4:], "little")
        self.registers.words[0x304 >> 2] = int.from_bytes(self.host.mac[:4], "little")

    # Work

    def schedule_tx(self, number: int) -> None:
        """Run a transmit channel as soon as the host lets the model work."""
        if not self._tx_due[number]:
            self._tx_due[number] = True
            self.host.call_at(0, lambda: self._run_tx(number))

    def _run_tx(self, number: int) -> None:
        self._tx_due[number] = False
        self.transmitters[number].run()

    def schedule_rx(self) -> None:
        """Run reception likewise."""
        if not self._rx_due:
            self._rx_due = True
            self.host.call_at(0, self._run_rx)

    def _run_rx(self) -> None:
        self._rx_due = False
        self.mac.pump()

    def _run_all(self) -> None:
        """Go on in both directions: the wire has room again, or the test let go."""
        for transmitter in self.transmitters:
            transmitter.run()
        self.mac.pump()

    def _link_changed(self) -> None:
        self.host.record(DeviceEvent.LINK, 0, int(self.core.phy.link))
        self.schedule_rx()

    def plug(self, *, connected: bool) -> None:
        """Put the cable in or pull it."""
        self.core.phy.plug(connected=connected)

    def command(self, command: Command) -> None:
        """Do what the test asks; see :mod:`testbed.dwmac.commands`."""
        apply(command, self.core, self.mac, self.transmitters)
        self._run_all()

    # Snapshots

    def save(self) -> bytes:
        """Return everything that :meth:`load` needs."""
        core = self.core
        return msgspec.msgpack.encode(
            _State(
                words=self.registers.words.tobytes(),
                vlans=core.filters.vlans,
                forced=core.filters.forced,
                interrupts=core.interrupts.save(),
                held=core.interrupts.held,
                hand=core.hand,
                phy=core.phy.save(),
                clock=core.clock.save(),
                rx_spoiled=self.mac.spoiled,
                waiting=self.mac.save(),
                transmitters=[transmitter.save() for transmitter in self.transmitters],
                receivers=[receiver.save() for receiver in self.mac.receivers],
            )
        )

    def load(self, state: bytes) -> None:
        """Go on from what :meth:`save` returned.

        :raise ValueError: it is no such thing.
        """
        try:
            saved = msgspec.msgpack.decode(state, type=_State)
        except msgspec.MsgspecError as error:
            raise ValueError(f"expected the state of a DesignWare EQOS: {error}") from error
        core = self.core
        self.registers.load(saved.words)
        core.filters.reset()
        core.filters.vlans, core.filters.forced = saved.vlans, saved.forced
        core.interrupts.load(saved.interrupts)
        core.interrupts.held, core.hand = saved.held, saved.hand
        core.phy.load(saved.phy)
        core.clock.load(saved.clock)
        self.mac.load(saved.waiting)
        self.mac.spoiled = saved.rx_spoiled
        for transmitter, tx_state in zip(self.transmitters, saved.transmitters, strict=True):
            transmitter.load(tx_state)
        for receiver, rx_state in zip(self.mac.receivers, saved.receivers, strict=True):
            receiver.load(rx_state)
        self.schedule_rx()
        for number in range(CHANNELS):
            self.schedule_tx(number)


class DwmacIntel(Eqos):
    """As in Intel's Elkhart Lake: the driver dwmac-intel of every distribution binds, with a vector for each queue."""

    declaration = Declaration(
        identity=Identity(0x8086, 0x4B30, subsystem_vendor=0x8086),
        bars=(Bar(0, BAR_BYTES), Bar(2, 0x1000)),
        capabilities=(PowerManagement(), MsiX(vectors=32, bar=2, table_offset=0, pba_offset=0x800)),
    )


class StmmacPci(Eqos):
    """As Synopsys' own GMAC5 evaluation board: the driver stmmac-pci binds, with one interrupt pin."""

    declaration = Declaration(
        identity=Identity(0x16C3, 0x7102), bars=(Bar(0, BAR_BYTES),), capabilities=(PowerManagement(),)
    )
