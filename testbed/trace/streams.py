"""What a driver and its user did, each in its order, without when: what two runs are compared by.

The digest stands for everything, also for which of two independent things came first, and for polls that found
nothing to do. Those depend on the time that each instruction took, and a change of one line moves them all. So a
comparison looks at two streams: what the driver did in polls that did something, and what user space did. When both are
equal, the runs differ in timing only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from testbed.trace.events import Kind

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace.table import Trace

    Rows = npt.NDArray[np.intp]
    Mask = npt.NDArray[np.bool_]

__all__ = ["STREAMS", "Stream", "streams_of"]

Stream = Literal["driver", "user space"]
STREAMS: tuple[Stream, ...] = ("driver", "user space")
#: Why a poll happens, not what it does.
_CAUSES = (Kind.IRQ, Kind.SCHEDULE, Kind.WATCHDOG, Kind.LOG)
#: What every poll does, also one that finds nothing.
_ROUTINE = (*_CAUSES, Kind.COMPLETE, Kind.POLL, Kind.FLUSH)


def streams_of(trace: Trace) -> dict[Stream, Rows]:
    """Return the rows of each stream, ascending."""
    kind = trace.kind
    observed = (kind >= Kind.IRQ) & (kind < Kind.RX_DONE)  # what a device model did is the device's
    counts = ~np.isin(kind, _CAUSES) & ~_repeated_marks(trace)
    in_idle = np.append(_idle_polls(trace, counts), False)[trace.polls.owner]
    return {
        "driver": np.flatnonzero(observed & counts & ~in_idle),
        "user space": np.flatnonzero(kind < Kind.IRQ),
    }


def _idle_polls(trace: Trace, counts: Mask) -> Mask:
    """Say which polls did no work, completed once, and did nothing besides."""
    polls = trace.polls
    effects = polls.count(np.flatnonzero(counts & ~np.isin(trace.kind, _ROUTINE)))
    idle: Mask = (polls.work == 0) & (polls.completes == 1) & (effects == 0)
    return idle


def _repeated_marks(trace: Trace) -> Mask:
    """Say which rows set need_wakeup of a ring to what it was."""
    repeated = np.zeros(len(trace.events), dtype=np.bool_)
    rows = trace.rows(Kind.NEED_WAKEUP)
    ring = trace.field("subject", rows) << 32 | trace.field("b", rows)
    value = trace.field("a", rows)
    for each in np.unique(ring):
        own = ring == each
        repeated[rows[own][1:]] = value[own][1:] == value[own][:-1]
    return repeated
