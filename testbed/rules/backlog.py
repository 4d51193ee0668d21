"""Polling while frames are known to wait: rules 9 and 13."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule, virtual_only
from testbed.scenario.program import StepKind
from testbed.trace.backlog import bursts
from testbed.trace.events import Kind
from testbed.trace.handover import refills_short

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from testbed.trace import Trace
    from testbed.trace.backlog import Burst

    Rows = npt.NDArray[np.intp]

__all__ = ["full_when_backlogged", "irq_rate"]

_ONE_INSTANT = "real time: frames trickle in while the driver polls"
#: At least so many frames of a burst must wait before its interrupts are counted, and so many be handed over.
_LOADED = 64
_HANDED_OVER = 16
_FRAMES_PER_IRQ = 8


@virtual_only
@rule(
    "full-when-backlogged",
    9,
    statement="A poll that finds at least its budget of frames waiting takes its whole budget.",
    sources=[
        "Documentation/networking/napi.rst, Driver API",
        "57030a0b620f (lan743x: the Rx loop stopped early and completed)",
    ],
    needs="a burst that entered the NIC at one instant, found no older frame in the Rx ring, and free "
    "descriptors for at least a poll's budget of its frames",
    exceptions=[
        "polls that met a full RX ring or a pool without buffers: they leave early",
        (
            "descriptors: those that have a buffer (zero copy), else half the ring, so that refilling in batches "
            "does no harm"
        ),
        "traces in which several NAPIs receive: which frame waits for which is not known",
        "frames of several descriptors",
        _ONE_INSTANT,
    ],
    unit="polls",
)
def full_when_backlogged(trace: Trace) -> Finding:
    """Count the polls that returned less than their budget while at least that many frames waited."""
    polls = trace.polls
    left = np.concatenate([trace.rows(Kind.REDIRECT, a=-errno.ENOBUFS), refills_short(trace)])
    judged = (polls.count(np.sort(left)) == 0) & (polls.budget > 0) & ~polls.reconfigured
    backlogged = [
        poll
        for burst in bursts(trace)
        for poll, waiting in _polls_of(trace, burst)
        if judged[poll] and waiting >= polls.budget[poll]
    ]
    if not backlogged:
        return not_exercised("no poll is known to have had its budget of frames waiting")
    bad = [poll for poll in backlogged if polls.work[poll] < polls.budget[poll]]
    if not bad:
        return hold(f"{len(backlogged)} polls with a backlog took their whole budget")
    return violated(
        f"{len(bad)} of {len(backlogged)} polls with a backlog stopped early, one after "
        f"{int(polls.work[bad].min())} of {int(polls.budget[bad[0]])} frames",
        observed=len(bad),
        events=polls.row[bad],
    )


def _polls_of(trace: Trace, burst: Burst) -> Iterator[tuple[int, int]]:
    """Yield the polls since a burst's first frame, each with how many of its frames wait at least."""
    polls = trace.polls
    first = int(polls.owner[burst.frames[0]])
    own = np.flatnonzero((polls.napi == burst.napi) & (polls.row < burst.end))
    before = np.searchsorted(polls.owner[burst.frames], own)
    for poll, gone in zip(own.tolist(), before.tolist(), strict=True):
        if poll >= first and gone < burst.waiting:
            yield poll, burst.waiting - gone


@virtual_only
@rule(
    "irq-rate",
    13,
    statement="While a burst waits to be polled, there is less than one interrupt for each 8 of its frames.",
    sources=["Documentation/networking/napi.rst, Introduction: interrupt mitigation"],
    needs="a burst of which at least 64 frames lay in the Rx ring at one instant, and 16 were handed over",
    exceptions=[
        "low load: other interrupts than those of a burst's own polls do not count",
        "moderation switched off (rx-usecs 0), and busy polling",
        "bursts that met a full RX ring or a pool without buffers: their polls leave early",
        (
            "that there are no more than 1.2 interrupts for each completion is not judged: QEMU's igb raises "
            "them whether masked or not"
        ),
        _ONE_INSTANT,
    ],
    unit="interrupts",
)
def irq_rate(trace: Trace) -> Finding:
    """Take the burst that is furthest above its limit; ``limit`` is that burst's."""
    left = np.concatenate([trace.rows(Kind.REDIRECT, a=-errno.ENOBUFS), refills_short(trace)])
    counted = []
    for burst in bursts(trace) if not trace.flag("busy_poll") else ():
        first, last, taken = int(burst.frames[0]), int(burst.frames[-1]), len(burst.frames)
        hindered = ((left > first) & (left < last)).any() or _unmoderated(trace, first)
        if burst.waiting >= _LOADED and taken >= _HANDED_OVER and not hindered:
            irqs = _interrupts(trace, burst)
            counted.append((len(irqs) - (taken - 1) // _FRAMES_PER_IRQ, irqs, taken))
    if not counted:
        return not_exercised("no burst of 64 frames or more lay in the Rx ring at one instant")
    excess, irqs, taken = max(counted, key=lambda one: one[0])
    limit = (taken - 1) // _FRAMES_PER_IRQ
    if excess <= 0:
        return hold(
            f"at most {len(irqs)} interrupts for {taken} frames that waited", observed=len(irqs), limit=limit
        )
    return violated(
        f"{len(irqs)} interrupts for {taken} frames that waited", observed=len(irqs), limit=limit, events=irqs
    )


def _interrupts(trace: Trace, burst: Burst) -> Rows:
    """Return the interrupts of the burst's NAPI that came while it waited, and the one that began it.

    A vector is the NAPI's when one of its interrupts scheduled it. A completion that returns false schedules too, and
    which interrupt came just before it says nothing.
    """
    irqs = trace.rows(Kind.IRQ)
    scheduled = trace.rows(Kind.SCHEDULE, subject=burst.napi)
    events = trace.events
    others = np.append(np.flatnonzero(trace.kind != Kind.IRQ), 0)
    after = others[np.searchsorted(others[:-1], scheduled, side="right")]
    completing = (trace.kind[after] == Kind.COMPLETE) & (events["b"][after] == 0)
    near = scheduled[(scheduled > 0) & ~completing]
    near = near[(trace.kind[near - 1] == Kind.IRQ) & (events["cpu"][near - 1] == events["cpu"][near])]
    irqs = irqs[np.isin(events["subject"][irqs], events["subject"][near - 1])]
    begin = irqs[irqs < burst.frames[0]][-1:]
    during = irqs[(irqs > burst.frames[0]) & (irqs < burst.frames[-1])]
    return np.concatenate([begin, during])


def _unmoderated(trace: Trace, row: int) -> bool:
    """Return whether the last ``coalesce`` step before a row switched the moderation of Rx off."""
    steps = trace.rows(Kind.STEP_BEGIN, a=StepKind.COALESCE)
    steps = steps[steps < row]
    return bool(len(steps)) and int(trace.events["c"][steps[-1]]) == 0
