"""Frames that wait and nobody comes for them: rule 8."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.deadline import MILLISECOND_NS, Answer, answer, disturbances, wakeup_limit_ns
from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.trace.events import Kind
from testbed.trace.handover import handed_over, sequences_of
from testbed.trace.pool import unused

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["no_lost_event"]

_ENTER_NS = (
    11 * MILLISECOND_NS
)  # the wire's tick, and the longest moderation that ethtool lets one set for igb


@rule(
    "no-lost-event",
    8,
    statement="Frames that entered a NIC with free descriptors and an idle NAPI are polled for within the "
    "moderation time and 10 ms.",
    sources=["Documentation/networking/napi.rst, Interrupt masking", "net/core/dev.c, napi_complete_done()"],
    needs="frames that enter through an undisturbed link, and a driver that has received before and has buffers",
    exceptions=[
        "a driver that starts anew within that time",
        "polls of a NAPI that never hands a frame over, as one for transmission alone, answer nothing",
        "that a safety net of the driver (a watchdog of two seconds) comes later is no excuse",
    ],
    unit="bursts",
)
def no_lost_event(trace: Trace) -> Finding:
    """Count the bursts after which no NAPI was polled in time."""
    limit_ns = wakeup_limit_ns(trace)
    if limit_ns is None:
        return not_exercised("how long interrupts may be deferred is not known")
    disturbing = disturbances(trace)
    limit_ns += trace.patience_ns(_ENTER_NS)
    polled = _receiving(trace)
    judged = {
        row: Answer.IN_TIME if at_once else answer(trace, row, polled, limit_ns, disturbing)
        for row, at_once in _expected(trace)
    }
    lost = [row for row, said in judged.items() if said is Answer.LATE]
    met = sum(said is Answer.IN_TIME for said in judged.values())
    if not lost and not met:
        return not_exercised("no frames entered a driver that was ready for them")
    if not lost:
        return hold(f"{met} bursts were polled for in time")
    return violated(
        f"after {len(lost)} of {len(lost) + met} bursts no NAPI was polled within {limit_ns / 1e6:g} ms",
        observed=len(lost),
        events=lost,
    )


def _receiving(trace: Trace) -> Rows:
    """Return the rows of the polls of those NAPIs that hand frames over."""
    polls = trace.polls
    owner = polls.owner[handed_over(trace)]
    rows: Rows = polls.row[np.isin(polls.napi, np.unique(polls.napi[owner[owner >= 0]]))]
    return rows


def _expected(trace: Trace) -> Iterator[tuple[int, bool]]:
    """Yield the rows at which frames were let in that a ready driver must come for, and whether it had come by then:
    another CPU may be as fast as that.
    """
    frames = handed_over(trace)
    sequences = sequences_of(trace, frames)
    anew = disturbances(trace)
    sent = 0
    for step, count in trace.bursts:
        first, sent = sent, sent + count
        ends = trace.rows(Kind.STEP_END, subject=step)
        if not len(ends):
            continue
        row = int(ends[0])
        last = int(np.searchsorted(anew, row)) - 1
        since = int(anew[last]) if last >= 0 else -1
        received = np.searchsorted(frames, row) > np.searchsorted(frames, since, side="right")
        if received and _has_buffers(trace, row):
            met = sequences[: np.searchsorted(frames, row)]
            yield row, bool(((met >= first) & (met < sent)).any())


def _has_buffers(trace: Trace, row: int) -> bool:
    """Say whether descriptors are free; a driver that gives the stack its own pages refills by itself."""
    return not trace.zero_copy or trace.generic_xdp or int(unused(trace, row)) > 0
