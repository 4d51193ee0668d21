"""busybox in a guest: what is put there and started for a script, or for a person at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.errors import HostError, UsageError
from testbed.executable import read_program
from testbed.guest import Command
from testbed.guest.execute import MAX_PROGRAM_BYTES, TERMINAL

if TYPE_CHECKING:
    from testbed.toolchain import Toolchain

__all__ = ["script_command", "terminal_command"]

_BUSYBOX = "/bin/busybox"
_INPUT = "/run/input"
# What a kernel has no file system for is no fault.
_SETUP = (
    "busybox --install -s /bin; "
    "mount -t tracefs none /sys/kernel/tracing 2>/dev/null; mount -t bpf none /sys/fs/bpf 2>/dev/null; "
)


def script_command(toolchain: Toolchain, script: bytes) -> Command:
    """Return what runs a script.

    :raise UsageError: it is too long.
    :raise HostError: the toolchain has no busybox that a guest can run.
    """
    if len(script) > MAX_PROGRAM_BYTES:
        raise UsageError(f"the script has more than {MAX_PROGRAM_BYTES >> 20} MiB", "give a shorter one")
    files = {_BUSYBOX: _program(toolchain), _INPUT: script}
    return Command(files, _BUSYBOX, ("busybox", "sh", "-c", f"{_SETUP}exec sh"), _INPUT)


def terminal_command(toolchain: Toolchain, prepare: str) -> Command:
    """Return what runs a shell on the guest's terminal.

    :param prepare: shell commands that come first; each ends in a semicolon.
    :raise HostError: the toolchain has no busybox that a guest can run.
    """
    files = {_BUSYBOX: _program(toolchain)}
    return Command(files, _BUSYBOX, ("busybox", "sh", "-c", f"{_SETUP}{prepare}exec sh"), TERMINAL)


def _program(toolchain: Toolchain) -> bytes:
    try:
        return read_program(toolchain.file("/usr/bin/busybox"))
    except UsageError as error:
        raise HostError(error.message, "install busybox-static, or use --toolchain root") from error
