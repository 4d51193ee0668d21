"""How long things take on this machine and whether runs repeat exactly, beside a plain boot of the same kernel.

All of it is in virtual time under TCG, so that machines with and without KVM can be compared by the ratios.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from testbed import nic
from testbed.cache import cache_dir, host_errors
from testbed.errors import BootError, GuestLost, HostError
from testbed.guest import Guest, Shape, probe, runtime_directory
from testbed.guest.machine import Machine
from testbed.image.cpio import archive
from testbed.kernel import resolve, with_variants
from testbed.preparation import blueprint_of
from testbed.run import Request, prepare, run
from testbed.scenario import load
from testbed.toolchain.host import attempt, first_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from testbed.guest import Blueprint
    from testbed.kernel import Kernel
    from testbed.toolchain import Toolchain

    Say = Callable[[str], None]

__all__ = ["FULL", "QUICK", "Bench", "Effort", "MachineRecord", "Repetition", "Timing", "bench"]

SCHEMA_VERSION = 1
NIC = "igb"

PLAIN, BOOT, SAVE, RESTORE = "plain boot", "boot", "save", "restore"
FIRST_RUN, RUN = "first run", "run"

TARGETS_S = {RESTORE: 0.3, RUN: 4.0, FIRST_RUN: 20.0}
"""Seconds that the median of a timing may take, on two cores under TCG."""
DIGESTS = 1
"""Different sequence digests that runs of the same input may give."""

CASES = (
    ("ring-full", ""),
    ("ring-full", "igb/ring-full-exit-naive"),
    ("ring-full", "igb/ring-full-exit"),
    ("rx-steady", ""),
    ("tx-only", ""),
)
"""Scenario and variant of what is repeated."""

PLAIN_BOOT_LIMIT_S = 180.0
RUN_LIMIT_S = 300.0
PROMPT = b"~ # "  # of busybox ash, for root at home


@dataclass(frozen=True)
class Effort:
    """How often each thing is measured."""

    boots: int
    restores: int
    runs: int
    repetitions: int


FULL = Effort(boots=3, restores=10, runs=5, repetitions=20)
QUICK = Effort(boots=1, restores=3, runs=3, repetitions=3)


class MachineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where it was measured; ``load`` is the 1-minute load average when it began, 0 on a quiet machine."""

    cpu: str
    cores: int
    memory_mib: int
    kernel: str
    python: str
    qemu: str
    accelerator: str
    load: float


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of wall time, one for each time it was done; ``ratio`` is to the plain boot, by medians."""

    name: str
    what: str
    seconds: list[float]
    median_s: float
    ratio: float
    target_s: float | None = None

    @property
    def met(self) -> bool:
        """Whether the median is within the target, if there is one."""
        return self.target_s is None or self.median_s <= self.target_s


class Repetition(msgspec.Struct, frozen=True, kw_only=True):
    """The same run several times: how many different digests, and how many runs were broken."""

    what: str
    runs: int
    digests: int
    broken: int
    error: str | None = None
    target: int = DIGESTS

    @property
    def met(self) -> bool:
        """Whether every run left a verdict and no more digests than allowed."""
        return self.digests <= self.target and not self.broken


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """All that was measured; ``missed`` has a sentence for each target that was not met."""

    schema_version: int = SCHEMA_VERSION
    started: str
    machine: MachineRecord
    guest_kernel: str
    timings: list[Timing]
    repetitions: list[Repetition]
    missed: list[str]


def bench(toolchain: Toolchain, effort: Effort, say: Say) -> Bench:
    """Measure everything.

    :param say: told what is being measured, a line each.
    :raise TestbedError: something could not be measured at all.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    machine = describe_machine(toolchain)
    words = run_words(probe(toolchain).name)
    kernel = resolve()
    with runtime_directory() as directory:
        seconds = _boots(toolchain, kernel, directory, effort, say)
        seconds |= _whole_runs(words, directory, effort, say)
    timings = summarise(seconds, words)
    repetitions = [_repeat(toolchain, kernel, *case, effort.repetitions, say) for case in CASES]
    return Bench(
        started=started,
        machine=machine,
        guest_kernel=f"{kernel.release} ({kernel.package})",
        timings=timings,
        repetitions=repetitions,
        missed=missed_targets(timings, repetitions),
    )


def describe_machine(toolchain: Toolchain) -> MachineRecord:
    """Return what this machine is, as far as timings depend on it."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name"))
    version = toolchain.run(["qemu-system-x86_64", "--version"], timeout_s=30).splitlines()[0]
    found = probe(toolchain)
    return MachineRecord(
        cpu=next(models, platform.machine()),
        cores=len(os.sched_getaffinity(0)),
        memory_mib=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        qemu=version.removeprefix("QEMU emulator version "),
        accelerator=f"{found.name} ({found.why}); measured: tcg",
        load=round(os.getloadavg()[0], 2),
    )


def run_words(accelerator: str) -> list[str]:
    """Return the command that is timed as a whole, without the name of the program.

    Where KVM works, virtual time must be asked for; else it is the default.
    """
    return ["run", "ring-full", "--nic", NIC, *(("--clock", "virtual") if accelerator != "tcg" else ())]


_WHAT = {
    PLAIN: "QEMU with the same kernel and busybox, from its start to the shell's prompt; no icount, no NIC",
    BOOT: "QEMU's start to a ready agent, virtual time",
    SAVE: "saving the ready guest",
    RESTORE: "QEMU's start to a loaded guest",
    FIRST_RUN: "the command `{}`, without a snapshot",
    RUN: "the command `{}`, with a snapshot",
}


def summarise(seconds: dict[str, list[float]], words: Sequence[str]) -> list[Timing]:
    """Return a timing for each name, in the order of the names; those of the plain boot must be among them.

    :param words: the command that was timed as a whole.
    """
    plain = statistics.median(seconds[PLAIN])
    return [
        Timing(
            name=name,
            what=_WHAT[name].format(" ".join(("testbed", *words))),
            seconds=[round(each, 3) for each in samples],
            median_s=round(statistics.median(samples), 3),
            ratio=round(statistics.median(samples) / plain, 3),
            target_s=TARGETS_S.get(name),
        )
        for name, samples in seconds.items()
    ]


def missed_targets(timings: Sequence[Timing], repetitions: Sequence[Repetition]) -> list[str]:
    """Return a sentence for each target that was not met."""
    slow = [
        f"{each.name} took {each.median_s:g} s, target {each.target_s:g} s"
        for each in timings
        if not each.met
    ]
    return slow + [_missed(each) for each in repetitions if not each.met]


def _missed(repetition: Repetition) -> str:
    if repetition.broken:
        return f"{repetition.what}: {repetition.broken} of {repetition.runs} runs broken: {repetition.error}"
    return f"{repetition.what}: {repetition.digests} different digests in {repetition.runs} runs, expected 1"


# Boots, snapshots and restores


def _boots(
    toolchain: Toolchain, kernel: Kernel, directory: Path, effort: Effort, say: Say
) -> dict[str, list[float]]:
    """Measure plain and our own boots in turn, so that whatever slows the machine slows both alike."""
    seconds: dict[str, list[float]] = {PLAIN: [], BOOT: [], SAVE: [], RESTORE: []}
    made = blueprint_of(toolchain, kernel, nic.get(NIC), Shape(accelerator="tcg", clock="virtual"))
    initramfs = _shell_image(toolchain, directory)
    state = directory / "state"
    for number in range(1, effort.boots + 1):
        say(f"booting, {number} of {effort.boots}")
        seconds[PLAIN].append(plain_boot(toolchain, kernel.vmlinuz, initramfs))
        with _place(directory) as place:
            booted, saved = _boot_and_save(toolchain, made, place, state)
        seconds[BOOT].append(booted)
        seconds[SAVE].append(saved)
    say(f"restoring {effort.restores} times")
    for _ in range(effort.restores):
        with _place(directory) as place:
            seconds[RESTORE].append(_restore(toolchain, made, place, state))
    return seconds


def _shell_image(toolchain: Toolchain, directory: Path) -> Path:
    busybox = toolchain.file("/usr/bin/busybox").read_bytes()
    path = directory / "shell.cpio"
    with host_errors(path):
        path.write_bytes(archive({"bin/sh": (0o755, busybox)}, devices={"dev/console": (5, 1)}))
    return path


@contextmanager
def _place(directory: Path) -> Iterator[Path]:
    """Give a machine a directory of its own; its logs are not kept."""
    place = directory / "machine"
    with host_errors(place):
        place.mkdir(exist_ok=True)
    yield place
    for path in place.iterdir():
        path.unlink()


def plain_boot(
    toolchain: Toolchain, kernel: Path, initramfs: Path, limit_s: float = PLAIN_BOOT_LIMIT_S
) -> float:
    """Return how long QEMU takes from its start to the prompt of a shell, in seconds.

    :raise BootError: there was none within ``limit_s``.
    """
    command = [
        *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "1", "-m", "256M"),
        *("-kernel", str(kernel), "-initrd", str(initramfs)),
        *("-append", "console=ttyS0 rdinit=/bin/sh"),
        *("-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"),
    ]
    argv = toolchain.argv(command, read=[kernel, initramfs])
    since = time.monotonic()
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        limit = threading.Timer(limit_s, process.kill)
        limit.start()
        try:
            log = _read_until_prompt(process.stdout)
            took = time.monotonic() - since
        finally:
            limit.cancel()
            process.kill()
    if PROMPT not in log:
        last = log.decode(errors="replace").strip().splitlines()[-1:] or ["none"]
        raise BootError(
            f"a plain boot showed no shell within {limit_s:g} s; last line of its log: {last[0]}",
            "see testbed doctor",
        )
    return took


def _read_until_prompt(stream: IO[bytes] | None) -> bytes:
    """Return what comes up to the prompt, or all of it when none comes."""
    log = b""
    while stream and PROMPT not in log and (more := os.read(stream.fileno(), 65536)):
        log += more
    return log


def _boot_and_save(toolchain: Toolchain, made: Blueprint, place: Path, state: Path) -> tuple[float, float]:
    since = time.monotonic()
    with Machine(toolchain, made, place) as machine:
        Guest.boot(machine)
        booted = time.monotonic() - since
        since = time.monotonic()
        machine.save(place / state.name)
        saved = time.monotonic() - since
    (place / state.name).replace(state)
    return booted, saved


def _restore(toolchain: Toolchain, made: Blueprint, place: Path, state: Path) -> float:
    since = time.monotonic()
    with Machine(toolchain, made, place, state):
        return time.monotonic() - since


# Whole runs


@contextmanager
def private_cache(directory: Path) -> Iterator[Path]:
    """Give a cache that shares all that is in the user's, but has no snapshots."""
    cache = directory / "cache"
    with host_errors(cache):
        cache.mkdir()
        for entry in cache_dir().iterdir():
            if entry.name not in {"run", "snapshots"}:
                (cache / entry.name).symlink_to(entry)
    yield cache


def _whole_runs(words: Sequence[str], directory: Path, effort: Effort, say: Say) -> dict[str, list[float]]:
    with private_cache(directory) as cache:
        say("running without a snapshot")
        first = [whole_run(words, cache)]
        say(f"running with a snapshot, {effort.runs} times")
        return {FIRST_RUN: first, RUN: [whole_run(words, cache) for _ in range(effort.runs)]}


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


# The same run again and again


def _repeat(
    toolchain: Toolchain, kernel: Kernel, scenario: str, variant: str, times: int, say: Say
) -> Repetition:
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
