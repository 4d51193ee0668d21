"""What was measured, as data; and what it should have been."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

__all__ = [
    "BOOT",
    "CASES",
    "DIGESTS",
    "FIRST_RUN",
    "FULL",
    "IDLE_TARGET_PERCENT",
    "LIBRARY",
    "MMIO_READ_TARGET_US",
    "NIC",
    "PLAIN",
    "QUICK",
    "RESTORE",
    "RUN",
    "SAVE",
    "SCHEMA_VERSION",
    "TARGETS_S",
    "Bench",
    "Effort",
    "MachineRecord",
    "ModelRecord",
    "Repetition",
    "Timing",
]

SCHEMA_VERSION = 1
NIC = "igb"

PLAIN, BOOT, SAVE, RESTORE = "plain boot", "boot", "save", "restore"
FIRST_RUN, RUN = "first run", "run"
LIBRARY = "library"

TARGETS_S = {RESTORE: 0.3, RUN: 4.0, FIRST_RUN: 20.0, LIBRARY: 240.0}
"""Seconds that the median of a timing may take, on two cores under TCG."""
MMIO_READ_TARGET_US = 20.0
"""Microseconds that QEMU may take for a read of one of the model's registers."""
IDLE_TARGET_PERCENT = 0.5
"""What the model may take of a core while the guest sleeps: 0, when rounded."""
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


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A device model of ours, in real time: what reading a register takes, and what of a core it takes when idle."""

    nic: str
    mmio_read_us: list[float]
    median_us: float
    idle_cpu_percent: float
    target_us: float = MMIO_READ_TARGET_US
    target_percent: float = IDLE_TARGET_PERCENT


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """All that was measured; ``missed`` has a sentence for each target that was not met."""

    schema_version: int = SCHEMA_VERSION
    started: str
    machine: MachineRecord
    guest_kernel: str
    timings: list[Timing]
    repetitions: list[Repetition]
    model: ModelRecord
    missed: list[str]
