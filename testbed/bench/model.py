"""The device model of ours: what an access to it costs, and what it takes while nothing happens.

In real time: in virtual time the model has no time of its own.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed import nic
from testbed.bench.records import ModelRecord
from testbed.errors import GuestLost
from testbed.guest import Shape, running
from testbed.preparation import ready_guest

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.bench.records import Effort
    from testbed.guest import Guest
    from testbed.kernel import Kernel
    from testbed.toolchain import Toolchain

__all__ = ["bar_address", "measure_model"]

MODEL_NIC = "stmmac"
_IDENTITY = {"vendor": 0x8086, "device": 0x4B30}
_READS = 4096
_RAM_ADDRESS = 0x100000
_IDLE_S = 5.0


def measure_model(
    toolchain: Toolchain, kernel: Kernel, effort: Effort, say: Callable[[str], None]
) -> ModelRecord:
    """Measure a guest that has nothing to do: QEMU reads registers, and then nobody does anything."""
    say(f"reading registers of {MODEL_NIC}, and leaving it alone")
    shape = Shape(accelerator="tcg", clock="real")
    with ready_guest(toolchain, kernel, nic.get(MODEL_NIC), shape) as guest, running(guest):
        address = bar_address(guest.machine.monitor.execute("query-pci"))
        reads = [_read_us(guest, address) for _ in range(effort.restores)]
        idle = _busy_percent(guest)
    return ModelRecord(
        nic=MODEL_NIC,
        mmio_read_us=[round(each, 2) for each in reads],
        median_us=round(statistics.median(reads), 2),
        idle_cpu_percent=round(idle, 1),
    )


def bar_address(buses: list[dict[str, Any]]) -> int:
    """Return where the model's registers lie in the guest's memory, by QEMU's answer to query-pci.

    :raise GuestLost: the guest has no such device.
    """
    pending = list(buses)
    while pending:
        bus = pending.pop()
        for device in bus.get("devices", []):
            if device["id"] == device["id"] | _IDENTITY:
                return int(next(each["address"] for each in device["regions"] if each["bar"] == 0))
            pending += [device["pci_bridge"]] if "pci_bridge" in device else []
    raise GuestLost(f"QEMU shows no PCI device {_IDENTITY['vendor']:04x}:{_IDENTITY['device']:04x}")


def _read_us(guest: Guest, address: int) -> float:
    """Return how long QEMU takes for one read of a register, by many; what its monitor takes for them is left out."""
    return (_dump_s(guest, address) - _dump_s(guest, _RAM_ADDRESS)) / _READS * 1e6


def _dump_s(guest: Guest, address: int) -> float:
    since = time.monotonic()
    guest.machine.monitor.execute("human-monitor-command", command_line=f"xp /{_READS}xw {address:#x}")
    return time.monotonic() - since


def _busy_percent(guest: Guest) -> float:
    """Return which part of a core the model takes while the guest sleeps."""
    model = guest.machine.model
    if model is None:
        raise GuestLost(f"no device model plays {MODEL_NIC}")
    before, since = _cpu_ns(model.pid), time.monotonic_ns()
    time.sleep(_IDLE_S)
    return (_cpu_ns(model.pid) - before) / (time.monotonic_ns() - since) * 100


def _cpu_ns(pid: int) -> int:
    """Return how long a process has had a CPU, over all its threads."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)
