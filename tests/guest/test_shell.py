"""``testbed shell`` in a real guest: fed by a pipe, and on a terminal with a debugger beside it."""

from __future__ import annotations

import os
import pty
import select
import socket
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Self

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SHELL = [sys.executable, "-c", "from testbed.cli import main; main()", "shell", "--nic", "igb"]
LIMIT_S = 60


def fed(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SHELL, *options], input=script, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_commands_from_a_pipe_are_run_and_the_last_status_is_ours() -> None:
    done = fed("ip -o addr show eth0 | grep -o '192.0.2.2/24'\nuname -s >&2\ncd /tmp\npwd\nexit 7\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, "192.0.2.2/24\n/tmp\n", "Linux\n")


def test_nothing_on_stdin_is_a_script_that_ends_at_once() -> None:
    done = fed("")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_script_that_does_not_end_is_status_3() -> None:
    done = fed("sleep 1000\n", "--timeout", "2", "--clock", "real")
    assert done.returncode == 3
    assert done.stderr.startswith("testbed: the program did not end: ")


class Person:
    """Sits at a terminal in front of ``testbed shell``."""

    def __init__(self, *options: str) -> None:
        self.screen, self._terminal = pty.openpty()
        termios.tcsetwinsize(self._terminal, (50, 132))
        self.settings = termios.tcgetattr(self._terminal)
        self.process = subprocess.Popen([*SHELL, *options], stdin=self._terminal, stderr=subprocess.PIPE)
        self.seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        os.close(self.screen)
        os.close(self._terminal)

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def read_until(self, text: bytes) -> bytes:
        """Return what came up to ``text``, which is dropped."""
        deadline = time.monotonic() + LIMIT_S
        while text not in self.seen:
            ready, _, _ = select.select([self.screen], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"no {text!r} in {self.seen!r}"
            self.seen += os.read(self.screen, 4096)
        before, _, self.seen = self.seen.partition(text)
        return before

    def reads(self) -> bool:
        """Whether there is anything on the screen that was not read."""
        return bool(self.seen or select.select([self.screen], [], [], 0)[0])

    def said(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline().decode()

    def left(self) -> int:
        return self.process.wait(LIMIT_S)

    def restored(self) -> bool:
        return termios.tcgetattr(self._terminal) == self.settings


@pytest.mark.parametrize(("last", "status"), [("\x1d", 0), ("exit 3\n", 3)], ids=["Ctrl-]", "exit"])
def test_a_person_types_commands_and_leaves(last: str, status: int) -> None:
    with Person() as person:
        assert "Ctrl-] leaves" in person.said()
        person.read_until(b"igb:~ # ")
        person.type("cat /sys/class/net/eth0/operstate; stty size\n")
        assert b"up\r\n50 132\r\n" in person.read_until(b"igb:~ # ")
        person.type("sh -c 'echo as''leep; exec sleep 1000'\n")
        person.read_until(
            b"asleep\r\n"
        )  # said by the one that has the terminal now, as typed it has quotes in it
        person.type("\x03")
        person.read_until(b"igb:~ # ")
        person.type(last)
        assert person.left() == status
        assert person.restored()


def answer(stub: socket.socket, packet: bytes) -> bytes:
    """Return what a gdb stub answers to a packet, without its frame."""
    stub.sendall(packet)
    heard = b""
    while not (b"$" in heard and heard[-3:-2] == b"#"):
        piece = stub.recv(256)
        assert piece, f"the stub closed the connection after {heard!r}"
        heard += piece
    stub.sendall(b"+")
    return heard.partition(b"$")[2][:-3]


def test_the_shell_waits_for_a_debugger_and_another_one_may_come_later(tmp_path: Path) -> None:
    place = tmp_path / "gdb"
    with Person("--gdb", str(place)) as person:
        assert f"target remote {place}" in person.said()
        with socket.socket(socket.AF_UNIX) as debugger:
            debugger.settimeout(LIMIT_S)
            debugger.connect(str(place))
            assert answer(debugger, b"$?#3f").startswith((b"T05", b"S05"))
            assert not person.reads()  # the shell has not begun
            assert answer(debugger, b"$D#44") == b"OK"  # detached: the guest goes on
        person.read_until(b"igb:~ # ")
        with socket.socket(socket.AF_UNIX) as debugger:
            debugger.settimeout(LIMIT_S)
            debugger.connect(str(place))
            assert answer(debugger, b"$?#3f").startswith((b"T05", b"S05"))
            assert answer(debugger, b"$D#44") == b"OK"
        person.type("echo still $((40 + 2))\n")
        person.read_until(b"still 42")
        person.type("\x1d")
        assert person.left() == 0
    assert not place.exists()


def test_a_debugger_may_be_there_before_the_guest(tmp_path: Path) -> None:
    place = tmp_path / "gdb"
    with Person("--gdb", str(place)) as person, socket.socket(socket.AF_UNIX) as debugger:
        debugger.settimeout(LIMIT_S)
        connect_early(debugger, place)
        assert answer(debugger, b"$?#3f").startswith((b"T05", b"S05"))
        assert answer(debugger, b"$D#44") == b"OK"
        person.read_until(b"igb:~ # ")


def connect_early(debugger: socket.socket, place: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            debugger.connect(str(place))
        except OSError:
            assert time.monotonic() < deadline
        else:
            return


def test_a_place_where_nobody_can_listen_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for place, status in ((port, 3), (str(tmp_path / "no/such"), 3), ("70000", 2)):
            done = fed("", "--gdb", place)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
            assert place in done.stderr
