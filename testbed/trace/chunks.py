"""Where each chunk of the UMEM was, by the agent's events alone, without trusting its own ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.scenario.program import StepKind
from testbed.trace.events import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from testbed.trace.table import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["OWNING", "owned_before", "previous_rows", "recycled", "with_kernel"]

#: Kinds of events after which a chunk is somewhere else: posted to FILL, delivered, submitted, completed.
OWNING = (Kind.FILL, Kind.RX, Kind.TX, Kind.COMPLETION)


def previous_rows(trace: Trace, kinds: Iterable[Kind]) -> tuple[Rows, Rows]:
    """Return the rows of some kinds, ascending, and the row before each of the same kinds and chunk, or -1.
    A new UMEM (a step of its own) has new chunks.
    """
    rows = np.flatnonzero(np.isin(trace.kind, list(kinds)))
    umems = trace.rows(Kind.STEP_BEGIN, a=StepKind.UMEM)
    chunk = (np.searchsorted(umems, rows).astype(np.int64) << 32) | trace.field("subject", rows)
    order = np.argsort(chunk, kind="stable")
    previous = np.full(len(rows), -1, dtype=np.intp)
    same = chunk[order][1:] == chunk[order][:-1]
    previous[order[1:][same]] = rows[order[:-1][same]]
    return rows, previous


def owned_before(trace: Trace, rows: Rows, kinds: Iterable[Kind], expected: Kind) -> Rows:
    """Return for each of ``rows`` the event of its chunk before it; -1 when that is not as expected.
    :param rows: ascending, of kinds among ``kinds``.
    """
    among, previous = previous_rows(trace, kinds)
    before = previous[np.searchsorted(among, rows)]
    fits = before >= 0
    fits[fits] = trace.kind[before[fits]] == expected
    return np.where(fits, before, -1)


def recycled(trace: Trace) -> bool:
    """Return whether some chunk was delivered, posted and delivered again, or sent and completed twice."""
    rows, previous = previous_rows(trace, OWNING)
    before = previous[np.searchsorted(rows, previous.clip(min=0)).clip(max=max(0, len(rows) - 1))]
    before = np.where(previous >= 0, before, -1)
    kind = trace.kind
    for given, back in ((Kind.FILL, Kind.RX), (Kind.TX, Kind.COMPLETION)):
        again = (kind[rows] == back) & (kind[previous] == given) & (kind[before] == back)
        if (again & (previous >= 0) & (before >= 0)).any():
            return True
    return False


def with_kernel(trace: Trace, rows: Rows) -> npt.NDArray[np.int64]:
    """Return at each of ``rows`` (ascending) how many chunks were posted to FILL and have not come back."""
    owning, previous = previous_rows(trace, OWNING)
    was = (previous >= 0) & (trace.kind[previous] == Kind.FILL)
    change = (trace.kind[owning] == Kind.FILL).astype(np.int64) - was
    total = np.concatenate([[0], np.cumsum(change)])
    return total[np.searchsorted(owning, rows)]
