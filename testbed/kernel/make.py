"""Running the kernel's own build: with a compiler cache, with progress and time left, and with its first error."""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import filelock

from testbed.cache import cache_dir, locked
from testbed.errors import BuildError, HostError
from testbed.toolchain.host import check_space, first_error, follow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from testbed.toolchain import Toolchain
    from testbed.toolchain.host import Progress

__all__ = ["first_build_error", "make", "waiting_lock"]

#: Steps of a build from nothing with images/kernel, counted on 7.3.
_STEPS = 2115
_LIMIT_S = 4 * 3600
_TELL_S = 5.0
_STEP = re.compile(r"[A-Z][A-Z0-9_]*(?: \[M\])? +\S")
_ERRORS = (
    re.compile(r"^.*: (?:fatal )?error: .*$", re.MULTILINE),
    re.compile(r"^ERROR: .*$|^.*undefined reference.*$|^.*: \*\*\* [^\[].*$", re.MULTILINE),
    re.compile(r"^.*\*\*\* \[.*$", re.MULTILINE),
)
#: A compiler that is killed may leave half an object behind, newer than its source.
_UNSURE_S = 30.0


@dataclass
class _Steps:
    """How far a build is.

    :param record: where the steps done are written down now and then, for the build that goes on after a kill.
    :param before: steps that an interrupted build did.
    """

    show: Callable[[str], None]
    expected: int
    record: Path
    before: int
    done: int = 0
    started: float = field(default_factory=time.monotonic)
    told: float = 0.0

    def line(self, text: str) -> None:
        """Count a line of kbuild, and tell now and then."""
        if not _STEP.match(text):
            return
        self.done += 1
        now = time.monotonic()
        if now - self.told >= _TELL_S:
            self.told = now
            self.record.write_text(str(self.before + self.done))
            self.show(
                f"{self.before + self.done} steps{self._left(now - self.started)}: {text.rpartition('/')[2]}"
            )

    def _left(self, spent_s: float) -> str:
        left = self.expected - self.before - self.done
        if left <= 0 or self.done < 20:
            return ""
        minutes = spent_s / self.done * left / 60
        return f" of about {self.expected}, {max(1, round(minutes))} min left"


def make(
    source: Path, build: Path, goals: Sequence[str], toolchain: Toolchain, show: Callable[[str], None]
) -> None:
    """Build ``goals`` of the tree in ``source`` in the directory ``build``, going on from what is there.

    :raise BuildError: it does not compile; the message is the compiler's first error.
    :raise HostError: the disk is full.
    """
    under_way, before = build / "testbed.building", 0
    if under_way.exists():
        before = int(under_way.read_text() or 0)
        show(f"going on after {before} steps, where a build ended")
        _drop_last_written(build)
    under_way.write_text(str(before))
    expected = (
        0 if (build / "vmlinux").exists() else _STEPS
    )  # only what changed: nobody knows how much that is
    steps = _Steps(show, expected, under_way, before)
    cache = cache_dir() / "ccache"
    cache.mkdir(exist_ok=True)
    argv = [
        *("env", f"CCACHE_DIR={cache}", f"CCACHE_BASEDIR={build.parent}", "CCACHE_NOHASHDIR=1"),
        *("CCACHE_MAXSIZE=3G", "CCACHE_SLOPPINESS=time_macros"),
        *("make", "-C", str(source), f"O={build}", f"-j{os.cpu_count() or 1}", "CC=ccache gcc"),
        *("KBUILD_BUILD_USER=testbed", "KBUILD_BUILD_HOST=testbed"),
        "KBUILD_BUILD_TIMESTAMP=Thu Jan  1 00:00:00 UTC 2026",
        *goals,
    ]
    command = toolchain.argv(argv, read=[source], write=[build, cache])
    status, said = follow(command, steps.line, timeout_s=_LIMIT_S)
    if status:
        check_space(said)
        raise BuildError(first_build_error(said, source), "correct the source, then build again")
    under_way.unlink()


def first_build_error(said: str, source: Path) -> str:
    """Return the first error of a build's output, with paths as they are in the kernel's tree."""
    found = next((match for pattern in _ERRORS if (match := pattern.search(said))), None)
    return (
        (found[0] if found else first_error(said))
        .replace(f"{source}/", "")
        .replace("../source/", "")
        .strip()[:300]
    )


def _drop_last_written(build: Path) -> None:
    objects = [path for pattern in ("*.o", "*.a", "*.ko", "vmlinux*") for path in build.rglob(pattern)]
    times = {path: path.stat().st_mtime for path in objects if path.is_file()}
    newest = max(times.values(), default=0.0)
    for path, written in times.items():
        if written >= newest - _UNSURE_S:
            path.unlink()


@contextmanager
def waiting_lock(name: str, what: str, progress: Progress) -> Iterator[None]:
    """Hold a lock of the cache; say so when somebody else has it, and wait."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(name, 0))
        except HostError as error:
            if not isinstance(error.__cause__, filelock.Timeout):
                raise
            progress(what, "waiting for another testbed that builds this tree")
            stack.enter_context(locked(name))
        yield
