"""A guest that runs by itself for a while: its stack answers what comes by its wire, and nothing else happens."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from testbed.errors import GuestLost
from testbed.guest.channel import program_message
from testbed.scenario.program import MAX_STEPS, STEP, StepKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.guest.guest import Guest

__all__ = ["running"]

SLICE_US = 50_000  # the guest sees after each that it is to stop
END_LIMIT_S = 30.0


@contextmanager
def running(guest: Guest, limit_s: float = 60.0) -> Iterator[None]:
    """Let the guest run during the block; afterwards it waits for a program again.

    Only for the real clock: virtual time leaps over what the guest sleeps, and the limit is reached at once.

    :param limit_s: guest time after which it waits for a program even if the block goes on, at most 819.
    :raise GuestLost: the guest died, or the block took longer than ``limit_s``.
    """
    machine = guest.machine
    sleeps = np.zeros(min(math.ceil(limit_s * 1e6 / SLICE_US), MAX_STEPS), dtype=STEP)
    sleeps["kind"], sleeps["a"] = StepKind.SLEEP, SLICE_US
    machine.memory.write_pages(guest.shared.mailbox, program_message(sleeps.tobytes(), len(sleeps)))
    machine.resume()
    yield
    if machine.monitor.execute("query-status")["status"] != "running":
        raise GuestLost(f"the guest no longer runs: it died, or the {limit_s:g} s given to it are over")
    machine.monitor.execute("stop")
    machine.hold()
    sleeps["a"] = 0  # the agent reads each step from its mailbox when its turn has come
    outcome = guest.run(sleeps.tobytes(), len(sleeps), _refuse, END_LIMIT_S)
    if outcome.end is None:
        raise GuestLost(f"the guest did not stop running: {outcome.death}")


def _refuse(barrier: object) -> None:
    raise GuestLost(f"expected no barrier of a guest that only sleeps, seen {barrier}")
