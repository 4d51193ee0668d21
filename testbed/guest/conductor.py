"""The host's part of a program: what it does at each barrier, with the machine stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.traffic.frames import numbered_frames

if TYPE_CHECKING:
    from testbed.guest.channel import Barrier
    from testbed.guest.guest import Guest, Outcome
    from testbed.scenario import Program

__all__ = ["conduct"]


def conduct(guest: Guest, program: Program, timeout_s: float) -> Outcome:
    """Run a program in a guest and do the host's part of it.

    :param timeout_s: limit in host time for all of it.
    :raise GuestLost: QEMU, the agent's channel or the wire went away.
    """
    machine = guest.machine
    mac = ":".join(f"{byte:02x}" for byte in guest.ready.mac)
    sequence = 0

    def inject(barrier: Barrier) -> None:
        """Put frames on the wire; when this returns QEMU has them all, and they enter at its next tick."""
        nonlocal sequence
        step = program.injections[barrier.action]
        machine.wire.send(numbered_frames(sequence, step.count, step.bytes, mac))
        machine.wire.flush()
        machine.monitor.execute("query-status")
        sequence += step.count

    return guest.run(program.steps.tobytes(), len(program.steps), inject, timeout_s)
