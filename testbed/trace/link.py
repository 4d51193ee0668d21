"""When the link was surely up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.trace.events import Kind

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace.table import Trace

__all__ = ["link_up_at"]

#: The driver learns late that a cable was pulled: so long before that the link may have been down.
_LATE_NS = 100_000_000


def link_up_at(trace: Trace, rows: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Say for each row whether host, driver and device all have the link up then, and no loss of it was found soon
    after. What leaves the driver otherwise may be lost without anybody's fault.
    """
    at = np.asarray(rows, dtype=np.intp)
    up = np.ones(at.shape, dtype=np.bool_)
    carrier = trace.rows(Kind.CARRIER)
    changes = [(int(row), bool(trace.events["a"][row] == 1)) for row in carrier]
    begins = trace.rows(Kind.STEP_BEGIN)
    host = [
        (int(row), on) for step, on in trace.links for row in begins[trace.events["subject"][begins] == step]
    ]
    device = [(int(row), bool(trace.events["a"][row] == 1)) for row in trace.rows(Kind.LINK)]
    for states in (changes, sorted(host), device):
        before = np.searchsorted(np.array([row for row, _ in states], dtype=np.intp), at)
        up &= np.array([True, *(on for _, on in states)])[before]
    times = trace.events["time_ns"].astype(np.int64)
    for lost in carrier[trace.events["a"][carrier] == 0]:
        up &= (at > lost) | (times[at] < times[lost] - trace.patience_ns(_LATE_NS))
    return up
