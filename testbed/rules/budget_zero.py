"""Polls with a budget of 0, which netpoll makes: rule 14."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.trace.events import Kind
from testbed.trace.polls import during_reconfiguration

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["budget_zero_discipline"]


@rule(
    "budget-zero-discipline",
    14,
    statement=(
        "A poll with a budget of 0 cleans up what the stack has sent and nothing else: no reception, no XDP, no AF_XDP "
        "ring, no NAPI completed, no interrupt unmasked."
    ),
    sources=[
        "Documentation/networking/napi.rst, Driver API",
        "net/core/netpoll.c, poll_one_napi()",
        "net/core/dev.c, napi_complete_done(): false while netpoll polls (NAPIF_STATE_NPSVC)",
        "278a370c1766 (gve)",
    ],
    needs="a poll with a budget of 0",
    exceptions=[
        "a call of napi_complete_done() to which the core says no, as it does while netpoll polls, completes nothing",
        "generic XDP is the stack's, not the driver's",
        "what happens while a step takes the driver's rings down",
        "masks are judged where the device tells of them, in virtual time, and the guest has one CPU",
    ],
    unit="polls",
)
def budget_zero_discipline(trace: Trace) -> Finding:
    """Count the polls with a budget of 0 that did more than they may."""
    polls = trace.polls
    zero = (polls.budget == 0) & ~polls.reconfigured
    if not zero.any():
        return not_exercised("no poll had a budget of 0")
    rows = _within(trace, _forbidden(trace), zero)
    completes = _within(trace, trace.rows(Kind.COMPLETE, b=1), zero)
    done, completed = np.flatnonzero(polls.count(rows)), np.flatnonzero(polls.count(completes))
    unmasked, masks = _unmasked(trace, zero)
    bad = np.unique(np.concatenate([done, completed, unmasked]))
    total = int(zero.sum())
    if not len(bad):
        return hold(f"{total} polls with a budget of 0 cleaned up only what the stack had sent")
    return violated(
        f"of {total} polls with a budget of 0 {len(done)} moved received frames or AF_XDP descriptors, "
        f"{len(completed)} completed, {len(unmasked)} unmasked their interrupt",
        observed=len(bad),
        events=[*rows, *completes, *masks, *polls.row[bad]],
    )


def _forbidden(trace: Trace) -> Rows:
    """Return the rows of what a poll does with received frames and with the rings of a socket, ascending."""
    kinds = [Kind.STACK_RX, Kind.XSK_ALLOC, Kind.XSK_TX_TAKEN, Kind.XSK_TX_DONE]
    if not trace.generic_xdp:
        kinds += [Kind.VERDICT, Kind.REDIRECT, Kind.XDP_EXCEPTION]
    rows = np.flatnonzero(np.isin(trace.kind, kinds))
    asking = np.isin(trace.kind[rows], [Kind.XSK_ALLOC, Kind.XSK_TX_TAKEN, Kind.XSK_TX_DONE])
    found: Rows = rows[~asking | (trace.field("a", rows) > 0)]  # asking in vain changes nothing
    return found


def _within(trace: Trace, rows: Rows, polls: npt.NDArray[np.bool_]) -> Rows:
    """Return those of the rows that happened in one of these polls, and not while the driver was set up anew."""
    owner = trace.polls.owner[rows]
    inside = (owner >= 0) & polls[owner] & ~during_reconfiguration(trace.events)[rows]
    found: Rows = rows[inside]
    return found


def _unmasked(trace: Trace, zero: npt.NDArray[np.bool_]) -> tuple[Rows, Rows]:
    """Return which of these polls unmasked, and the rows of it: only polls do, so it is that of the next POLL."""
    masks = trace.rows(Kind.MASK)
    masks = masks[trace.field("b", masks) & ~trace.field("a", masks) != 0]
    masks = masks[~during_reconfiguration(trace.events)[masks]]
    if trace.clock != "virtual" or (trace.number("vcpus") or 1) > 1:
        return masks[:0], masks[:0]
    poll = np.searchsorted(trace.polls.row, masks)
    within = np.append(zero, False)[poll]
    return np.unique(poll[within]), masks[within]
