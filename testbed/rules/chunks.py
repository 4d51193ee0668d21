"""Who owns a chunk of the UMEM: rule 24.

The rule does not rely on the agent's ledger alone. From the events of the table it works out again where
every chunk was, what the FILL ring can hold at most, and whether each frame read from the RX ring is the one
that was redirected into that place: a driver that posts a chunk a second time while its frame still waits
overwrites it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.scenario.program import StepKind
from testbed.trace.chunks import OWNING, owned_before, recycled, with_kernel
from testbed.trace.events import Kind, Ledger, Owner, Ring
from testbed.trace.frames import FOREIGN, redirected_frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["chunk_single_owner"]


@dataclasses.dataclass(frozen=True)
class _Breach:
    """One way in which the rule is broken, and the rows that show it: of the table, of the agent's ledger."""

    text: str
    table: Rows
    ledger: Rows

    @property
    def times(self) -> int:
        return max(len(self.table), len(self.ledger))


@rule(
    "chunk-single-owner",
    24,
    statement="Every chunk of the UMEM is in exactly one place: the kernel delivers or completes only what "
    "it was given, once for each time, and leaves alone what it delivered.",
    sources=[
        "Documentation/networking/af_xdp.rst, UMEM",
        "net/xdp/xsk.c, xsk_rcv(): from 6.8 on the core frees the buffer of a refused frame",
    ],
    needs="a chunk that was delivered, posted again and delivered again; or sent, completed, and both again",
    exceptions=[
        "the FILL ring's consumer index lags, but not behind what was delivered: xsk_flush() publishes both",
        "frames are compared with what was redirected only while one CPU fills one RX ring",
    ],
    unit="breaches",
)
def chunk_single_owner(trace: Trace) -> Finding:
    """Add up the ways in which it is broken, each by whichever saw more: the table or the agent's ledger."""
    breaches = [breach for breach in _breaches(trace) if breach.times]
    if breaches:
        rows = np.concatenate([part for breach in breaches for part in (breach.table[:6], breach.ledger[:6])])
        return violated(
            "; ".join(f"{breach.text}: {breach.times}" for breach in breaches),
            observed=sum(breach.times for breach in breaches),
            events=rows,
        )
    if not recycled(trace):
        return not_exercised("no chunk was used twice")
    chunks = len(np.unique(trace.field("subject", np.flatnonzero(np.isin(trace.kind, OWNING)))))
    return hold(f"{chunks} chunks, each with one owner")


def _breaches(trace: Trace) -> Iterator[_Breach]:
    late, again = _disorder(trace)
    received = trace.rows(Kind.RX)
    not_given = received[owned_before(trace, received, OWNING, Kind.FILL) < 0]
    completed = trace.rows(Kind.COMPLETION)
    not_sent = completed[owned_before(trace, completed, OWNING, Kind.TX) < 0]
    none = received[:0]
    yield _Breach("frames out of order", late, _ledger(trace, Ledger.OUT_OF_ORDER))
    yield _Breach("frames delivered twice", again, _ledger(trace, Ledger.DUPLICATE))
    yield _Breach("frames overwritten while they waited in the RX ring", _overwritten(trace), none)
    yield _Breach(
        "chunks returned that the kernel did not hold",
        np.concatenate([not_given, not_sent]),
        _ledger(trace, Ledger.TWICE, Ledger.NOT_KERNELS),
    )
    yield _Breach("frames changed while user space held them", none, _ledger(trace, Ledger.CHANGED))
    yield _Breach("frames damaged", _damaged(trace, received), _ledger(trace, Ledger.DAMAGED))
    yield _Breach("descriptors outside the UMEM", none, _ledger(trace, Ledger.BAD_ADDRESS))
    yield _Breach("FILL ring with more entries than chunks", _surplus(trace), _ledger(trace, Ledger.SURPLUS))
    yield _Breach("chunks missing or too many in the ledger", _unbalanced(trace), none)


def _ledger(trace: Trace, *found: Ledger) -> Rows:
    rows = trace.rows(Kind.LEDGER)
    return rows[np.isin(trace.events["a"][rows], found)]


def _damaged(trace: Trace, received: Rows) -> Rows:
    return received[trace.field("b", received) < 0]


def _disorder(trace: Trace) -> tuple[Rows, Rows]:
    """Return the deliveries of intact frames that came after a higher number, and those that came again.

    What came again is not also late. Frames of one queue keep the order in which the host numbered them.
    """
    rows = trace.rows(Kind.RX, b=1)
    sequences = trace.field("c", rows)
    _, first = np.unique(sequences, return_index=True)
    new = np.zeros(len(rows), dtype=np.bool_)
    new[first] = True
    late = sequences < np.maximum.accumulate(sequences)
    return rows[late & new], rows[~new]


def _overwritten(trace: Trace) -> Rows:
    """Return the RX rows whose frame is not the one that was redirected into that place of the ring.

    The ring is first in, first out, so the k-th successful redirect is the k-th frame read, socket by socket.
    """
    redirected = redirected_frames(trace)
    good = redirected.errno == 0
    into, sequence = redirected.row[good], redirected.sequence[good]
    received = trace.rows(Kind.RX)
    binds = trace.rows(Kind.STEP_BEGIN, a=StepKind.BIND)
    bad = [received[:0]]
    for socket in range(len(binds) + 1):
        filled = np.searchsorted(binds, into) == socket
        read = received[np.searchsorted(binds, received) == socket]
        expected = sequence[filled]
        one_cpu = len(np.unique(trace.events["cpu"][into[filled]])) == 1
        one_ring = len(np.unique(trace.events["subject"][into[filled]])) == 1
        if one_cpu and one_ring and len(read) <= len(expected):
            seen = np.where(trace.events["b"][read] == 1, trace.field("c", read), FOREIGN)
            known = (seen != FOREIGN) & (expected[: len(read)] != FOREIGN)
            bad.append(read[known & (seen != expected[: len(read)])])
    return np.concatenate(bad)


def _surplus(trace: Trace) -> Rows:
    """Return the readings of the FILL ring that show more entries than the kernel was given chunks."""
    rows = trace.rows(Kind.RING, subject=Ring.FILL)
    entries = (trace.field("a", rows) - trace.field("b", rows)) & 0xFFFFFFFF
    surplus: Rows = rows[entries > with_kernel(trace, rows)]
    return surplus


def _unbalanced(trace: Trace) -> Rows:
    """Return the readings of the ledger whose sum is not the UMEM's number of chunks."""
    chunks = trace.number("umem_chunks")
    rows = trace.rows(Kind.OWNERS)
    whole = len(rows) - len(rows) % len(Owner)
    if chunks is None or not whole:
        return rows[:0]
    sums = trace.field("c", rows[:whole]).reshape(-1, len(Owner)).sum(axis=1)
    unbalanced: Rows = rows[: whole : len(Owner)][sums != chunks]
    return unbalanced
