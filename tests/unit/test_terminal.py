"""A terminal joined to a port: a pty and a socket pair take the places of person and guest."""

from __future__ import annotations

import os
import pty
import socket
import termios
import threading
from typing import TYPE_CHECKING, NamedTuple

import pytest

from testbed.terminal import JoinedTerminal

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_S = 10


class Desk(NamedTuple):
    """The person's end of the terminal, ours, the guest's end of the port, ours."""

    person: int
    terminal: int
    guest: socket.socket
    port: socket.socket


@pytest.fixture
def desk() -> Iterator[Desk]:
    person, terminal = pty.openpty()
    guest, port = socket.socketpair()
    with guest, port:
        guest.settimeout(LIMIT_S)
        yield Desk(person, terminal, guest, port)
    os.close(terminal)
    os.close(person)


def test_keys_go_in_one_by_one_and_output_comes_out_raw(desk: Desk) -> None:
    with JoinedTerminal(desk.terminal, desk.port, lambda: None):
        os.write(desk.person, b"a\x03\x04\r")
        heard = b""
        while len(heard) < 4:
            heard += desk.guest.recv(16)
        assert heard == b"a\x03\x04\r"
        desk.guest.sendall(b"one\ntwo")
        assert os.read(desk.person, 64) == b"one\ntwo"


def test_what_was_said_last_is_shown_before_the_end(desk: Desk) -> None:
    with JoinedTerminal(desk.terminal, desk.port, lambda: None):
        desk.guest.sendall(b"bye")
    assert os.read(desk.person, 64) == b"bye"


def test_leaving_sends_what_came_before_and_restores_the_terminal(desk: Desk) -> None:
    before = termios.tcgetattr(desk.terminal)
    left = threading.Event()
    with JoinedTerminal(desk.terminal, desk.port, left.set):
        assert termios.tcgetattr(desk.terminal) != before
        os.write(desk.person, b"ab\x1dcd")
        assert left.wait(LIMIT_S)
        assert desk.guest.recv(16) == b"ab"
    assert termios.tcgetattr(desk.terminal) == before


def test_a_guest_that_has_gone_hinders_nobody_from_leaving(desk: Desk) -> None:
    left = threading.Event()
    with JoinedTerminal(desk.terminal, desk.port, left.set):
        desk.guest.close()
        os.write(desk.person, b"a\x1d")
        assert left.wait(LIMIT_S)
