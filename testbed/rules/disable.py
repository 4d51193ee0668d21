"""Disabling NAPI: rules 31 and 33."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.deadline import MILLISECOND_NS
from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.trace.events import Kind
from testbed.trace.handover import moved

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["disable_terminates", "pool_switch_quiet"]

_NAPI = "Documentation/networking/napi.rst, Control API"
_DISABLE_NS = 1000 * MILLISECOND_NS


@rule(
    "pool-switch-quiet",
    31,
    statement="Between the end of napi_disable() and napi_enable() a NAPI is not polled: the driver exchanges "
    "its rings and pools.",
    sources=[_NAPI, "net/core/dev.c, napi_disable_locked()"],
    needs="a NAPI that was disabled and enabled again",
    exceptions=[
        "a poll that had completed on another CPU when NAPI was disabled, and whose POLL row came later",
        "that only addresses of the new pool are on the NIC afterwards is not seen",
    ],
    unit="polls",
)
def pool_switch_quiet(trace: Trace) -> Finding:
    """Count the polls of a disabled NAPI."""
    spans = list(_spans(trace, Kind.DISABLED, Kind.ENABLE))
    closed = [span for span in spans if span[2] < len(trace.events)]
    bad = [row for span in spans for row in _polled(trace, *span)]
    if bad:
        return violated(
            f"{len(bad)} polls of a NAPI that was disabled",
            observed=len(bad),
            events=[*bad, *(begin for _, begin, _ in spans if begin < max(bad))][:32],
        )
    if not closed:
        return not_exercised("no NAPI was disabled and enabled again")
    return hold(f"not polled while disabled, {len(closed)} times")


def _spans(trace: Trace, begin: Kind, end: Kind) -> Iterator[tuple[int, int, int]]:
    """Yield for each NAPI the rows of each ``begin`` and of its next ``end``, else the trace's length."""
    begins = trace.rows(begin)
    for napi in np.unique(trace.events["subject"][begins]):
        ends = np.append(trace.rows(end, subject=int(napi)), len(trace.events))
        for row in begins[trace.events["subject"][begins] == napi].tolist():
            yield int(napi), row, int(ends[np.searchsorted(ends, row)])


def _polled(trace: Trace, napi: int, begin: int, end: int) -> list[int]:
    """Return the POLL rows of a NAPI between two rows, without the one that was only recorded late."""
    polls = trace.polls
    inside = np.flatnonzero((polls.napi == napi) & (polls.row > begin) & (polls.row < end))
    active = np.concatenate([moved(trace), trace.rows(Kind.SCHEDULE, subject=napi)])
    active = active[(active > begin) & (active < end)]
    elsewhere = polls.cpu[inside] != trace.events["cpu"][begin]
    late = elsewhere & (polls.count(np.sort(active))[inside] == 0)
    late[1:] = False
    return [int(row) for row in polls.row[inside[~late]]]


@rule(
    "disable-terminates",
    33,
    statement="napi_disable() returns within a second: the poll that runs ends, and completes.",
    sources=[_NAPI, "net/core/dev.c, napi_disable_locked(): waits for NAPIF_STATE_SCHED"],
    needs="a call of napi_disable() that returned, or a second after one that did not",
    exceptions=["in real time it may take 20 s"],
    unit="ms",
)
def disable_terminates(trace: Trace) -> Finding:
    """Take the longest call; one that the guest died in counts."""
    limit_ns = trace.patience_ns(_DISABLE_NS)
    limit = limit_ns // MILLISECOND_NS
    took: list[tuple[int, int, bool]] = []
    for _, begin, end in _spans(trace, Kind.DISABLE, Kind.DISABLED):
        ended = end < len(trace.events)
        until_ns = trace.time_ns(end) if ended else trace.end_ns
        took.append((until_ns - trace.time_ns(begin), begin, ended))
    bad = [one for one in took if one[0] > limit_ns or not (one[2] or trace.alive)]
    if bad:
        longest = max(bad)
        return violated(
            f"{len(bad)} calls of napi_disable() did not return in time, one took "
            f"{longest[0] / MILLISECOND_NS:.1f} ms{'' if longest[2] else ' until the trace ended'}",
            observed=longest[0] // MILLISECOND_NS,
            limit=limit,
            events=[begin for _, begin, _ in bad],
        )
    returned = [one for one in took if one[2]]
    if not returned:
        return not_exercised("no call of napi_disable() returned, and none had a second to do so")
    most = max(returned)[0]
    return hold(
        f"{len(returned)} calls returned, the longest after {most / MILLISECOND_NS:.3f} ms",
        observed=most // MILLISECOND_NS,
        limit=limit,
    )
