"""What a poll does and what it says it did: rules 10, 11 and 38."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.scenario.program import Verdict
from testbed.trace.events import Kind
from testbed.trace.handover import handed_over, moved, refills_short, unseen_sends

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace import Trace

__all__ = ["bounded_consumption", "full_poll_justified", "idle_reports_zero"]

_NAPI = "Documentation/networking/napi.rst, Driver API"
#: Drivers bound the frames that they clean up in a poll, or what they report of it: none by less than the budget, if
#: that is below this.
_LEAST_TX_LIMIT = 64


@rule(
    "bounded-consumption",
    10,
    statement="A poll takes no more frames off the Rx ring than its budget and one, dropped ones included.",
    sources=[_NAPI, "net/core/dev.c, __napi_poll(): 'exceeding its budget'"],
    needs="a poll with a budget above 0 that handed over a frame",
    exceptions=[
        "cleaning up sent frames is not bounded by the budget",
        "one more for a frame that was refused and stays in the ring (before 6.8)",
        "frames that the driver threw away by itself leave no event",
    ],
    unit="frames",
)
def bounded_consumption(trace: Trace) -> Finding:
    """Take the poll that is furthest above its budget; ``limit`` is that poll's."""
    polls = trace.polls
    frames = handed_over(trace)
    taken = polls.count(frames)
    judged = (taken > 0) & (polls.budget > 0)
    if not judged.any():
        return not_exercised("no poll handed over a frame")
    excess = np.where(judged, taken - polls.budget - 1, np.iinfo(np.int64).min)
    worst = int(np.argmax(excess))
    most, limit = int(taken[worst]), int(polls.budget[worst]) + 1
    bad = excess > 0
    if not bad.any():
        return hold(f"at most {most} frames in a poll of {limit - 1}", observed=most, limit=limit)
    return violated(
        f"{int(bad.sum())} polls took more than their budget; one took {most} frames of {limit - 1}",
        observed=most,
        limit=limit,
        events=[*polls.row[bad][:16], polls.row[worst], *frames[polls.owner[frames] == worst][-8:]],
    )


@rule(
    "idle-reports-zero",
    11,
    statement="A poll that received, reaped and sent nothing, and did not fail to refill, reports no work.",
    sources=[
        _NAPI,
        "net/core/dev.c, napi_complete_done(): work reloads the deferral of interrupts",
        "ed0907e3bdcf (ice), def52db470df (ravb)",
    ],
    needs="a poll with a budget above 0 in which nothing was seen to move",
    exceptions=[
        "polls while the driver takes its rings down, or whose beginning is not in the trace",
        (
            "each frame whose clean-up leaves no event (sent by XDP_TX, or by a driver that does not use "
            "napi_consume_skb()) excuses one poll after it was sent"
        ),
        "frames that the driver threw away (wrong checksum or length) leave no event: inject none",
        "drivers that answer a failed page allocation with their whole budget, when memory is short",
    ],
    unit="polls",
)
def idle_reports_zero(trace: Trace) -> Finding:
    """Count the polls that reported work although nothing moved, less those that may have cleaned up unseen."""
    polls = trace.polls
    seen = np.concatenate([moved(trace), refills_short(trace)])
    idle = (polls.count(np.sort(seen)) == 0) & (polls.budget > 0) & polls.whole & ~polls.reconfigured
    if not idle.any():
        return not_exercised("in every poll something moved")
    working = np.flatnonzero(idle & (polls.work != 0))
    bad = working[~_excused(polls.row[working], unseen_sends(trace))]
    total = int(idle.sum())
    if not len(bad):
        return hold(f"{total} idle polls reported no work")
    return violated(
        f"{len(bad)} of {total} polls in which nothing moved reported work, up to {int(polls.work[bad].max())}",
        observed=len(bad),
        events=polls.row[bad],
    )


def _excused(polls: npt.NDArray[np.intp], sends: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Say which polls an earlier send, not used up by another poll, may explain."""
    excused = np.zeros(len(polls), dtype=np.bool_)
    used = 0
    for index, sent in enumerate(np.searchsorted(sends, polls).tolist()):
        excused[index] = used < sent
        used += int(excused[index])
    return excused


@rule(
    "full-poll-justified",
    38,
    statement="A poll that returns its whole budget, and so says that work remains, has seen a reason: its budget "
    "of frames, a batch of the TX ring that gave all it asked for, a bound on cleaning up, or a failed refill.",
    sources=[_NAPI, "3b7c13dfdcc2 (igb: a count below zero read as plenty)", "ed0907e3bdcf (ice)"],
    needs="a poll that returned its whole budget",
    exceptions=[
        "polls while the driver takes its rings down, or whose beginning is not in the trace",
        "a Tx ring without a free descriptor: the device still sends",
        "entries of the TX ring taken one by one: how many were asked for is not seen",
        "each frame whose clean-up leaves no event excuses one poll after it was sent",
        "a frame for which there was no memory",
        "drivers that serve several Rx rings in one NAPI and divide the budget among them",
    ],
    unit="polls",
)
def full_poll_justified(trace: Trace) -> Finding:
    """Count the full polls without a reason that shows."""
    polls = trace.polls
    judged = polls.full & polls.whole & ~polls.reconfigured
    if not judged.any():
        return not_exercised("no poll returned its whole budget")
    reasons = (polls.count(handed_over(trace)) >= polls.budget) | (
        _cleaned(trace) >= polls.budget.clip(max=_LEAST_TX_LIMIT)
    )
    reasons |= polls.count(np.sort(np.concatenate([refills_short(trace), _tx_remains(trace)]))) > 0
    reasons |= polls.count(_without_memory(trace)) > 0
    groundless = np.flatnonzero(judged & ~reasons)
    bad = groundless[~_excused(polls.row[groundless], unseen_sends(trace))]
    total = int(judged.sum())
    if not len(bad):
        return hold(f"{total} full polls had a reason")
    return violated(
        f"{len(bad)} of {total} full polls had nothing left to do", observed=len(bad), events=polls.row[bad]
    )


def _cleaned(trace: Trace) -> npt.NDArray[np.int64]:
    """Return for each poll how many sent frames it was seen to clean up."""
    polls = trace.polls
    done = trace.rows(Kind.XSK_TX_DONE)
    done = done[polls.owner[done] >= 0]
    entries = np.bincount(polls.owner[done], weights=trace.events["a"][done], minlength=len(polls))
    return polls.count(trace.rows(Kind.SKB_REAPED)) + entries.astype(np.int64)


def _tx_remains(trace: Trace) -> npt.NDArray[np.intp]:
    """Return the rows at which the driver took all it asked for from the TX ring, or could ask for nothing."""
    rows = trace.rows(Kind.XSK_TX_TAKEN)
    remains: npt.NDArray[np.intp] = rows[trace.events["a"][rows] >= trace.events["b"][rows]]
    return remains


def _without_memory(trace: Trace) -> npt.NDArray[np.intp]:
    """Return the verdicts for the stack that no frame to the stack followed."""
    passed = trace.rows(Kind.VERDICT, subject=Verdict.PASS)
    stacked = trace.field("c", trace.rows(Kind.STACK_RX, b=1))
    lost: npt.NDArray[np.intp] = passed[~np.isin(trace.field("c", passed), stacked)]
    return lost
