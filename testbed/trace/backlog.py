"""Bursts that lay in the NIC's Rx ring as a whole when the driver met their first frame.

In virtual time all frames of a barrier enter the NIC at one instant. When its driver then hands over the first
of them, as many of the others are waiting behind it as found a free descriptor. In real time frames trickle in
while the driver polls, and nothing like this can be said.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from testbed.scenario.program import StepKind
from testbed.trace.events import Kind
from testbed.trace.handover import handed_over, sequences_of
from testbed.trace.once import once
from testbed.trace.polls import RECONFIGURING
from testbed.trace.pool import usable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from testbed.trace.table import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["Burst", "bursts"]


@dataclasses.dataclass(frozen=True, eq=False)
class Burst:
    """One burst.

    :param napi: the NAPI that polls for it.
    :param waiting: how many of its frames lay in the ring at least when the first was handed over.
    :param frames: the rows at which those were handed over; fewer than ``waiting`` when some never were.
    :param end: the row at which the ring was taken down or the trace ended.
    """

    napi: int
    waiting: int
    frames: Rows
    end: int


@once
def bursts(trace: Trace) -> tuple[Burst, ...]:
    """Return the bursts that met a ring without older frames, polled for by one NAPI alone."""
    return tuple(_bursts(trace))


def _bursts(trace: Trace) -> Iterator[Burst]:
    frames = handed_over(trace)
    frames = frames[trace.polls.owner[frames] >= 0]
    napis = np.unique(trace.polls.napi[trace.polls.owner[frames]])
    if trace.clock != "virtual" or len(napis) != 1:
        return
    sequences = sequences_of(trace, frames)
    first = 0
    for step, count in trace.bursts:
        entry = _entry(trace, step, frames, sequences == first)
        at = int(np.searchsorted(frames, entry)) if entry >= 0 else len(frames)
        if at < len(frames) and sequences[at] == first:
            count_in_ring = min(count, _put_by_device(trace, step, int(frames[at]), count))
            burst = _burst(trace, int(napis[0]), entry, frames[at:], count_in_ring)
            if burst:
                own = (sequences[at:] >= first) & (sequences[at:] < first + count)
                own &= frames[at:] < burst.end
                yield dataclasses.replace(burst, frames=_once(frames[at:][own], sequences[at:][own], burst))
        first += count


def _put_by_device(trace: Trace, step: int, first: int, unknown: int) -> int:
    """Return how many descriptors a device that tells had completed between a barrier and its first frame's row."""
    done = trace.rows(Kind.RX_DONE)
    if not len(done):
        return unknown
    begins = trace.rows(Kind.STEP_BEGIN, subject=step)
    return int(((done > begins[0]) & (done < first)).sum()) if len(begins) else unknown


def _entry(trace: Trace, step: int, frames: Rows, is_first: npt.NDArray[np.bool_]) -> int:
    """Return the row behind which a barrier's frames are handed over, -1 when the barrier never ended.

    That is where the barrier ends, unless the device put them into the ring while the machine stood still and the
    driver came for them at once.
    """
    ends, begins = trace.rows(Kind.STEP_END, subject=step), trace.rows(Kind.STEP_BEGIN, subject=step)
    if not len(ends):
        return -1
    early = is_first & (frames > begins[0]) & (frames < ends[0]) if len(begins) else is_first & False
    return int(frames[early][0]) - 1 if early.any() else int(ends[0])


def _burst(trace: Trace, napi: int, barrier: int, frames: Rows, count: int) -> Burst | None:
    """Return the burst that entered behind ``barrier``, of which ``frames`` begins with the first."""
    end = _taken_down(trace, barrier)
    if end < frames[0]:
        return None
    if trace.zero_copy and not trace.generic_xdp:
        room = int(usable(trace, barrier))
    else:
        # Drivers refill in batches: an idle ring of theirs is never less than half full.
        room = (trace.number("rx_ring") or 0) // 2
    waiting = min(count, room)
    return Burst(napi, waiting, frames[:0], end) if waiting > 0 else None


def _taken_down(trace: Trace, barrier: int) -> int:
    disabled = trace.rows(Kind.DISABLE)
    begins = trace.rows(Kind.STEP_BEGIN)
    begins = begins[np.isin(trace.events["a"][begins], [*RECONFIGURING, StepKind.UMEM])]
    later = np.sort(np.concatenate([disabled, begins]))
    later = later[later > barrier]
    return int(later[0]) if len(later) else len(trace.events)


def _once(rows: Rows, sequences: npt.NDArray[np.int64], burst: Burst) -> Rows:
    """Return the first hand-over of each frame, as many as were waiting."""
    return np.sort(rows[np.unique(sequences, return_index=True)[1]])[: burst.waiting]
