"""``testbed exec -- PROG``: a program of the user's in the guest."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed import nic as nics
from testbed.cli.changes import KernelOptions, resolve_aloud
from testbed.cli.manual import manual
from testbed.errors import TestbedError
from testbed.executable import read_program
from testbed.guest import Command, execute
from testbed.guest.channel import MessageType
from testbed.guest.execute import exit_status
from testbed.kernel import parse
from testbed.preparation import ready_guest, shape_of
from testbed.toolchain import open_toolchain

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.guest import Clock, Guest
    from testbed.kernel import Kernel
    from testbed.nic import Nic
    from testbed.toolchain import Toolchain

__all__ = ["Found", "Pipes", "command", "find_guest", "guest_options"]

_PROGRAM = "/run/program"
_BROKEN_PIPE = 141  # as a shell reports a program that SIGPIPE ended


@dataclass(frozen=True)
class Found:
    """What the options of a guest name."""

    toolchain: Toolchain
    kernel: Kernel
    nic: Nic


def guest_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say in which guest something runs, beside those of the kernel."""
    options = (
        click.option("--nic", required=True, help="The emulated NIC; see `testbed list nics`."),
        click.option(
            "--clock",
            type=click.Choice(["virtual", "real"]),
            help="Virtual under TCG, real under KVM by default.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def find_guest(nic: str, kernel: str) -> Found:
    """Resolve what the options name; all names are looked at before anything is built.

    :raise TestbedError: one of them is unknown, or cannot be had.
    """
    chosen = nics.get(nic)
    spec = parse(kernel)
    toolchain = open_toolchain()
    return Found(toolchain, resolve_aloud(spec, toolchain), chosen)


@click.command(
    "exec",
    cls=KernelOptions,
    context_settings={"allow_interspersed_args": False},
    epilog=manual(
        "testbed exec --nic igb -- ./probe --verbose",
        "testbed exec --nic e1000e --kernel debian:trixie --timeout 10 -- ./probe",
        _0="the program ended with 0; any other status of its own is passed on, 128+N for signal N",
    ),
)
@click.argument("program", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@guest_options
@click.option("--timeout", type=click.FloatRange(1, 86400), default=60.0, help="Seconds for the program.")
def command(
    *,
    program: Path,
    arguments: tuple[str, ...],
    nic: str,
    kernel: str,
    clock: Clock | None,
    timeout: float,
) -> None:
    """Run PROGRAM, a static x86-64 binary, in the guest: the NIC is eth0, up, with 192.0.2.2/24.

    Its stdout and stderr come out on ours, and its exit status is ours; 128+N when signal N ended it. It reads
    nothing on stdin.
    """
    what = Command({_PROGRAM: read_program(program)}, _PROGRAM, (str(program), *arguments))
    found = find_guest(nic, kernel)
    shape = shape_of(found.toolchain, clock)
    with ready_guest(found.toolchain, found.kernel, found.nic, shape) as guest:
        sys.exit(Pipes(guest).run(what, timeout))


class Pipes:
    """Lets a program of the guest write on our stdout and stderr.

    When nobody reads them any more, QEMU is ended and nothing more is written.
    """

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._broken = threading.Event()

    def run(self, what: Command, timeout_s: float) -> int:
        """Run the program and return the exit status that is ours then.

        :raise GuestLost: the guest died, or the program did not end in time.
        """
        try:
            return exit_status(execute(self._guest, what, self._write, timeout_s))
        except TestbedError:
            if self._broken.is_set():
                return _BROKEN_PIPE
            raise

    def _write(self, stream: MessageType, data: bytes) -> None:
        if self._broken.is_set():
            return
        try:
            _write_all(2 if stream is MessageType.STDERR else 1, data)
        except OSError:
            self._broken.set()
            self._guest.machine.end()


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
