"""A guest that lives for a while in real time: programs, scripts and scapy work on it, one after the other."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from testbed.busybox import script_command
from testbed.executable import read_program
from testbed.guest import Command, execute, running
from testbed.guest.channel import MessageType
from testbed.guest.execute import exit_status
from testbed.preparation import ready_guest, shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scapy.interfaces import NetworkInterface

    from testbed.guest import Guest
    from testbed.kernel import Kernel
    from testbed.nic import Nic
    from testbed.toolchain import Toolchain

__all__ = ["Ended", "LiveGuest", "live_guest"]

_PROGRAM = "/run/program"


class Ended(NamedTuple):
    """How a program in the guest ended.

    :param status: as a shell has it: the program's own, or 128+N for signal N.
    """

    status: int
    out: str
    err: str


class LiveGuest:
    """A guest; its NIC is eth0, up, with 192.0.2.2/24."""

    def __init__(self, toolchain: Toolchain, kernel: Kernel, nic: Nic, guest: Guest) -> None:
        self.kernel, self.nic, self.guest = kernel, nic, guest
        self._toolchain = toolchain

    def script(self, text: str, timeout_s: float = 60.0) -> Ended:
        """Run a script of busybox' shell.

        :param timeout_s: limit in host time.
        :raise GuestLost: the guest died, or the script did not end in time.
        """
        return self._run(script_command(self._toolchain, text.encode()), timeout_s)

    def call(self, program: str | Path, *arguments: str, timeout_s: float = 60.0) -> Ended:
        """Run a static x86-64 program of the host's.

        :param timeout_s: limit in host time.
        :raise UsageError: it is no such program.
        :raise GuestLost: the guest died, or the program did not end in time.
        """
        files = {_PROGRAM: read_program(Path(program))}
        return self._run(Command(files, _PROGRAM, (str(program), *arguments)), timeout_s)

    @contextmanager
    def wire(self, limit_s: float = 60.0) -> Iterator[NetworkInterface]:
        """Let the guest run by itself, its wire being scapy's interface: sendp, srp1, sniff reach it alone.

        :param limit_s: guest time after which the block must have ended, at most 819.
        :raise GuestLost: the guest died, or the block took longer.
        """
        with running(self.guest, limit_s), self.guest.machine.wire.scapy() as interface:
            yield interface

    def _run(self, what: Command, timeout_s: float) -> Ended:
        said = {MessageType.STDOUT: bytearray(), MessageType.STDERR: bytearray()}
        status = execute(self.guest, what, lambda stream, data: said[stream].extend(data), timeout_s)
        out, err = (
            said[stream].decode(errors="replace") for stream in (MessageType.STDOUT, MessageType.STDERR)
        )
        return Ended(exit_status(status), out, err)


@contextmanager
def live_guest(toolchain: Toolchain, kernel: Kernel, nic: Nic) -> Iterator[LiveGuest]:
    """Lend a live guest; it ends with the context.

    :raise TestbedError: it cannot be built, booted or restored.
    """
    with ready_guest(toolchain, kernel, nic, shape_of(toolchain, "real")) as guest:
        yield LiveGuest(toolchain, kernel, nic, guest)
