"""The machine that is measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.bench.records import MachineRecord
from testbed.guest import probe

if TYPE_CHECKING:
    from testbed.toolchain import Toolchain

__all__ = ["describe_machine"]


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
