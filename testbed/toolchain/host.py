"""Programs of the host: which Debian package brings each, how one is run, what its failure means."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from testbed.errors import BuildError, HostError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Progress",
    "attempt",
    "first_error",
    "follow",
    "missing_package",
    "mortal",
    "need_programs",
    "need_space",
    "program",
    "quiet",
    "run",
]

Progress = Callable[[str, str], None]
"""Called with what is worked on (``toolchain``, a kernel's name) and one line about it; from any thread."""

PACKAGES = {
    "apt-config": "apt",
    "apt-get": "apt",
    "bwrap": "bubblewrap",
    "dpkg-deb": "dpkg",
    "newuidmap": "uidmap",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
"""Program to Debian package; a program that is not listed comes in the package of its own name."""

_ERROR = re.compile(
    r"\b(?:errors?|fatal|failed|cannot|undefined|no such|unable|denied)\b|^E: |\*\*\*", re.IGNORECASE
)
_SPACE = re.compile(r"No space left|not enough free space|Disk quota exceeded", re.IGNORECASE)


def quiet(_what: str, _line: str) -> None:
    """Be the :data:`Progress` of callers that show none."""


def program(name: str) -> str:
    """Return the path of a host program.

    :raise HostError: it is not there; the remedy is the apt line that brings it.
    """
    path = _on_path(name)
    if path is None:
        missing_package(name)
    return path


def need_programs(names: Sequence[str]) -> None:
    """Check that all of these programs are on this machine.

    :raise HostError: some are not; the message names them all, the remedy is the one apt line that brings them.
    """
    missing = [name for name in names if not _on_path(name)]
    if missing:
        packages = dict.fromkeys(PACKAGES.get(name, name) for name in missing)
        raise HostError(f"not on this machine: {', '.join(missing)}", f"apt-get install {' '.join(packages)}")


def _on_path(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")


def missing_package(name: str) -> NoReturn:
    """Say which package brings the host program ``name``.

    :raise HostError: always.
    """
    raise HostError(f"{name} is not on this machine", f"apt-get install {PACKAGES.get(name, name)}")


def mortal(argv: Sequence[str]) -> list[str]:
    """Return argv changed so that the program is killed when the thread that started it ends."""
    return [program("setpriv"), "--pdeathsig", "KILL", "--", *argv]


def first_error(text: str) -> str:
    """Return the first line of a program's output that says what went wrong, else its last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "no message"
    return next((line for line in lines if _ERROR.search(line)), lines[-1])[:300]


def attempt(
    argv: Sequence[str],
    *,
    timeout_s: float,
    what: str = "",
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end, whatever its exit status; it is killed when testbed ends.

    :param what: names it in messages; default its file name.
    :param environment: added to testbed's own.
    :param stdin: empty unless given.
    :raise BuildError: it did not end within ``timeout_s``.
    :raise HostError: it cannot be started.
    """
    try:
        return subprocess.run(
            mortal(argv),
            input=stdin if stdin is not None else b"",
            capture_output=True,
            timeout=timeout_s,
            check=False,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(
            f"{what or Path(argv[0]).name} did not end within {timeout_s:.0f} s",
            "try again on a quieter machine",
        ) from error
    except FileNotFoundError as error:
        raise HostError(f"cannot start {argv[0]}: {error.strerror}", "run: testbed doctor") from error


def run(
    argv: Sequence[str],
    *,
    what: str,
    timeout_s: float,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
) -> str:
    """Run a program and return what it printed on stdout.

    :param what: names the program in messages.
    :raise BuildError: it failed or did not end in time; the message holds the first line that says why.
    :raise HostError: it cannot be started, or the disk is full.
    """
    done = attempt(argv, timeout_s=timeout_s, what=what, cwd=cwd, environment=environment, stdin=stdin)
    if done.returncode:
        said = (done.stderr + b"\n" + done.stdout).decode(errors="replace")
        check_space(said)
        raise BuildError(f"{what} failed ({describe_status(done.returncode)}): {first_error(said)}")
    return done.stdout.decode(errors="replace")


def follow(
    argv: Sequence[str],
    show: Callable[[str], None],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Run a long program, give each line it prints to ``show``; return its exit status and all it printed.

    It dies with the calling thread.

    :raise BuildError: it did not end within ``timeout_s``.
    """
    lines = []
    with (
        subprocess.Popen(
            mortal(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=cwd,
            env={**os.environ, **(environment or {})},
        ) as process,
        _limit(process, timeout_s) as expired,
    ):
        for line in process.stdout or ():
            lines.append(line)
            show(line.strip())
        process.wait()
    if expired.is_set():
        raise BuildError(
            f"{Path(argv[0]).name} did not end within {timeout_s:.0f} s", "try again on a quieter machine"
        )
    return process.returncode, "".join(lines)


@contextmanager
def _limit(process: subprocess.Popen[str], timeout_s: float) -> Iterator[threading.Event]:
    """Kill the process after ``timeout_s``, and when the block is left; the event says if time ran out."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(timeout_s, expire)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()
        if process.poll() is None:
            process.kill()


def describe_status(status: int) -> str:
    """Return an exit status in words: ``exit status 2`` or ``signal 9``."""
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def check_space(said: str) -> None:
    """Recognise a full disk in a program's output.

    :raise HostError: the output says that the disk is full.
    """
    told = next((line.strip() for line in said.splitlines() if _SPACE.search(line)), None)
    if told:
        raise HostError(
            f"the disk is full: {told[:300]}", "free some space, or point TESTBED_CACHE elsewhere"
        )


def need_space(directory: Path, needed_mb: int, purpose: str) -> None:
    """Check that a directory's file system has room.

    :raise HostError: less than ``needed_mb`` is free; the message says both figures.
    """
    free_mb = shutil.disk_usage(directory).free // 1_000_000
    if free_mb < needed_mb:
        raise HostError(
            f"{purpose} needs {needed_mb} MB in {directory}, {free_mb} MB are free",
            "free some space, or point TESTBED_CACHE to a larger disk",
        )
