"""A Dask cluster of real processes: a scheduler, and workers that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

MARK = "TESTBED_TEST_WORKER"
LIMIT_S = 60.0
TICK_S = 0.01


class Worker:
    """One worker, which leaves its mark in the environment of all that it starts."""

    def __init__(self, mark: str, process: subprocess.Popen[bytes]) -> None:
        self._mark, self._process = f"{MARK}={mark}".encode(), process

    def started(self) -> dict[int, str]:
        """Return what runs on its behalf: command lines by process."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != self._process.pid:
                try:
                    if self._mark in (entry / "environ").read_bytes().split(b"\0"):
                        found[int(entry.name)] = (
                            (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                        )
                except OSError:
                    continue  # it has ended, or is another user's
        return found

    def wait_for_guest(self) -> None:
        """Wait until QEMU runs, in its sandbox, which clears the environment of what is in it."""
        deadline = time.monotonic() + LIMIT_S
        while not any("qemu-system" in command for command in self.started().values()):
            assert time.monotonic() < deadline, f"the worker started no guest, only {self.started()}"
            time.sleep(TICK_S)

    def kill(self) -> None:
        """Kill it as a crash would."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(LIMIT_S)


class DaskCluster:
    """A scheduler; the context ends it with all its workers.

    :param directory: for logs and whatever Dask leaves.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        file = self._directory / "scheduler.json"
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", file, "--no-show"
        )
        deadline = time.monotonic() + LIMIT_S
        while not (file.exists() and file.stat().st_size):
            assert time.monotonic() < deadline, self._log("scheduler")
            assert self.scheduler.poll() is None, self._log("scheduler")
            time.sleep(TICK_S)
        self.address: str = json.loads(file.read_bytes())["address"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def worker(self, name: str, resources: str = "", threads: int = 1, **environment: str) -> Worker:
        """Return a worker that has joined.

        :param resources: as after --resources.
        :param threads: how many things it does at a time.
        """
        mark = f"{self._directory.name}-{name}"
        options = ("--resources", resources) if resources else ()
        local = (
            "--local-directory",
            self._directory,
            "--nthreads",
            str(threads),
            "--no-nanny",
            "--no-dashboard",
        )
        process = self._start("worker", self.address, "--name", name, *local, *options,
                              **{MARK: mark}, **environment)  # fmt: skip
        deadline = time.monotonic() + LIMIT_S
        while "Registered to:" not in self._log(name):
            assert time.monotonic() < deadline, self._log(name)
            assert process.poll() is None, self._log(name)
            time.sleep(TICK_S)
        return Worker(mark, process)

    @contextmanager
    def joined(self, name: str, resources: str = "", **environment: str) -> Iterator[Worker]:
        """Lend a worker; it is gone after the context."""
        worker = self.worker(name, resources, **environment)
        try:
            yield worker
        finally:
            worker.kill()

    def _start(self, what: str, *words: str | Path, **environment: str) -> subprocess.Popen[bytes]:
        name = words[words.index("--name") + 1] if "--name" in words else what
        log = self._stack.enter_context((self._directory / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"distributed.cli.dask_{what}", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **environment},
        )
        self._stack.callback(process.wait, LIMIT_S)
        self._stack.callback(process.kill)
        return process

    def _log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")
