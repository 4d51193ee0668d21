"""Boots of our guests beside plain ones, snapshots and restores."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from testbed import nic
from testbed.bench.records import BOOT, NIC, PLAIN, RESTORE, SAVE
from testbed.cache import host_errors
from testbed.errors import BootError
from testbed.guest import Guest, Shape
from testbed.guest.machine import Machine
from testbed.image.cpio import archive
from testbed.preparation import blueprint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from testbed.bench.records import Effort
    from testbed.guest import Blueprint
    from testbed.kernel import Kernel
    from testbed.toolchain import Toolchain

__all__ = ["measure_boots", "plain_boot"]

PLAIN_BOOT_LIMIT_S = 180.0
PROMPT = b"~ # "  # of busybox ash, for root at home


def measure_boots(
    toolchain: Toolchain, kernel: Kernel, directory: Path, effort: Effort, say: Callable[[str], None]
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
