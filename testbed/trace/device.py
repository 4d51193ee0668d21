"""The device's half of a trace, put among the guest's rows.

A device model writes a table of its own and notes with each row how many events the guest had written by then
(:mod:`testbed.vfio_user.events`). So a device's row stands between the two rows of the guest that it happened between,
and several of them in the order in which the device wrote them. Its time is that of the guest's row before it, because
the two clocks have nothing to do with each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.errors import GuestLost
from testbed.trace.events import EVENT, Kind

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["DEVICE_CPU", "with_device_rows"]

DEVICE_CPU = 255  # no CPU of the guest's did it
_ROW = np.dtype(
    [
        ("time_ns", "<u8"),
        ("after", "<u4"),
        ("kind", "<u2"),
        ("queue", "<u2"),
        ("a", "<u4"),
        ("b", "<u4"),
        ("c", "<u8"),
    ]
)  # testbed.vfio_user.events.ROW


def with_device_rows(events: npt.NDArray[np.void], data: bytes) -> npt.NDArray[np.void]:
    """Return the table with the device's rows where they belong.

    :param events: the guest's table, complete and in order.
    :raise GuestLost: a row's kind is none we know.
    """
    device = np.frombuffer(data, dtype=_ROW)
    if not len(device):
        return events
    unknown = ~np.isin(device["kind"], [kind for kind in Kind if kind >= Kind.RX_DONE])
    if unknown.any():
        seen = int(device["kind"][unknown][0])
        raise GuestLost(f"the device model recorded an event of the unknown kind {seen}", "see DeviceEvent")
    after = np.minimum(np.maximum.accumulate(device["after"]), len(events)).astype(np.intp)
    rows = np.zeros(len(device), dtype=EVENT)
    if len(events):
        rows["time_ns"] = events["time_ns"][np.maximum(after - 1, 0)]
    rows["cpu"] = DEVICE_CPU
    rows["kind"], rows["subject"], rows["c"] = device["kind"], device["queue"], device["c"]
    for name in ("a", "b"):
        rows[name] = device[name].astype(np.int32)
    return np.insert(events, after, rows)
