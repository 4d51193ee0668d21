"""What ends the processes of a testbed that was killed: a process of its own that outlives it by a moment.

The kernel's death signals do not suffice. bubblewrap asks for them late (in its child only after all mounts), and its
child waits for a word of its parent with nothing to wake it should there be none: of testbeds killed within 20 ms
of a sandbox's start, half left one behind, with QEMU in it. So everything we start inherits a mark in its
environment, and the guard, which sees our end as the end of a pipe, kills what bears the mark. A sandbox clears the
environment for what runs in it, not for its own process 1, with which all in it dies.

This file is also the guard's program: it imports nothing that takes time.
"""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

__all__ = ["MARK", "start_guard"]

MARK = "TESTBED_GUARD"
CALM = b"\n"  # told by a testbed that ends by itself: it has ended what it started
QUIET_S = 0.5  # a process that was just forked bears the mark only when it has begun its program
TICK_S = 0.02

_starting = threading.Lock()
_started: dict[int, subprocess.Popen[bytes]] = {}


def start_guard() -> None:
    """Let the processes that this one starts from now on end when it is killed; further calls do nothing."""
    with _starting:
        if os.getpid() in _started:
            return
        mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us
        )
        os.environ[MARK] = mark
        _started[os.getpid()] = guard
        atexit.register(_dismiss, guard, os.getpid())


def _dismiss(guard: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:
        guard.communicate(CALM)


def _marked(mark: bytes) -> list[int]:
    """Return the processes that bear the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue  # it has ended, or is another user's
            if mark in environment.split(b"\0"):
                found.append(int(entry.name))
    return found


def _guard(mark: str) -> None:
    """Wait for the owner's end, then kill until nothing bears its mark any more."""
    if os.read(0, 1) == CALM:
        return
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_S:
        for pid in _marked(f"{MARK}={mark}".encode()):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue  # it has ended, or may not be killed by us
            quiet_since = time.monotonic()
        time.sleep(TICK_S)  # nobody tells of the end of a stranger's children


if __name__ == "__main__":
    _guard(sys.argv[1])
