"""How the test's words (:mod:`testbed.dwmac.commands`) take hold of the device."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from testbed.dwmac import commands
from testbed.dwmac.interrupts import Cause, vector_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.dwmac.core import Core, Throttle
    from testbed.dwmac.mac import Mac
    from testbed.dwmac.receive import Receiver
    from testbed.dwmac.transmit import Transmitter
    from testbed.vfio_user import Command

__all__ = ["apply"]


def apply(command: Command, core: Core, mac: Mac, transmitters: Sequence[Transmitter]) -> None:
    """Do what a command says; the device goes on by itself afterwards."""
    _do(command, _Grip(core, mac, transmitters))


class _Grip:
    """The parts that a command may mean."""

    def __init__(self, core: Core, mac: Mac, transmitters: Sequence[Transmitter]) -> None:
        self.core, self.mac, self.transmitters = core, mac, transmitters

    def channel(self, direction: str, queue: int) -> Transmitter | Receiver:
        return self.transmitters[queue] if direction == "tx" else self.mac.receivers[queue]

    def throttle(self, direction: str, queue: int) -> Throttle:
        return self.channel(direction, queue).throttle


@singledispatch
def _do(command: Command, _grip: _Grip) -> None:
    raise NotImplementedError(type(command).__name__)


@_do.register
def _(_command: commands.Hold, grip: _Grip) -> None:
    grip.core.interrupts.hold()


@_do.register
def _(_command: commands.Release, grip: _Grip) -> None:
    grip.core.interrupts.release()


@_do.register
def _(command: commands.Stall, grip: _Grip) -> None:
    grip.throttle(command.direction, command.queue).credit = 0


@_do.register
def _(command: commands.Resume, grip: _Grip) -> None:
    grip.throttle(command.direction, command.queue).credit = None


@_do.register
def _(command: commands.Complete, grip: _Grip) -> None:
    grip.throttle(command.direction, command.queue).credit = command.count


@_do.register
def _(command: commands.Delay, grip: _Grip) -> None:
    grip.throttle(command.direction, command.queue).delay_ns = command.us * 1000


@_do.register
def _(command: commands.Spoil, grip: _Grip) -> None:
    tx = grip.throttle("tx", command.queue).spoiled
    queued = tx if command.direction == "tx" else grip.mac.spoiled
    queued += [""] * command.after + [command.what] * command.count


@_do.register
def _(command: commands.Spurious, grip: _Grip) -> None:
    cause = Cause.TI if command.direction == "tx" else Cause.RI
    grip.core.interrupts.spurious(vector_of(command.queue, cause))


@_do.register
def _(command: commands.BusError, grip: _Grip) -> None:
    grip.channel(command.direction, command.queue).fault()


@_do.register
def _(command: commands.Unplug, grip: _Grip) -> None:
    grip.core.hand.unplug_after = command.after


@_do.register
def _(command: commands.Tail, grip: _Grip) -> None:
    grip.core.hand.honours_tail = command.honoured


@_do.register
def _(command: commands.Steer, grip: _Grip) -> None:
    grip.core.filters.forced = command.queue


@_do.register
def _(command: commands.Pause, grip: _Grip) -> None:
    grip.core.phy.partner_pauses = command.on
