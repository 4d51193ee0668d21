"""Whole commands, and the same run again and again."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import nic
from testbed.bench.records import FIRST_RUN, LIBRARY, NIC, RUN, Repetition
from testbed.cache import cache_dir, host_errors
from testbed.errors import GuestLost, HostError
from testbed.kernel import with_variants
from testbed.run import Request, prepare, run
from testbed.scenario import load
from testbed.toolchain.host import attempt, first_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from testbed.bench.records import Effort
    from testbed.kernel import Kernel
    from testbed.toolchain import Toolchain

    Say = Callable[[str], None]

__all__ = ["measure_repetition", "measure_runs", "private_cache", "repetition", "run_words", "whole_run"]

RUN_LIMIT_S = 900.0
LIBRARY_WORDS = ("matrix", "--nics", "igb,e1000e", "--clocks", "virtual")


def run_words(accelerator: str) -> list[str]:
    """Return the command that is timed as a whole, without the name of the program.

    Where KVM works, virtual time must be asked for; else it is the default.
    """
    return ["run", "ring-full", "--nic", NIC, *(("--clock", "virtual") if accelerator != "tcg" else ())]


@contextmanager
def private_cache(directory: Path) -> Iterator[Path]:
    """Give a cache that shares all that is in the user's, but has no snapshots."""
    cache = directory / "cache"
    with host_errors(cache):
        cache.mkdir(parents=True)
        for entry in cache_dir().iterdir():
            if entry.name not in {"run", "snapshots"}:
                (cache / entry.name).symlink_to(entry)
    yield cache


def measure_runs(words: Sequence[str], directory: Path, effort: Effort, say: Say) -> dict[str, list[float]]:
    """Time a command without and with a snapshot, and the library on both NICs; return seconds by name."""
    with private_cache(directory) as cache:
        say("running without a snapshot")
        first = [whole_run(words, cache)]
        say(f"running with a snapshot, {effort.runs} times")
        seconds = {FIRST_RUN: first, RUN: [whole_run(words, cache) for _ in range(effort.runs)]}
    with private_cache(directory / "library") as cache:
        say("running the library on both NICs, without snapshots")
        return seconds | {LIBRARY: [whole_run(LIBRARY_WORDS, cache)]}


def whole_run(words: Sequence[str], cache: Path) -> float:
    """Return how long a command of testbed takes in a process of its own, in seconds.

    :param cache: its TESTBED_CACHE.
    :raise GuestLost: it did not get to a verdict.
    """
    program = Path(sys.executable).with_name("testbed")
    if not program.exists():
        raise HostError(f"there is no {program}", "install testbed with pip into the environment it runs in")
    command = "testbed " + " ".join(words)
    since = time.monotonic()
    done = attempt(
        [str(program), *words],
        timeout_s=RUN_LIMIT_S,
        what=command,
        environment={"TESTBED_CACHE": str(cache)},
    )
    took = time.monotonic() - since
    if done.returncode not in {0, 1}:
        said = first_error((done.stderr + done.stdout).decode(errors="replace"))
        raise GuestLost(f"{command} ended with {done.returncode}: {said}")
    return took


def measure_repetition(
    toolchain: Toolchain, kernel: Kernel, scenario: str, variant: str, times: int, say: Say
) -> Repetition:
    """Run a scenario with a variant, or none, several times on the bench's NIC and compare the digests."""
    what = f"{scenario} + {variant}" if variant else scenario
    say(f"repeating {what}, {times} times")
    request = Request(
        toolchain=toolchain,
        kernel=with_variants(kernel, [variant] if variant else [], toolchain),
        nic=nic.get(NIC),
        scenario=load(scenario),
        clock="virtual",
    )
    prepare(request)
    return repetition(what, request, times)


def repetition(what: str, request: Request, times: int) -> Repetition:
    """Run a request several times and compare the digests."""
    results = [run(request).result for _ in range(times)]
    broken = [result for result in results if result.verdict not in {"pass", "fail"}]
    digests = {result.trace.sequence_digest for result in results if result.trace}
    return Repetition(
        what=what,
        runs=times,
        digests=len(digests),
        broken=len(broken),
        error=broken[0].error if broken else None,
    )
