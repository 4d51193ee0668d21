"""The digest of an event sequence: equal inputs in virtual time give equal digests."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from testbed.trace.events import Kind

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["sequence_digest", "sequence_values"]

_VALUES = np.dtype([("kind", "<u2"), ("subject", "<u4"), ("a", "<i4"), ("b", "<i4"), ("c", "<u8")])
_NAPI_KINDS = (
    Kind.SCHEDULE,
    Kind.POLL,
    Kind.COMPLETE,
    Kind.WATCHDOG,
    Kind.DISABLE,
    Kind.DISABLED,
    Kind.ENABLE,
    Kind.NAPI_ID,
)

_ADDRESSED = (Kind.RX_DONE, Kind.TX_DONE)  # what a device did with a buffer: c is where that lies


def sequence_digest(events: npt.NDArray[np.void]) -> str:
    """Return the SHA-256, in hexadecimal, over what :func:`sequence_values` returns."""
    return hashlib.sha256(sequence_values(events)[1].tobytes()).hexdigest()


def sequence_values(events: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.void]]:
    """Return what makes two runs the same: kind, subject, a, b and c of the rows in their order.

    Left out are times, CPUs and flags, and the rows of kind LOG, whose line numbers depend on what else the
    kernel had to say. napi_ids and interrupt numbers are replaced by the order of their first appearance:
    they depend on what was set up before the run, not on what the driver did in it. Addresses of buffers count as 0.

    :return: the rows that count, and their values; both of shape ``(m,)``.
    """
    counting = np.flatnonzero(events["kind"] != Kind.LOG)
    rows = events[counting]
    values = np.zeros(len(rows), dtype=_VALUES)
    for name in _VALUES.names or ():
        values[name] = rows[name]
    values["c"][np.isin(rows["kind"], _ADDRESSED)] = 0
    for kinds in (_NAPI_KINDS, (Kind.IRQ,)):
        which = np.isin(rows["kind"], kinds)
        values["subject"][which] = _by_appearance(rows["subject"][which])
    return counting, values


def _by_appearance(names: npt.NDArray[np.uint32]) -> npt.NDArray[np.intp]:
    _, first, which = np.unique(names, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[which]
