"""A guest with a ready agent: boots or is restored, runs programs, and says how each ended."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from testbed.errors import BootError, GuestLost
from testbed.guest.channel import Barrier, End, MessageType, Ready, program_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.guest.machine import Machine

__all__ = ["Guest", "Outcome", "Shared"]

BOOT_LIMIT_S = 120.0
MESSAGE_LIMIT_S = 10.0


@dataclass(frozen=True)
class Outcome:
    """How a program ended.

    :param events: the trace, 32 bytes a row; a guest that died leaves what it had recorded.
    :param lost: events that found no row, the device's included.
    :param end: the agent's last word, or ``None`` when the guest died.
    :param death: in which way the guest ceased to answer, or nothing.
    :param device: the device model's half of the trace, 32 bytes a row (:data:`testbed.vfio_user.events.ROW`).
    """

    events: bytes
    lost: int
    end: End | None
    death: str = ""
    device: bytes = b""


@dataclass(frozen=True)
class Shared:
    """Where agent and observer keep what the host reads and writes.

    :param mailbox: physical addresses of the pages for a program.
    :param events: physical addresses of the pages of the table of events.
    :param position: physical address of struct tb_position.
    """

    mailbox: list[int]
    events: list[int]
    position: int

    @classmethod
    def of(cls, ready: Ready, payload: bytes) -> Self:
        """Decode the PAGES message.

        :raise GuestLost: it does not have as many addresses as READY announced.
        """
        addresses = np.frombuffer(payload, "<u8").tolist()
        expected = ready.mailbox_pages + ready.event_pages + 1
        if len(addresses) != expected:
            raise GuestLost(f"the agent announced {expected} pages and named {len(addresses)}")
        return cls(addresses[: ready.mailbox_pages], addresses[ready.mailbox_pages : -1], addresses[-1])


class Guest:
    """A machine whose agent waits, stopped, for a program."""

    def __init__(self, machine: Machine, ready: Ready, shared: Shared) -> None:
        self.machine = machine
        self.ready = ready
        self.shared = shared

    @classmethod
    def boot(cls, machine: Machine, timeout_s: float = BOOT_LIMIT_S) -> Self:
        """Let a fresh machine run until its agent is ready.

        :raise BootError: the guest panicked, QEMU ended, or nothing was heard within ``timeout_s``.
        """
        try:
            return cls(machine, *_await_agent(machine, time.monotonic() + timeout_s))
        except GuestLost as error:
            message = f"the guest did not boot: {error.message}; {_last_line(machine)}"
            raise BootError(message, error.remedy) from error

    def run(self, steps: bytes, count: int, act: Callable[[Barrier], None], timeout_s: float) -> Outcome:
        """Run a program.

        :param steps: ``count`` step records.
        :param act: called at each barrier with the machine stopped.
        :param timeout_s: limit in host time for the whole program.
        :raise GuestLost: QEMU or the agent's channel went away.
        """
        machine = self.machine
        deadline = time.monotonic() + timeout_s
        machine.memory.write_pages(self.shared.mailbox, program_message(steps, count))
        if machine.model:
            machine.model.start_events(self.shared.position)
            machine.follow(self.shared.position)
        while True:
            machine.resume()
            death = _run_until_stop(machine, deadline)
            if death:
                return self._outcome(None, death)
            message = machine.channel.receive(MESSAGE_LIMIT_S)
            if message.type is MessageType.END:
                return self._outcome(End.of(message))
            if message.type is not MessageType.BARRIER:
                return self._outcome(None, str(message))
            barrier = Barrier.of(message)
            if not barrier.for_device:
                act(barrier)
            machine.catch_up()

    def _outcome(self, end: End | None, death: str = "") -> Outcome:
        memory = self.machine.memory
        head, lost = np.frombuffer(memory.read(self.shared.position, 8), "<u4").tolist()
        rows = min(head, self.ready.max_events)
        events = memory.read_pages(self.shared.events, rows * self.ready.event_bytes)
        device, device_lost = self.machine.model.events() if self.machine.model else (b"", 0)
        return Outcome(events, lost + device_lost, end, death, device)


def _await_agent(machine: Machine, deadline: float) -> tuple[Ready, Shared]:
    """Resume a machine and return what its agent says when it stops it."""
    machine.resume()
    death = _run_until_stop(machine, deadline)
    if death:
        raise GuestLost(death)
    ready = Ready.of(machine.channel.expect(MessageType.READY, MESSAGE_LIMIT_S))
    pages = machine.channel.expect(MessageType.PAGES, MESSAGE_LIMIT_S)
    return ready, Shared.of(ready, pages.payload)


def _run_until_stop(machine: Machine, deadline: float) -> str:
    """Wait until the agent stops the machine; return nothing then, else how the guest died."""
    try:
        while True:
            name, data = machine.monitor.next_event(deadline - time.monotonic())
            if name == "GUEST_PANICKED":
                machine.hold()
                return ""
            if name == "SHUTDOWN":
                return f"the kernel panicked or rebooted ({data.get('reason', 'unknown reason')})"
    except TimeoutError:
        return "nothing was heard of the guest until the time limit"


def _last_line(machine: Machine) -> str:
    lines = machine.console_text().strip().splitlines()
    return f"last line of its log: {lines[-1]}" if lines else "its log is empty"
