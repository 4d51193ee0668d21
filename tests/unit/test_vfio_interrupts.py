"""Interrupts of the vfio-user server: who is told, how often, and what cannot be asked."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from vfio_devices import Probe, descriptors, probe, refused

from testbed.vfio_user.fake_client import Client
from testbed.vfio_user.protocol import IRQ_SET, Command, Irq, IrqSet, Region

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    before = descriptors()
    with Client(Probe, tmp_path) as connected:
        yield connected
    assert descriptors() == before, "descriptors were left open"


def count(fd: int) -> int:
    try:
        return os.eventfd_read(fd)
    except BlockingIOError:
        return 0


def test_a_message_reaches_its_vector_alone(client: Client) -> None:
    fds = client.listen(Irq.MSIX, 20)
    host = probe(client).host
    assert host.interrupts == "msix"
    host.interrupt(7)
    host.interrupt(7)
    for nobody in (-1, 20, 1 << 40):
        host.interrupt(nobody)
    assert [count(fd) for fd in fds] == [2 if vector == 7 else 0 for vector in range(20)]


def test_vectors_can_be_given_one_by_one_and_taken_back(client: Client) -> None:
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    host = probe(client).host
    client.set_irqs(IrqSet.EVENTFD | IrqSet.TRIGGER, Irq.MSIX, 19, 1, fds=[fd])
    host.interrupt(19)
    client.set_irqs(IrqSet.EVENTFD | IrqSet.TRIGGER, Irq.MSIX, 19, 1)
    host.interrupt(19)
    assert (count(fd), host.interrupts) == (1, "none")
    os.close(fd)


def test_msi_and_msix_are_told_apart(client: Client) -> None:
    (fd,) = client.listen(Irq.MSI)
    host = probe(client).host
    host.interrupt(0)
    assert (count(fd), host.interrupts) == (1, "msi")
    client.set_irqs(IrqSet.NONE | IrqSet.TRIGGER, Irq.MSI, 0, 0)
    host.interrupt(0)
    assert (count(fd), host.interrupts) == (0, "none")


def test_the_client_can_trigger_by_itself(client: Client) -> None:
    fds = client.listen(Irq.MSIX, 4)
    client.set_irqs(IrqSet.NONE | IrqSet.TRIGGER, Irq.MSIX, 1, 1)
    client.set_irqs(IrqSet.BOOL | IrqSet.TRIGGER, Irq.MSIX, 0, 4, data=b"\1\0\0\1")
    assert [count(fd) for fd in fds] == [1, 1, 0, 1]


def test_a_level_interrupts_once_until_it_is_unmasked(client: Client) -> None:
    (fd,) = client.listen(Irq.INTX)
    host = probe(client).host
    host.level(high=True)
    host.level(high=False)
    host.level(high=True)
    assert count(fd) == 1


def test_a_level_that_stays_high_interrupts_again_a_little_after_the_unmask(client: Client) -> None:
    (fd,) = client.listen(Irq.INTX)
    host = probe(client).host
    host.level(high=True)
    assert count(fd) == 1
    client.set_irqs(IrqSet.NONE | IrqSet.UNMASK, Irq.INTX, 0, 1)
    assert count(fd) == 0  # the guest's handler is still at it
    client.server.turn(0.01)
    while not (seen := count(fd)):
        client.server.turn(0.01)
    assert seen == 1


def test_a_level_that_fell_before_the_unmask_leaves_the_next_one_at_once(client: Client) -> None:
    (fd,) = client.listen(Irq.INTX)
    host = probe(client).host
    host.level(high=True)
    count(fd)
    host.level(high=False)
    client.set_irqs(IrqSet.NONE | IrqSet.UNMASK, Irq.INTX, 0, 1)
    host.level(high=True)
    assert count(fd) == 1


def test_a_level_that_was_high_before_anybody_listened_is_told(client: Client) -> None:
    probe(client).host.level(high=True)
    (fd,) = client.listen(Irq.INTX)
    assert count(fd) == 1


def test_the_guest_can_switch_intx_off(client: Client) -> None:
    (fd,) = client.listen(Irq.INTX)
    client.write(Region.CONFIG, 4, 2, 0x0400)
    probe(client).host.level(high=True)
    assert count(fd) == 0


def test_an_eventfd_can_unmask(client: Client) -> None:
    (fd,) = client.listen(Irq.INTX)
    unmask = os.eventfd(0)
    client.set_irqs(IrqSet.EVENTFD | IrqSet.UNMASK, Irq.INTX, 0, 1, fds=[unmask])
    host = probe(client).host
    host.level(high=True)
    count(fd)
    host.level(high=False)
    os.eventfd_write(unmask, 1)
    client.server.turn()
    host.level(high=True)
    assert count(fd) == 1
    os.close(unmask)


@pytest.mark.parametrize(
    ("flags", "index", "start", "number"),
    [
        (IrqSet.NONE | IrqSet.TRIGGER, 5, 0, 1),
        (IrqSet.NONE | IrqSet.TRIGGER, Irq.MSIX, 20, 1),
        (IrqSet.NONE | IrqSet.TRIGGER, Irq.MSIX, 0xFFFFFFFF, 0xFFFFFFFF),
        (IrqSet.NONE | IrqSet.MASK, Irq.MSIX, 0, 1),
        (IrqSet.NONE, Irq.INTX, 0, 1),
        (IrqSet.NONE | IrqSet.BOOL | IrqSet.TRIGGER, Irq.INTX, 0, 1),
        (IrqSet.BOOL | IrqSet.TRIGGER, Irq.MSIX, 0, 5),
        (IrqSet.EVENTFD | IrqSet.MASK, Irq.INTX, 0, 1),
        (IrqSet.EVENTFD | IrqSet.UNMASK, Irq.MSIX, 0, 1),
        (IrqSet.TRIGGER, Irq.INTX, 0, 1),
        (0, Irq.INTX, 0, 0),
        (0xFFFFFFFF, Irq.INTX, 0, 1),
    ],
)
def test_what_cannot_be_asked_of_interrupts_is_refused(
    client: Client, flags: int, index: int, start: int, number: int
) -> None:
    with refused(errno.EINVAL):
        client.set_irqs(flags, index, start, number)


def test_only_as_many_eventfds_as_vectors_are_taken_and_only_eventfds(client: Client) -> None:
    fd, pipe = os.eventfd(0), os.pipe()
    with refused(errno.EINVAL):
        client.set_irqs(IrqSet.EVENTFD | IrqSet.TRIGGER, Irq.MSIX, 0, 2, fds=[fd])
    with refused(errno.EINVAL):
        client.set_irqs(IrqSet.EVENTFD | IrqSet.TRIGGER, Irq.MSIX, 0, 1, fds=[pipe[1]])
    with refused(errno.EINVAL):
        client.request(Command.DEVICE_SET_IRQS, IRQ_SET.pack(20, 0x24, 2, 0, 0), [fd])
    for each in (fd, *pipe):
        os.close(each)


def test_an_eventfd_whose_counter_is_full_does_not_stop_the_device(client: Client) -> None:
    fd = os.eventfd(0xFFFFFFFE, os.EFD_NONBLOCK)
    os.eventfd_write(fd, 0xFFFFFFFFFFFFFFFE - 0xFFFFFFFE)
    client.set_irqs(IrqSet.EVENTFD | IrqSet.TRIGGER, Irq.MSIX, 0, 1, fds=[fd])
    probe(client).host.interrupt(0)
    os.close(fd)
