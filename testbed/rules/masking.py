"""When a driver masks and unmasks its interrupts, by what the device saw: rules 6, 7 and 39."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.trace.events import Kind

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["mask_before_schedule", "unmask_after_complete", "unmask_needs_ownership"]

_NAPI = "Documentation/networking/napi.rst, Scheduling and IRQ masking"
_UNSEEN = "the device does not tell of its masks, or tells of them late, as in real time"


@rule(
    "unmask-needs-ownership",
    6,
    statement="A poll unmasks its interrupt only if napi_complete_done() returned true.",
    sources=[_NAPI, "net/core/dev.c, napi_complete_done()"],
    needs="a device that tells of its masks, and a poll whose napi_complete_done() returned false",
    exceptions=[
        "a driver that unmasks what was not masked, as a poll that user space woke may, changes nothing",
        "a NAPI that is being disabled",
    ],
    unit="polls",
)
def unmask_needs_ownership(trace: Trace) -> Finding:
    """Count the polls that unmasked although the core had said no."""
    masks = _masks(trace)
    if not len(masks):
        return not_exercised(_UNSEEN)
    polls = _completed(trace, returned=0)
    if not len(polls):
        return not_exercised("napi_complete_done() never returned false")
    opened = masks[trace.field("b", masks) & ~trace.field("a", masks) != 0]
    after = _next(opened, trace.polls.complete_row[polls])
    wrong = (after >= 0) & (after < trace.polls.row[polls])
    if not wrong.any():
        return hold(f"{len(polls)} polls were told no and left the mask alone")
    return violated(
        f"{int(wrong.sum())} of {len(polls)} polls unmasked although napi_complete_done() had returned false",
        observed=int(wrong.sum()),
        events=[*trace.polls.complete_row[polls[wrong]], *after[wrong]],
    )


@rule(
    "unmask-after-complete",
    7,
    statement="A poll whose napi_complete_done() returned true unmasks its interrupt before it returns.",
    sources=[_NAPI, "net/core/dev.c, napi_complete_done()"],
    needs="a device that tells of its masks, and a poll whose napi_complete_done() returned true",
    exceptions=["a NAPI that is being disabled"],
    unit="polls",
)
def unmask_after_complete(trace: Trace) -> Finding:
    """Count the polls that completed and left the interrupt masked."""
    masks = _masks(trace)
    if not len(masks):
        return not_exercised(_UNSEEN)
    polls = _completed(trace, returned=1)
    if not len(polls):
        return not_exercised("napi_complete_done() never returned true")
    # Whatever is written then and takes nothing away is an unmask; it may find the mask open.
    opening = masks[(trace.field("a", masks) & ~trace.field("b", masks)) == 0]
    after = _next(opening, trace.polls.complete_row[polls])
    wrong = (after < 0) | (after > trace.polls.row[polls])
    if not wrong.any():
        return hold(f"{len(polls)} polls completed and unmasked")
    return violated(
        f"{int(wrong.sum())} of {len(polls)} polls completed and left their interrupt masked",
        observed=int(wrong.sum()),
        events=[*trace.polls.complete_row[polls[wrong]], *trace.polls.row[polls[wrong]]],
    )


@rule(
    "mask-before-schedule",
    39,
    statement="Whoever schedules a NAPI and masks its interrupt masks it first.",
    sources=[_NAPI, "ba0da2dc934e", "ea852c17f538"],
    needs="a device that tells of its masks, and an interrupt that was masked together with a schedule",
    exceptions=["a NAPI scheduled without masking, as by a wakeup of user space"],
    unit="schedules",
)
def mask_before_schedule(trace: Trace) -> Finding:
    """Count the masks behind a schedule: a poll on another CPU may have unmasked by then, and stays masked for ever.

    The row before such a mask is the schedule. Where another schedule follows as the next row, the mask is that one's.
    """
    masks = _masks(trace)
    closing = masks[trace.field("a", masks) & ~trace.field("b", masks) != 0]
    guest = np.flatnonzero(trace.kind < Kind.RX_DONE)
    at = np.searchsorted(guest, closing)
    scheduling = trace.kind[guest] == Kind.SCHEDULE
    before = np.append(scheduling, False)[at - 1] & (at > 0)
    first = np.append(scheduling, False)[at]
    late = closing[before & ~first]
    if not len(late) and not first.any():
        return not_exercised("no interrupt was masked together with a schedule" if len(masks) else _UNSEEN)
    if not len(late):
        return hold(f"{int(first.sum())} interrupts were masked before their NAPI was scheduled")
    return violated(
        f"{len(late)} interrupts were masked behind the schedule of their NAPI",
        observed=len(late),
        events=[int(row) for row in late],
    )


def _masks(trace: Trace) -> Rows:
    """Return the rows of the writes to a mask, none in real time: there the guest does not wait for what it writes, and
    the device sees it, and tells of it, a few events later.
    """
    return trace.rows(Kind.MASK) if trace.clock == "virtual" else np.zeros(0, dtype=np.intp)


def _completed(trace: Trace, *, returned: int) -> Rows:
    """Return the polls with one completion of their own and this result, but for those of a NAPI under change."""
    polls = trace.polls
    chosen = np.flatnonzero((polls.completes == 1) & (polls.budget > 0) & ~polls.reconfigured)
    found: Rows = chosen[trace.events["b"][polls.complete_row[chosen]] == returned]
    return found


def _next(rows: Rows, after: Rows) -> Rows:
    """Return for each of ``after`` the first of ``rows`` (ascending) behind it, or -1."""
    found: Rows = np.append(rows, -1)[np.searchsorted(rows, after, side="right")]
    return found
