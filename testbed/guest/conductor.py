"""The host's part of a program: what it does at each barrier, with the machine stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.scenario.program import Verdict
from testbed.scenario.steps import DeviceStep, HostStep, Inject, Link
from testbed.traffic.frames import numbered_behind, numbered_frames

if TYPE_CHECKING:
    from testbed.guest.channel import Barrier
    from testbed.guest.guest import Guest, Outcome
    from testbed.scenario import Program

__all__ = ["Conductor", "conduct"]


def conduct(guest: Guest, program: Program, timeout_s: float) -> Outcome:
    """Run a program in a guest and do the host's part of it.

    :param timeout_s: limit in host time for all of it.
    :raise GuestLost: QEMU, the agent's channel or the wire went away.
    """
    return Conductor(guest).run(program, timeout_s)


class Conductor:
    """Runs programs in a guest, one after the other; the frames it sends are numbered through all of them."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._machine = guest.machine
        self._mac = ":".join(f"{byte:02x}" for byte in guest.ready.mac)
        self._next_sequence = 0

    def run(self, program: Program, timeout_s: float) -> Outcome:
        """Run the next program; see :func:`conduct`."""

        def act(barrier: Barrier) -> None:
            self._do(program.actions[barrier.action])

        return self._guest.run(program.steps.tobytes(), len(program.steps), act, timeout_s)

    def _do(self, step: HostStep) -> None:
        match step:
            case Inject():
                self._inject(step)
            case Link():
                self._machine.plug(connected=step.state == "up")
            case DeviceStep():
                self._machine.command(step.command, step.arguments)
            case _:
                raise TypeError(f"the host has no part in {type(step).__name__}")

    def _inject(self, step: Inject) -> None:
        """Put frames on the wire; when this returns QEMU has them all, and they enter at its next tick."""
        verdict = Verdict[step.verdict.upper()] if step.verdict else None
        if step.hex:
            frames = numbered_behind(self._next_sequence, step.own(), verdict)
        else:
            frames = numbered_frames(self._next_sequence, step.total, step.bytes, self._mac, verdict)
        self._machine.inject(frames)
        self._next_sequence += step.total
