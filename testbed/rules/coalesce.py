"""What was sent and waits to be cleaned up: rule 35."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.deadline import MILLISECOND_NS, disturbances, wakeup_limit_ns
from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.scenario.program import StepKind, Verdict
from testbed.trace.events import Kind

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["tx_coalesce_armed"]

_TIMER_NS = (
    5 * MILLISECOND_NS
)  # the longest that a driver here waits by default: stmmac's STMMAC_COAL_TX_TIMER


@rule(
    "tx-coalesce-armed",
    35,
    statement="What the device has sent is reaped within the driver's transmit timer and 10 ms, whatever is sent "
    "meanwhile.",
    sources=["4ae0169fd1b3 (stmmac)", "Documentation/networking/device_drivers/ethernet/stmicro/stmmac.rst"],
    needs="a device that tells of the descriptors it sent, and a driver whose reaping is seen: that of frames of the "
    "stack or of an AF_XDP socket",
    exceptions=[
        "gro_flush_timeout and tx_usecs, as far as they are set, are added to the limit",
        "a driver that starts anew within that time gives up what it had",
    ],
    unit="ms",
)
def tx_coalesce_armed(trace: Trace) -> Finding:
    """Take the longest time from a frame's way out to its reaping; ``limit`` is what it may be."""
    sent = trace.rows(Kind.TX_DONE)
    sent = sent[trace.field("b", sent) > 0]
    limit_ns = wakeup_limit_ns(trace)
    if not len(sent) or limit_ns is None or len(trace.rows(Kind.VERDICT, subject=Verdict.TX)):
        return not_exercised("the device tells of no frame that it sent, or its reaping is not seen")
    if len(trace.rows(Kind.STACK_TX)) and not len(trace.rows(Kind.SKB_REAPED)):
        return not_exercised("frames of the stack were sent, and this driver's way to free them is not seen")
    limit_ns += trace.patience_ns(_TIMER_NS + _asked_ns(trace))
    ends = np.concatenate([[-1], disturbances(trace), [len(trace.events)]])
    worst, late = -1, list[int]()
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        own = sent[(sent > begin) & (sent < end)]
        until_ns = trace.end_ns if end == len(trace.events) else trace.time_ns(end)
        waited = _waited_ns(trace, own, end, until_ns)
        worst = max(worst, int(waited.max(initial=-1)))
        late += own[waited > limit_ns].tolist()
    if worst < 0:
        return not_exercised("no frame was sent whose reaping could be seen")
    limit, observed = limit_ns // MILLISECOND_NS, worst // MILLISECOND_NS
    if not late:
        return hold("all that was sent was reaped in time", observed=observed, limit=limit)
    return violated(
        f"{len(late)} frames were sent and not reaped within {limit} ms",
        observed=observed,
        limit=limit,
        events=late,
    )


def _waited_ns(trace: Trace, sent: Rows, end: int, until_ns: int) -> npt.NDArray[np.int64]:
    """Return how long each frame waited to be reaped; those that still do when all ends have waited until then."""
    socket, stack = trace.rows(Kind.XSK_TX_DONE), trace.rows(Kind.SKB_REAPED)
    rows = np.concatenate([socket, stack])
    counts = np.concatenate([trace.field("a", socket), np.ones(len(stack), dtype=np.int64)])
    order = np.argsort(rows)
    rows, counts = rows[order], counts[order]
    if not len(sent):
        return np.zeros(0, dtype=np.int64)
    inside = (rows > sent[0]) & (rows < end)
    reaped = np.cumsum(counts[inside])
    times = np.append(trace.field("time_ns", rows[inside]), until_ns)
    at = np.searchsorted(reaped, np.arange(1, len(sent) + 1))
    waited: npt.NDArray[np.int64] = times[at] - trace.field("time_ns", sent)
    return waited


def _asked_ns(trace: Trace) -> int:
    """Return the longest transmit moderation that a step asked for, 0 when it is not above the default."""
    if trace.steps is None:
        return 0
    asked = trace.steps["b"][trace.steps["kind"] == StepKind.COALESCE]
    return max(int(asked.max(initial=0)) * 1000 - _TIMER_NS, 0)
