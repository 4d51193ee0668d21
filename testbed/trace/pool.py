"""What a zero-copy socket's queue holds, counted from the events: buffers on the way in, entries on the way out.

The counts are of the driver's side: what it took from the pool, from the TX ring, what it handed over and
reported sent. They are exact where the trace shows everything that changes them; where it may not, they are
:data:`UNKNOWN` or err to the side that its function names.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import numpy as np

from testbed.scenario.program import StepKind, Verdict
from testbed.trace.events import Kind, XdpStatistics
from testbed.trace.handover import handed_over, unseen_sends
from testbed.trace.once import once

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace.table import Trace

    Rows = npt.NDArray[np.intp]
    Numbers = npt.NDArray[np.int64]

__all__ = [
    "UNKNOWN",
    "available",
    "free_tx_slots",
    "outstanding",
    "published",
    "sendable",
    "unused",
    "usable",
]

UNKNOWN = -1
#: A frame of the stack may take a context descriptor, its head and the parts of its tail.
SKB_SLOTS = 4


def usable(trace: Trace, rows: npt.ArrayLike) -> Numbers:
    """Return for each row how many Rx descriptors have a buffer, or :data:`UNKNOWN`.

    Counted since the queue's NAPI was last disabled: a driver that takes its ring down frees every buffer. Without a
    socket the driver has buffers of its own.
    """
    return _left(trace, rows, _consumed(trace))


def unused(trace: Trace, rows: npt.ArrayLike) -> Numbers:
    """Return for each row how many Rx descriptors with a buffer the device has not written to yet.

    Where the device tells of those it wrote to that is exact; else it is :func:`usable`, which counts what the driver
    has not looked at too.
    """
    queues = np.unique(trace.events["subject"][trace.rows(Kind.XSK_ALLOC)])
    written = trace.rows(Kind.RX_DONE)
    own: Rows = written[np.isin(trace.events["subject"][written], queues)]
    return _left(trace, rows, own) if len(own) else usable(trace, rows)


def _left(trace: Trace, rows: npt.ArrayLike, consumed: Rows | None) -> Numbers:
    """Return for each row how many of the buffers that the driver got since its ring was set up are not consumed."""
    at = np.asarray(rows, dtype=np.intp)
    allocated = trace.rows(Kind.XSK_ALLOC)
    if consumed is None or not len(allocated):
        return np.full(at.shape, UNKNOWN, dtype=np.int64)
    begin = _last_before(_taken_down(trace), at)
    bind = _last_before(trace.rows(Kind.STEP_BEGIN, a=StepKind.BIND), at)
    known = (bind >= 0) & (begin > bind) & (_last_before(_closings(trace), at) <= bind)
    given = _between(allocated, begin, at, trace.field("a", allocated))
    count: Numbers = np.where(known, given - _between(consumed, begin, at), UNKNOWN)
    return count


@once
def _taken_down(trace: Trace) -> Rows:
    """Return the rows at which the driver had taken down the ring of the socket's queue."""
    disabled = trace.rows(Kind.DISABLED)
    own = np.isin(trace.events["subject"][disabled], _serving(trace))
    rows: Rows = disabled[own | _before_the_first_buffer(trace, disabled, trace.rows(Kind.XSK_ALLOC))]
    return rows


@once
def _closings(trace: Trace) -> Rows:
    """Return the rows at which the agent begins to close its socket."""
    steps = trace.rows(Kind.STEP_BEGIN)
    rows: Rows = steps[np.isin(trace.events["a"][steps], (StepKind.UNBIND, StepKind.UMEM))]
    return rows


def _before_the_first_buffer(trace: Trace, rows: Rows, allocated: Rows) -> npt.NDArray[np.bool_]:
    """Say which rows lie in a bind that has not filled the ring yet.

    There the NAPI that is disabled may be another than the one that serves the socket later; behind, one that
    fills no Rx ring changes nothing.
    """
    begins, ends = trace.rows(Kind.STEP_BEGIN), trace.rows(Kind.STEP_END)
    step = _last_before(begins, rows)
    inside: npt.NDArray[np.bool_] = (step >= 0) & (trace.events["a"][step] == StepKind.BIND)
    inside &= (_last_before(ends, rows) < step) & (_last_before(allocated, rows) < step)
    return inside


def available(trace: Trace, rows: npt.ArrayLike) -> Numbers:
    """Return for each row how many buffers the driver could get from the pool at least, or a negative number
    where that is not known: posted to FILL or freed by the driver, neither on the NIC nor delivered.
    """
    at = np.asarray(rows, dtype=np.intp)
    on_nic = usable(trace, at)
    umem = _last_before(trace.rows(Kind.STEP_BEGIN, a=StepKind.UMEM), at)
    posted = _between(published(trace, Kind.FILL, StepKind.FILL), umem, at)
    delivered = _between(trace.rows(Kind.REDIRECT, a=0), umem, at)
    count: Numbers = np.where(on_nic >= 0, posted - delivered - on_nic, UNKNOWN)
    return count


def sendable(trace: Trace, rows: npt.ArrayLike) -> Numbers:
    """Return for each row how many entries of the TX ring the driver could take, at least: submitted and not
    taken, and no more than the COMPLETION ring surely has room for.
    """
    at = np.asarray(rows, dtype=np.intp)
    bind = _last_before(trace.rows(Kind.STEP_BEGIN, a=StepKind.BIND), at)
    taken_rows = trace.rows(Kind.XSK_TX_TAKEN)
    taken = _between(taken_rows, bind, at, trace.field("a", taken_rows))
    submitted = _between(published(trace, Kind.TX, StepKind.TX), bind, at)
    invalid = trace.field("c", trace.rows(Kind.XDP_STATISTICS, subject=XdpStatistics.TX_INVALID_DESCS))
    waiting = submitted - taken - int(invalid.max(initial=0))
    entries = trace.number("completion_entries")
    if entries is None:
        return np.zeros(at.shape, dtype=np.int64)
    drained = _between(published(trace, Kind.COMPLETION, StepKind.COMP_DRAIN), bind, at)
    count: Numbers = np.minimum(waiting, entries - (taken - drained)).clip(min=0)
    return count


def outstanding(trace: Trace, rows: npt.ArrayLike) -> Numbers:
    """Return for each row how many entries the driver took from TX and has not reported sent."""
    at = np.asarray(rows, dtype=np.intp)
    bind = _last_before(trace.rows(Kind.STEP_BEGIN, a=StepKind.BIND), at)
    taken, done = trace.rows(Kind.XSK_TX_TAKEN), trace.rows(Kind.XSK_TX_DONE)
    sent = _between(done, bind, at, trace.field("a", done))
    count: Numbers = (_between(taken, bind, at, trace.field("a", taken)) - sent).clip(min=0)
    return count


def free_tx_slots(trace: Trace, rows: npt.ArrayLike) -> Numbers:
    """Return for each row how many descriptors of the NIC's Tx ring are free, at least."""
    at = np.asarray(rows, dtype=np.intp)
    size = trace.number("tx_ring")
    if size is None:
        return np.zeros(at.shape, dtype=np.int64)
    start = np.full(at.shape, -1, dtype=np.intp)
    skbs = _between(trace.rows(Kind.STACK_TX, b=0), start, at)
    skbs -= _between(trace.rows(Kind.SKB_REAPED), start, at)
    others = SKB_SLOTS * skbs.clip(min=0) + _between(unseen_sends(trace), start, at)
    count: Numbers = size - 1 - outstanding(trace, at) - others
    return count


def published(trace: Trace, kind: Kind, step: StepKind) -> Rows:
    """Return, for each event of a kind that the agent makes in a kind of step, the row from which on the kernel
    surely sees it: the end of its step. The agent moves a ring's index after the last entry.
    """
    rows, begins, ends = trace.rows(kind), trace.rows(Kind.STEP_BEGIN, a=step), trace.rows(Kind.STEP_END)
    inside = np.searchsorted(begins, rows) > 0
    after = np.searchsorted(ends, rows)
    ended: Rows = ends[after[inside & (after < len(ends))]]
    return ended


@once
def _consumed(trace: Trace) -> Rows | None:
    """Return the rows at which a frame left the Rx ring of the socket's queue; None when that is not known."""
    polls = trace.polls
    rows = handed_over(trace)
    rows = rows[polls.owner[rows] >= 0]
    if len(trace.rows(Kind.REDIRECT, a=-errno.ENOBUFS)) and trace.kernel < (6, 8):
        return None  # the driver may keep the descriptor, and offer the frame again
    passed = trace.rows(Kind.VERDICT, subject=Verdict.PASS)
    if len(np.setdiff1d(trace.field("c", passed), trace.field("c", trace.rows(Kind.STACK_RX, b=1)))):
        return None  # no skb for some frame: it stayed in the ring
    own: Rows = rows[np.isin(polls.napi[polls.owner[rows]], _serving(trace))]
    return own


@once
def _serving(trace: Trace) -> Numbers:
    """Return the napi_ids of the NAPIs that fill Rx descriptors; a queue may have another one for Tx."""
    owner = trace.polls.owner[trace.rows(Kind.XSK_ALLOC)]
    napis: Numbers = np.unique(trace.polls.napi[owner[owner >= 0]])
    return napis


def _last_before(rows: Rows, at: Rows) -> Rows:
    """Return for each of ``at`` the last of ``rows`` (ascending) before it, or -1."""
    found: Rows = np.concatenate([[-1], rows])[np.searchsorted(rows, at)]
    return found


def _between(rows: Rows, begin: Rows, end: Rows, weights: Numbers | None = None) -> Numbers:
    """Return the sum of the weights (1 each by default) of ``rows`` (ascending) behind begin and before end."""
    sums = np.concatenate(
        [[0], np.cumsum(np.ones(len(rows), dtype=np.int64) if weights is None else weights)]
    )
    total: Numbers = sums[np.searchsorted(rows, end)] - sums[np.searchsorted(rows, begin, side="right")]
    return total
