"""How many guests a pytest session may have at once, whatever number of xdist workers it has."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GuestSlot", "guests_carried"]

_MIB_PER_GUEST = 600  # QEMU, its device model, and what judges it


def guests_carried() -> int:
    """Return how many guests this machine carries: by its cores, and by the memory that is free now."""
    free = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    by_memory = int(free[1]) // 1024 // _MIB_PER_GUEST if free else 1
    return max(1, min(len(os.sched_getaffinity(0)), by_memory))


class GuestSlot:
    """The right to have a guest. Workers share a slot when there are more of them than guests; one has it at a time.

    A test that has it already gets it again: a guest and a run beside each other in one test count once.

    :param file: the slot's lock, which ends with the process.
    """

    def __init__(self, file: Path) -> None:
        self._lock = filelock.FileLock(file)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the slot, and have it in the block."""
        with self._lock:
            yield
