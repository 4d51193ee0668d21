"""``testbed shell``: a shell in the guest, on our terminal or fed from our stdin."""

from __future__ import annotations

import os
import re
import socket
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.busybox import script_command, terminal_command
from testbed.cli.changes import KernelOptions
from testbed.cli.exec import Pipes, find_guest, guest_options
from testbed.cli.manual import manual
from testbed.errors import GuestLost, HostError, UsageError
from testbed.guest import execute
from testbed.guest.execute import MAX_PROGRAM_BYTES, exit_status
from testbed.preparation import ready_guest, shape_of
from testbed.terminal import JoinedTerminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.cli.exec import Found
    from testbed.guest import Clock, Command, Guest

__all__ = ["command"]

_SCRIPT_LIMIT_S = 600.0
_PERSON_LIMIT_S = 86400.0


@click.command(
    "shell",
    cls=KernelOptions,
    epilog=manual(
        "testbed shell --nic igb",
        "echo 'ip -s link show eth0' | testbed shell --nic igb",
        "testbed shell --nic igb --gdb 1234",
        _0="the shell ended with 0; any other status of its own is passed on",
    ),
)
@guest_options
@click.option("--timeout", type=click.FloatRange(1, 86400), help="Seconds until the guest is ended.")
@click.option(
    "--gdb", metavar="PORT|SOCKET", help="Wait for a debugger, at a port of 127.0.0.1 or at a path."
)
def command(
    *,
    nic: str,
    kernel: str,
    clock: Clock | None,
    timeout: float | None,
    gdb: str | None,
) -> None:
    """Open a shell in the guest, where the NIC is eth0, up, with 192.0.2.2/24. Ctrl-] leaves it.

    When stdin is no terminal, it is read to its end and run as a script: echo 'ip link' | testbed shell --nic igb.
    """
    on_terminal = sys.stdin is not None and sys.stdin.isatty()
    if on_terminal and clock == "virtual":
        raise UsageError("a person at a terminal lives in real time", "leave out --clock virtual")
    found = find_guest(nic, kernel)
    what = _on_terminal(found) if on_terminal else _of_script(found)
    shape = shape_of(found.toolchain, "real" if on_terminal else clock, terminal=on_terminal)
    with ExitStack() as stack:
        listening = stack.enter_context(_listening(gdb)) if gdb else None
        guest = stack.enter_context(
            ready_guest(found.toolchain, found.kernel, found.nic, shape, gdb=listening)
        )
        if listening:
            click.echo(f"testbed: the guest waits for: {_attach(listening, guest)}", err=True)
        if on_terminal:
            click.echo(f"testbed: Linux {found.kernel.release}, eth0 is {nic}; Ctrl-] leaves", err=True)
            sys.exit(_join(guest, what, timeout or _PERSON_LIMIT_S))
        sys.exit(Pipes(guest).run(what, timeout or _SCRIPT_LIMIT_S))


def _of_script(found: Found) -> Command:
    """Return what runs our stdin as a script.

    :raise UsageError: there is none, or it is too long.
    """
    if sys.stdin is None:
        raise UsageError("there is no stdin to read commands from", "give a terminal, or commands in a pipe")
    return script_command(found.toolchain, sys.stdin.buffer.read(MAX_PROGRAM_BYTES + 1))


def _on_terminal(found: Found) -> Command:
    columns, rows = os.get_terminal_size(sys.stdin.fileno())
    size = f"stty rows {rows} cols {columns}; " if rows and columns else ""
    kind = os.environ.get("TERM", "")
    kind = kind if re.fullmatch(r"[A-Za-z0-9._+-]+", kind) else "linux"
    return terminal_command(found.toolchain, f"{size}export TERM={kind} PS1='{found.nic.name}:\\w # '; ")


def _join(guest: Guest, what: Command, timeout_s: float) -> int:
    """Run a shell on our terminal, until it ends or the person leaves; return the exit status that is ours."""
    left = False

    def leave() -> None:
        nonlocal left
        left = True
        guest.machine.end()

    try:
        with JoinedTerminal(sys.stdin.fileno(), guest.machine.terminal, leave):
            return exit_status(execute(guest, what, lambda _stream, _data: None, timeout_s))
    except GuestLost:
        if left:
            return 0
        raise


@contextmanager
def _listening(where: str) -> Iterator[socket.socket]:
    """Listen at a port of 127.0.0.1, or at a path that is removed at the end.

    :raise UsageError: it is neither.
    :raise HostError: somebody else does, or this user may not.
    """
    path = None if where.isdecimal() else Path(where)
    if path is None and not 0 < int(where) < 65536:
        raise UsageError(f"expected a port from 1 to 65535 after --gdb, seen {where}", "choose another")
    family = socket.AF_INET if path is None else socket.AF_UNIX
    with socket.socket(family, socket.SOCK_STREAM) as listening, ExitStack() as stack:
        try:
            if path is None:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listening.bind(("127.0.0.1", int(where)))
            else:
                listening.bind(str(path))
                stack.callback(path.unlink, missing_ok=True)
            listening.listen(1)
        except OSError as error:
            raise HostError(
                f"cannot listen at {where}: {error.strerror or error}", "choose another place"
            ) from error
        yield listening


def _attach(listening: socket.socket, guest: Guest) -> str:
    name = listening.getsockname()
    place = name if isinstance(name, str) else f"{name[0]}:{name[1]}"
    return f"gdb -ex 'target remote {place}' vmlinux  (of Linux {guest.ready.release}; the kernel is not relocated)"
