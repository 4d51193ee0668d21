"""The guard: what a killed testbed started ends too, also where no death signal of the kernel reaches it."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LIMIT_S = 20.0
OWNER = """\
import subprocess, sys
from testbed.toolchain.guard import start_guard
{guard}
deaf = subprocess.Popen(["sleep", "{seconds}"], start_new_session=True)
print(deaf.pid, flush=True)
sys.stdin.read()
"""


@contextmanager
def owner(*, guarded: bool, seconds: int = 3600) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Lend a process that started another in a session of its own, and a descriptor of the latter."""
    code = OWNER.format(guard="start_guard(); start_guard()" if guarded else "", seconds=seconds)
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        child = os.pidfd_open(int(process.stdout.readline()))
        try:
            yield process, child
        finally:
            process.kill()
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(child, signal.SIGKILL)
            os.close(child)


def ends(child: int, limit_s: float) -> bool:
    return bool(select.select([child], [], [], limit_s)[0])


def test_what_a_killed_owner_started_ends() -> None:
    with owner(guarded=True) as (process, child):
        process.kill()
        assert ends(child, LIMIT_S)


def test_without_a_guard_it_would_not_end() -> None:
    with owner(guarded=False) as (process, child):
        process.kill()
        process.wait()
        assert not ends(child, 1.0)


def test_an_owner_that_ends_by_itself_has_nothing_killed() -> None:
    with owner(guarded=True) as (process, child):
        assert process.stdin
        process.stdin.close()
        assert process.wait(LIMIT_S) == 0  # it waits for its guard
        assert not ends(child, 1.0)
