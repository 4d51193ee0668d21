"""What a snapshot must hold of a NIC that a device model plays, for QEMU's own holds nothing.

The model's state goes over the control channel. What the guest has set in the configuration space is read through
QEMU's monitor, and written back in the order that the model's server names: QEMU and the server both learn of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from testbed.errors import GuestLost
from testbed.guest.qemu import MODEL_SLOT
from testbed.vfio_user.control import Load, RestoreTable, Save

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.guest.model import DeviceModel
    from testbed.guest.monitor import Monitor

__all__ = ["restore_device", "save_device"]

ADDRESS_PORT, DATA_PORT = 0xCF8, 0xCFC
CONFIG_ADDRESS = 1 << 31 | MODEL_SLOT << 11


class _Saved(msgspec.Struct):
    """A device at rest: the model's own state, and (offset, value) of its configuration space."""

    state: bytes
    config: list[tuple[int, int]]


def save_device(monitor: Monitor, model: DeviceModel, machine_state: Path) -> None:
    """Write the device of a stopped machine to a file beside the machine's own.

    :raise GuestLost: model or QEMU could not.
    """
    answer = model.ask(Save())
    latch = _read_port(monitor, ADDRESS_PORT)
    config = [(offset, _read_config(monitor, offset)) for offset in answer.dwords]
    _write_port(monitor, ADDRESS_PORT, latch)
    _file(machine_state).write_bytes(msgspec.json.encode(_Saved(answer.state, config)))


def restore_device(monitor: Monitor, model: DeviceModel, machine_state: Path) -> None:
    """Make the device of a machine whose state was just loaded what it was.

    :raise GuestLost: model or QEMU could not.
    """
    saved = msgspec.json.decode(_file(machine_state).read_bytes(), type=_Saved)
    model.ask(Load(saved.state))
    latch = _read_port(monitor, ADDRESS_PORT)
    *first, last = saved.config
    for offset, value in first:
        if value:  # what is 0 is so already
            _write_config(monitor, offset, value)
    model.ask(RestoreTable())
    _write_config(monitor, *last)
    _write_port(monitor, ADDRESS_PORT, latch)


def _file(machine_state: Path) -> Path:
    return machine_state.with_name(f"{machine_state.name}.device")


def _read_config(monitor: Monitor, offset: int) -> int:
    _write_port(monitor, ADDRESS_PORT, CONFIG_ADDRESS | offset)
    return _read_port(monitor, DATA_PORT)


def _write_config(monitor: Monitor, offset: int, value: int) -> None:
    _write_port(monitor, ADDRESS_PORT, CONFIG_ADDRESS | offset)
    _write_port(monitor, DATA_PORT, value)


def _read_port(monitor: Monitor, port: int) -> int:
    said = str(monitor.execute("human-monitor-command", command_line=f"i /w {port:#x}"))
    found = re.search(r"=\s*(0x[0-9a-f]+)", said)
    if not found:
        raise GuestLost(f"expected the value of port {port:#x} from QEMU's monitor, seen {said.strip()!r}")
    return int(found[1], 16)


def _write_port(monitor: Monitor, port: int, value: int) -> None:
    monitor.execute("human-monitor-command", command_line=f"o /w {port:#x} {value:#x}")
