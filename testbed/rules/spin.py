"""Polling without end: rule 12."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.trace.events import Kind
from testbed.trace.handover import moved, refills_short, unseen_sends
from testbed.trace.pool import free_tx_slots, outstanding

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from testbed.trace import Trace

__all__ = ["no_spin"]

_LIMIT = 63
#: A Tx ring with fewer free descriptors is as good as full; the device empties one within this time.
_TX_RESERVE = 16
_SENDING_NS = 10_000_000


class _Streak(NamedTuple):
    """Full polls in a row of one NAPI, none of which is seen to have moved a frame: numbers of polls."""

    napi: int
    polls: npt.NDArray[np.intp]


@rule(
    "no-spin",
    12,
    statement="A NAPI never returns its whole budget 64 times in a row without progress.",
    sources=[
        "Documentation/networking/napi.rst, Driver API",
        "ed0907e3bdcf (ice: an inverted refill result kept the poll going for ever)",
    ],
    needs="a poll that returned its whole budget",
    exceptions=[
        (
            "a zero-copy socket without need_wakeup: polls whose refill came short must keep polling; where no "
            "refill is seen, all while FILL may be empty"
        ),
        "the NIC's Tx ring full of AF_XDP frames, for 10 ms: the device still sends",
        (
            "each frame whose clean-up leaves no event (sent by XDP_TX, or by a driver that does not use "
            "napi_consume_skb()) excuses one poll"
        ),
    ],
    unit="polls",
)
def no_spin(trace: Trace) -> Finding:
    """Take the longest streak of full polls in which no frame moved, less what excuses some of it."""
    if not trace.polls.full.any():
        return not_exercised("no poll returned its whole budget")
    worst, worst_streak = 0, None
    for streak in _barren_streaks(trace):
        barren = max(0, len(streak.polls) - _excused(trace, streak))
        if barren > worst:
            worst, worst_streak = barren, streak
    if worst <= _LIMIT or worst_streak is None:
        return hold(f"at most {worst} full polls in a row without progress", observed=worst, limit=_LIMIT)
    return violated(
        f"napi {worst_streak.napi} returned its whole budget {len(worst_streak.polls)} times in a row, "
        f"at least {worst} times without progress",
        observed=worst,
        limit=_LIMIT,
        events=trace.polls.row[worst_streak.polls],
    )


def _barren_streaks(trace: Trace) -> Iterator[_Streak]:
    polls = trace.polls
    barren = polls.full & (polls.count(moved(trace)) == 0)
    for napi in np.unique(polls.napi):
        own = np.flatnonzero(polls.napi == napi)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], barren[own], [False]]).astype(np.int8)))
        for begin, end in zip(edges[::2], edges[1::2], strict=True):
            yield _Streak(int(napi), own[begin:end])


def _excused(trace: Trace, streak: _Streak) -> int:
    """Return how many polls of the streak may have made unseen progress, or need not make any."""
    rows = trace.polls.row[streak.polls]
    begin, end = int(rows[0]), int(rows[-1])
    hungry = 0
    if trace.zero_copy and not trace.flag("need_wakeup"):
        if not len(trace.rows(Kind.XSK_ALLOC)) and _fill_may_be_empty(trace, begin, end):
            return len(streak.polls)
        hungry = int((trace.polls.count(refills_short(trace))[streak.polls] > 0).sum())
    patience_ns = trace.patience_ns(_SENDING_NS)
    sending = (free_tx_slots(trace, rows) < _TX_RESERVE) & (outstanding(trace, rows) > 0)
    sending &= trace.events["time_ns"][rows].astype(np.int64) <= trace.time_ns(begin) + patience_ns
    return hungry + int(sending.sum()) + _before(unseen_sends(trace), end)


def _fill_may_be_empty(trace: Trace, begin: int, end: int) -> bool:
    """Return whether FILL may have run dry: the kernel has no more chunks than its Rx descriptors hold."""
    descriptors = trace.number("rx_ring")
    if descriptors is None:
        return True
    return _before(trace.rows(Kind.FILL), begin) - _before(trace.rows(Kind.REDIRECT, a=0), end) <= descriptors


def _before(rows: npt.NDArray[np.intp], row: int) -> int:
    return int(np.searchsorted(rows, row))
