"""``testbed exec -- PROG``: a program of the user's in the guest."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed import nic as nics
from testbed.executable import read_program
from testbed.guest import Command, execute
from testbed.guest.channel import MessageType
from testbed.kernel import check_names, resolve, with_variants
from testbed.preparation import ready_guest, shape_of
from testbed.toolchain import open_toolchain

if TYPE_CHECKING:
    from testbed.guest import Clock, Guest

__all__ = ["Pipes", "command", "exit_status"]

_PROGRAM = "/run/program"
_BROKEN_PIPE = 141  # as a shell reports a program that SIGPIPE ended


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.argument("program", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--nic", required=True, help="The emulated NIC; see `testbed list nics`.")
@click.option(
    "--kernel", default="", help="BASE[@variant=NAME]...; the newest distribution kernel by default."
)
@click.option("--variant", multiple=True, help="A named change to the driver; repeatable.")
@click.option(
    "--clock", type=click.Choice(["virtual", "real"]), help="Virtual under TCG, real under KVM by default."
)
@click.option("--timeout", type=click.FloatRange(1, 86400), default=60.0, help="Seconds for the program.")
def command(
    *,
    program: Path,
    arguments: tuple[str, ...],
    nic: str,
    kernel: str,
    variant: tuple[str, ...],
    clock: Clock | None,
    timeout: float,
) -> None:
    """Run PROGRAM, a static x86-64 binary, in the guest: the NIC is eth0, up, with 192.0.2.2/24.

    Its stdout and stderr come out on ours, and its exit status is ours; 128+N when signal N ended it. It reads nothing
    on stdin.
    """
    chosen = nics.get(nic)
    base, variants = check_names(kernel, variant)
    what = Command({_PROGRAM: read_program(program)}, _PROGRAM, (str(program), *arguments))
    toolchain = open_toolchain()
    changed = with_variants(resolve(base), variants, toolchain)
    with ready_guest(toolchain, changed, chosen, shape_of(toolchain, clock)) as guest:
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
        except Exception:
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


def exit_status(status: int) -> int:
    """Return what a shell makes of a status of wait(2): the program's own, or 128+N for signal N."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code
