"""A testbed of its own in a cache of its own: to be killed at a chosen moment, and to see what that leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import filelock
import pytest

from testbed.cache import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TESTBED = Path(sys.executable).with_name("testbed")
SHARED = ("accelerator", "apt", "images", "kernels", "toolchain", "toolchain.lock", "variants", "vmlinux")
LIMIT_S = 120.0  # for a testbed to come to a moment, or to its end
GONE_LIMIT_S = 10.0  # for what a killed testbed leaves to be gone
TICK_S = 0.005


class Ended(NamedTuple):
    """How a testbed ended."""

    status: int
    out: str
    err: str

    def document(self) -> dict[str, Any]:
        """Return its one JSON document."""
        found: dict[str, Any] = json.loads(self.out)
        return found


class Cache:
    """A cache, and testbeds that use it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "TESTBED_CACHE": str(self.path)}

    def call(self, *words: str | Path, prefix: tuple[str, ...] = ()) -> Ended:
        """Run a testbed to its end."""
        done = subprocess.run(
            [*prefix, TESTBED, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env=self.environment,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def started(self, *words: str | Path) -> Iterator[Victim]:
        """Lend a testbed that runs; it is killed when the block is left, if it still does."""
        with subprocess.Popen(
            [TESTBED, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        ) as process:
            try:
                yield Victim(process)
            finally:
                process.kill()


class PrivateCache(Cache):
    """A cache that shares all but locks, snapshots and runs with the ordinary one."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        path.mkdir()
        for name in SHARED:
            (path / name).symlink_to(cache_dir() / name)

    def processes(self) -> dict[int, str]:
        """Return all processes that belong to this cache: by command line, or by what they inherited."""
        marked = str(self.path).encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                try:
                    command = (entry / "cmdline").read_bytes()
                    if marked in command or marked in (entry / "environ").read_bytes():
                        found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue  # it has ended, or is another user's
        return found

    def qemu(self) -> int | None:
        """Return the process of a QEMU that works with this cache."""
        return next((pid for pid in self.processes() if _is_qemu(pid)), None)

    def kill_qemu(self) -> None:
        """Kill that QEMU."""
        pid = self.qemu()
        assert pid, "QEMU does not run"
        os.kill(pid, signal.SIGKILL)

    def assert_nothing_left(self) -> None:
        """See that processes end within a short time, that no lock is held, and that every entry is whole."""
        deadline = time.monotonic() + GONE_LIMIT_S
        while left := self.processes():
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(TICK_S)  # nobody tells us of the end of somebody else's children
        for file in (self.path / "locks").glob("*.lock"):
            with filelock.FileLock(file, timeout=0):
                pass
        for entry in self.entries():
            assert (entry / "agent.json").stat().st_size
            assert (entry / "state").stat().st_size

    def entries(self) -> list[Path]:
        """Return the snapshots that are in use."""
        return [entry for entry in (self.path / "snapshots").glob("*") if not entry.name.startswith(".")]

    def leftovers(self) -> list[Path]:
        """Return what a killed testbed may leave, to be removed by the next."""
        return [*(self.path / "snapshots").glob(".*.partial"), *(self.path / "run").glob("*")]


def _is_qemu(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("qemu-system")
    except OSError:
        return False


class Victim:
    """A running testbed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def wait_for(self, moment: Callable[[], object], what: str) -> None:
        """Wait until the moment has come.

        :raise pytest.fail.Exception: testbed ended before.
        """
        deadline = time.monotonic() + LIMIT_S
        while not moment():
            try:
                status = self._process.wait(TICK_S)
            except subprocess.TimeoutExpired:
                assert time.monotonic() < deadline, f"it never came to this: {what}"
            else:
                out, err = self._process.communicate()
                pytest.fail(f"ended with {status} before this: {what}\n{out}{err}")

    def kill(self) -> None:
        """Kill testbed itself."""
        self._process.kill()
        self._process.communicate(timeout=GONE_LIMIT_S)

    def interrupt(self) -> None:
        """Do what Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def end(self, limit_s: float = LIMIT_S) -> Ended:
        """Wait for its end."""
        out, err = self._process.communicate(timeout=limit_s)
        return Ended(self._process.returncode, out, err)
