"""What the driver is seen to do in its polls: frames it hands over, buffers and Tx entries it moves.

A numbered frame shows twice: our XDP program records a VERDICT and, where it goes on to the stack, the driver a
STACK_RX. Which of the two comes first is which of the two the driver does: with native XDP it runs the program
and then builds an skb; with generic XDP, or with no program, it hands over an skb and whatever else happens to
it, happens in the stack, perhaps behind the poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.scenario.program import Verdict
from testbed.trace.events import Kind
from testbed.trace.once import once

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace.table import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["handed_over", "moved", "refills_short", "sequences_of", "unseen_sends"]


@once
def handed_over(trace: Trace) -> Rows:
    """Return the rows, ascending, at which the driver hands over a frame; no frame has two.

    Before 6.8 a refused frame is offered again: each time is a row.
    """
    foreign = trace.rows(Kind.STACK_RX, b=0)
    rows = np.sort(np.concatenate([trace.rows(Kind.VERDICT), trace.rows(Kind.STACK_RX, b=1)]))
    if not len(rows):
        return foreign
    _, first, which = np.unique(trace.field("c", rows), return_index=True, return_inverse=True)
    drivers = trace.kind[rows] == trace.kind[rows[first]][which]
    return np.sort(np.concatenate([rows[drivers], foreign]))


def sequences_of(trace: Trace, rows: Rows) -> npt.NDArray[np.int64]:
    """Return the sequence numbers of hand-overs, -1 for frames that have none."""
    foreign = (trace.kind[rows] == Kind.STACK_RX) & (trace.events["b"][rows] == 0)
    return np.where(foreign, -1, trace.field("c", rows))


def moved(trace: Trace) -> Rows:
    """Return the rows, ascending, that show a driver move something on: a frame handed over, redirected or
    reaped, a Tx entry taken or reported sent, a buffer got from the pool. A frame offered again is none.
    """
    frames = handed_over(trace)
    sequence = sequences_of(trace, frames)
    new = np.zeros(len(frames), dtype=np.bool_)
    new[np.unique(sequence, return_index=True)[1]] = True
    parts = [frames[new | (sequence < 0)], trace.rows(Kind.SKB_REAPED)]
    if not trace.generic_xdp:
        parts.append(trace.rows(Kind.REDIRECT, a=0))
    for kind in (Kind.XSK_TX_TAKEN, Kind.XSK_TX_DONE, Kind.XSK_ALLOC):
        rows = trace.rows(kind)
        parts.append(rows[trace.events["a"][rows] > 0])
    return np.sort(np.concatenate(parts))


def refills_short(trace: Trace) -> Rows:
    """Return the XSK_ALLOC rows in which the pool gave less than was asked for."""
    rows = trace.rows(Kind.XSK_ALLOC)
    short: Rows = rows[trace.events["a"][rows] < trace.events["b"][rows]]
    return short


def unseen_sends(trace: Trace) -> Rows:
    """Return the rows of frames whose clean-up after sending leaves no event: a poll may do it unseen.

    xdp_return_frame() is not watched. A driver that frees its skbs with napi_consume_skb() is; one of which no
    SKB_REAPED is seen may free them otherwise.
    """
    parts = [trace.rows(Kind.VERDICT, subject=Verdict.TX)]
    if not len(trace.rows(Kind.SKB_REAPED)):
        parts.append(trace.rows(Kind.STACK_TX, b=0))
        if not trace.zero_copy:
            parts.append(trace.rows(Kind.TX))  # copy mode sends skbs, past the tracepoint of STACK_TX
    return np.sort(np.concatenate(parts))
