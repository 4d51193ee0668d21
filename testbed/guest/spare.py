"""Processes of device models that are started before they are needed: Python and the model take a while to begin.

A process is told what it is for by its first message. So one can be started when a run begins, while the guest's parts
are still looked up; and whoever makes one guest after the other has the next process ready while a guest runs.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from testbed.toolchain.host import mortal
from testbed.vfio_user.control import begin

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ModelProcess", "take", "warm"]

END_LIMIT_S = 5.0
LOG_BYTES = 64 << 10

_lock = threading.Lock()
_spares: dict[str, ModelProcess] = {}
_taken: collections.Counter[str] = collections.Counter()


class ModelProcess:
    """A process, its end of the control channel, and what it says on stdout and stderr."""

    def __init__(self, model: str) -> None:
        self._stack = contextlib.ExitStack()
        self.control, theirs = (self._stack.enter_context(end) for end in socket.socketpair())
        self._log = os.memfd_create("model-log", os.MFD_CLOEXEC)
        self._stack.callback(os.close, self._log)
        self._process = subprocess.Popen(
            mortal([sys.executable, "-P", "-m", "testbed.vfio_user", model, str(theirs.fileno())]),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        self._stack.callback(self._end)
        theirs.close()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def begin(self, mac: str, fds: Sequence[int]) -> None:
        """Say what it is for.

        :param fds: listening socket, wire, memory for events.
        """
        begin(self.control, mac, fds)

    def last_words(self) -> str:
        """Return the last line that it wrote, or how it ended."""
        size = os.fstat(self._log).st_size
        lines = os.pread(self._log, LOG_BYTES, max(size - LOG_BYTES, 0)).decode(errors="replace").split("\n")
        if said := [line for line in lines if line.strip()]:
            return said[-1].strip()
        try:
            status = self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            return "it closed its control channel"
        return f"status {status}" if status >= 0 else f"signal {-status}"

    def close(self) -> None:
        """End it; what it knows is ours or QEMU's."""
        self._stack.close()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait(END_LIMIT_S)


def warm(model: str, *, again: bool = False) -> None:
    """See that a process of this model is ready, or on its way.

    :param again: only if more than one has been needed so far, so that the next is likely.
    """
    with _lock:
        if model not in _spares and (not again or _taken[model] > 1):
            _spares[model] = ModelProcess(model)


def take(model: str) -> ModelProcess:
    """Return a process of this model; the caller closes it."""
    with _lock:
        _taken[model] += 1
        return _spares.pop(model, None) or ModelProcess(model)


@atexit.register
def _close_spares() -> None:
    with _lock:
        while _spares:
            _spares.popitem()[1].close()
