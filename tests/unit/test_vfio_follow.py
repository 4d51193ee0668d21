"""A device model that lives in the guest's time: it acts at accesses and at stops, and interrupts at stops."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING

import msgspec
import pytest
from vfio_devices import Probe

from testbed.vfio_user.control import Answer, CatchUp, Follow, Freeze, Question, Run, encode, receive
from testbed.vfio_user.fake_client import Client
from testbed.vfio_user.follower import DUE_OFFSET, NOW_OFFSET
from testbed.vfio_user.protocol import Irq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POSITION = 0x2000


class Worker(Probe):
    """A write asks for work: at once, or so many nanoseconds later; the work interrupts."""

    done: list[int]

    def write(self, bar: int, offset: int, size: int, value: int) -> None:
        super().write(bar, offset, size, value)
        self.host.call_at(self.host.now_ns() + value if value else 0, self.work)

    def work(self) -> None:
        self.done = [*getattr(self, "done", []), self.host.now_ns()]
        self.host.interrupt(3)


class Guest:
    """A client whose memory tells the time."""

    def __init__(self, client: Client, control: socket.socket) -> None:
        self.client, self.control = client, control
        client.map_memory()
        self.fd = client.listen(Irq.MSIX, 8)[3]
        self.at(1000)
        self.ask(Freeze())
        self.ask(Follow(POSITION))
        self.ask(Run())

    def ask(self, question: Question) -> Answer:
        self.control.sendall(encode(question))
        self.client.server.turn()
        return msgspec.json.decode(receive(self.control), type=Answer)

    def at(self, now_ns: int) -> None:
        struct.pack_into("<Q", self.client.memory, POSITION + NOW_OFFSET, now_ns)

    @property
    def due_ns(self) -> int:
        return int(struct.unpack_from("<Q", self.client.memory, POSITION + DUE_OFFSET)[0])

    @property
    def worked(self) -> list[int]:
        return list(getattr(self.client.server.device, "done", []))

    def interrupts(self) -> int:
        try:
            return os.eventfd_read(self.fd)
        except BlockingIOError:
            return 0


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    with ours, theirs, Client(Worker, tmp_path, control=theirs) as client:
        yield Guest(client, ours)


def test_what_an_access_asks_for_is_done_before_the_guest_goes_on(guest: Guest) -> None:
    guest.at(5000)
    guest.client.write(0, 0, 4, 0)
    assert guest.worked == [5000]


def test_an_interrupt_waits_for_the_stop_and_says_so(guest: Guest) -> None:
    guest.client.write(0, 0, 4, 0)
    assert (guest.interrupts(), guest.due_ns) == (0, 1)
    guest.ask(CatchUp())
    assert (guest.interrupts(), guest.due_ns) == (1, 0)


def test_a_timer_says_when_it_is_due_and_fires_at_the_stop(guest: Guest) -> None:
    guest.client.write(0, 0, 4, 700)
    assert guest.due_ns == 1700
    guest.at(1699)
    guest.ask(CatchUp())
    assert guest.worked == []
    guest.at(2500)
    guest.ask(CatchUp())
    assert guest.worked == [1700]
    assert guest.interrupts() == 1


def test_a_timer_that_is_due_fires_before_an_access_too(guest: Guest) -> None:
    guest.client.write(0, 0, 4, 700)
    guest.at(2500)
    guest.client.read(0, 0, 4)
    assert guest.worked == [1700]
    assert (guest.interrupts(), guest.due_ns) == (0, 1)


def test_host_time_does_nothing(guest: Guest) -> None:
    guest.client.write(0, 0, 4, 700)
    for _ in range(5):
        guest.client.server.turn(0.001)
    assert guest.worked == []


def test_a_guest_without_memory_is_borne(guest: Guest) -> None:
    guest.client.unmap(0, 1 << 20)
    guest.client.write(0, 0, 4, 0)
    guest.ask(CatchUp())
    assert guest.interrupts() == 1
