"""Running a program of the user's in a guest: its files go in at barriers, its output comes out as it is written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from testbed.errors import GuestLost, UsageError
from testbed.guest.channel import Exited, MessageType
from testbed.guest.memory import PAGE_BYTES
from testbed.scenario.program import MAX_STEPS, STEP, StepKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from testbed.guest.channel import Barrier, Message
    from testbed.guest.guest import Guest

__all__ = ["MAX_PROGRAM_BYTES", "NO_INPUT", "PAYLOAD_OFFSET", "TERMINAL", "Command", "execute", "exit_status"]

PAYLOAD_OFFSET = 65536
MAX_PROGRAM_BYTES = 64 << 20  # a quarter of the guest's memory
NO_INPUT = "/dev/null"
TERMINAL = "/dev/ttyS1"
_ARGUMENTS = "/run/arguments"
_PATH_BYTES = 24
_MAX_ARGUMENT_BYTES = 131071  # images/agent/exec.c
_MAX_ARGUMENTS = 4093


@dataclass(frozen=True)
class Command:
    """What to run.

    :param files: paths in the guest, of at most 24 bytes, and what is written there; all can be executed.
    :param path: of the program, in the guest. :param arguments: from the zeroth on.
    :param stdin: a path in the guest; :data:`TERMINAL` makes that the program's terminal.
    :raise UsageError: there are more arguments than the agent takes.
    """

    files: dict[str, bytes]
    path: str
    arguments: Sequence[str]
    stdin: str = NO_INPUT

    def __post_init__(self) -> None:
        count, size = len(self.arguments), len(self._listed())
        if count > _MAX_ARGUMENTS or size > _MAX_ARGUMENT_BYTES:
            limit = f"expected at most {_MAX_ARGUMENTS} arguments of {_MAX_ARGUMENT_BYTES} bytes"
            raise UsageError(f"{limit}, seen {count} of {size}", "use fewer or shorter ones")

    def all_files(self) -> dict[str, bytes]:
        """Return the files, that of the arguments included."""
        return {**self.files, _ARGUMENTS: self._listed()}

    def _listed(self) -> bytes:
        strings = (self.path, self.stdin, *self.arguments)
        return b"".join(os.fsencode(text) + b"\0" for text in strings)


def execute(
    guest: Guest, command: Command, output: Callable[[MessageType, bytes], None], timeout_s: float
) -> int:
    """Run a program to its end and return its status, as wait(2) has it; with a debugger, once that says so.

    :param output: called with STDOUT or STDERR and bytes, from another thread, as soon as they are written.
    :param timeout_s: limit in host time.
    :raise GuestLost: the guest died, or the program did not end in time.
    """
    exits: list[Exited] = []

    def hear(message: Message) -> None:
        if message.type is MessageType.EXITED:
            exits.append(Exited.of(message))
        else:
            output(message.type, message.payload)

    pages = guest.shared.mailbox[PAYLOAD_OFFSET // PAGE_BYTES :]
    pieces = list(_pieces(command.all_files(), len(pages) * PAGE_BYTES))

    def act(barrier: Barrier) -> None:
        if barrier.action == len(pieces):
            guest.machine.serve_debugger()
        else:
            guest.machine.memory.write_pages(pages, pieces[barrier.action].data)

    steps = _steps(pieces, on_terminal=command.stdin == TERMINAL, debugged=guest.machine.debugged)
    guest.machine.channel.on_program = hear
    outcome = guest.run(steps.tobytes(), len(steps), act, timeout_s)
    if outcome.end is None:
        last = guest.machine.console_text().strip().splitlines()[-1:]
        said = "".join(f"; the kernel said last: {line}" for line in last)
        raise GuestLost(f"the program did not end: {outcome.death}{said}")
    if outcome.end.error or not exits:
        why = os.strerror(-outcome.end.error)
        raise GuestLost(f"the guest could not start the program: step {outcome.end.steps_done}: {why}")
    return exits[0].status


def exit_status(status: int) -> int:
    """Return what a shell makes of a status of wait(2): the program's own, or 128+N for signal N."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


@dataclass(frozen=True)
class _Piece:
    """Some bytes of a file, as many as the mailbox takes."""

    path: str
    data: bytes
    append: bool


def _pieces(files: dict[str, bytes], most: int) -> Iterator[_Piece]:
    for path, data in files.items():
        for start in range(0, max(len(data), 1), most):
            yield _Piece(path, data[start : start + most], append=start > 0)


def _steps(
    pieces: list[_Piece], *, on_terminal: bool, debugged: bool = False
) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    rows: list[tuple[int, ...]] = []
    for number, piece in enumerate(pieces):
        path = piece.path.encode()
        if len(path) >= _PATH_BYTES:
            raise ValueError(f"{piece.path} has more than {_PATH_BYTES - 1} bytes")
        words = np.frombuffer(path.ljust(_PATH_BYTES, b"\0"), "<u8").tolist()
        rows.append((StepKind.HOST, 0, 0, number, 0, 0))
        rows.append((StepKind.FILE, int(piece.append), len(piece.data), *words))
    if debugged:
        rows.append((StepKind.HOST, 0, 0, len(pieces), 0, 0))
    rows.append((StepKind.EXEC, 0, 0, int(on_terminal), 0, 0))
    if len(rows) > MAX_STEPS or len(rows) * STEP.itemsize > PAYLOAD_OFFSET - PAGE_BYTES:
        raise ValueError(f"{len(rows)} steps reach into the payload")
    return np.array(rows, dtype=STEP)
