"""What became of each frame our program redirected: its verdict and the redirect that followed it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from testbed.scenario.program import Verdict
from testbed.trace.events import Kind

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace.table import Trace

__all__ = ["FOREIGN", "Redirected", "redirected_frames"]

FOREIGN = -1  #: stands for the sequence number of a frame that has none


@dataclasses.dataclass(frozen=True, eq=False)
class Redirected:
    """The redirects of a trace in their order; each array has shape ``(r,)``.

    :param row: the REDIRECT row.
    :param sequence: the frame's sequence number, or :data:`FOREIGN`.
    :param errno: 0, or negative.
    :param map_type: what it went to (enum bpf_map_type).
    :param socketless: shape ``(s,)``: sequence numbers of frames that were to be redirected while no socket
        was in the map; such a frame goes to the stack (XDP_PASS is the fallback of our bpf_redirect_map).
    """

    row: npt.NDArray[np.intp]
    sequence: npt.NDArray[np.int64]
    errno: npt.NDArray[np.int64]
    map_type: npt.NDArray[np.int64]
    socketless: npt.NDArray[np.int64]

    def refused(self) -> int:
        """Return how many frames were refused: numbered ones once each, others each time."""
        refused = self.sequence[self.errno < 0]
        return len(np.unique(refused[refused != FOREIGN])) + int((refused == FOREIGN).sum())


def redirected_frames(trace: Trace) -> Redirected:
    """Pair each REDIRECT with the VERDICT just before it on its CPU.

    Our program records a VERDICT for a numbered frame, then the driver redirects it: on one CPU nothing else
    of either kind comes between. A REDIRECT without one is of a foreign frame.
    """
    events = trace.events
    rows = np.flatnonzero((trace.kind == Kind.REDIRECT) | (trace.kind == Kind.VERDICT))
    rows = rows[np.argsort(events["cpu"][rows], kind="stable")]
    redirect = trace.kind[rows] == Kind.REDIRECT
    verdict = ~redirect & (events["subject"][rows] == Verdict.REDIRECT)
    paired = np.zeros(len(rows), dtype=np.bool_)
    paired[1:] = redirect[1:] & verdict[:-1] & (events["cpu"][rows[1:]] == events["cpu"][rows[:-1]])
    sequence = np.full(len(rows), FOREIGN, dtype=np.int64)
    sequence[1:] = np.where(paired[1:], events["c"][rows[:-1]].astype(np.int64), FOREIGN)
    unanswered = verdict.copy()
    unanswered[:-1] &= ~paired[1:]
    order = np.argsort(rows[redirect])
    row = rows[redirect][order]
    return Redirected(
        row=row,
        sequence=sequence[redirect][order],
        errno=trace.field("a", row),
        map_type=trace.field("b", row),
        socketless=trace.field("c", rows[unanswered]),
    )
