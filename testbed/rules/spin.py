"""Polling without end: rule 12."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.trace.events import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from testbed.trace import Trace

__all__ = ["no_spin"]

_LIMIT = 63


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
        "a zero-copy socket without need_wakeup whose FILL ring may be empty: the driver must keep polling",
        "each frame in the TX ring or on its way excuses two polls: one that sends it, one that reaps it",
        "without an XDP program each injected frame excuses one poll: no event shows what the stack received",
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


def _progress(trace: Trace) -> npt.NDArray[np.bool_]:
    """Say for each poll whether a frame is seen to have moved in it: redirected, or new to our program."""
    redirected = trace.rows(Kind.REDIRECT, a=0)
    verdicts = trace.rows(Kind.VERDICT)
    # Before 6.8 a refused frame stays and is presented again: only its first verdict is progress.
    _, first = np.unique(trace.events["c"][verdicts], return_index=True)
    moved: npt.NDArray[np.bool_] = trace.polls.count(np.concatenate([redirected, verdicts[first]])) > 0
    return moved


def _barren_streaks(trace: Trace) -> Iterator[_Streak]:
    polls = trace.polls
    barren = polls.full & ~_progress(trace)
    for napi in np.unique(polls.napi):
        own = np.flatnonzero(polls.napi == napi)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], barren[own], [False]]).astype(np.int8)))
        for begin, end in zip(edges[::2], edges[1::2], strict=True):
            yield _Streak(int(napi), own[begin:end])


def _excused(trace: Trace, streak: _Streak) -> int:
    """Return how many polls of the streak may have made unseen progress, or need not make any."""
    begin, end = int(trace.polls.row[streak.polls[0]]), int(trace.polls.row[streak.polls[-1]])
    if trace.zero_copy and not trace.flag("need_wakeup") and _fill_may_be_empty(trace, begin, end):
        return len(streak.polls)
    on_its_way = _before(trace.rows(Kind.TX), end) - _before(trace.rows(Kind.COMPLETION), begin)
    unseen = 0 if len(trace.rows(Kind.VERDICT)) else trace.injected
    return 2 * max(0, on_its_way) + unseen


def _fill_may_be_empty(trace: Trace, begin: int, end: int) -> bool:
    """Return whether FILL may have run dry: the kernel has no more chunks than its Rx descriptors hold."""
    descriptors = trace.number("rx_ring")
    if descriptors is None:
        return True
    return _before(trace.rows(Kind.FILL), begin) - _before(trace.rows(Kind.REDIRECT, a=0), end) <= descriptors


def _before(rows: npt.NDArray[np.intp], row: int) -> int:
    return int(np.searchsorted(rows, row))
