"""The kernel's own counters: rule 28."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.scenario.program import StepKind
from testbed.trace.events import Counter, Kind, XdpStatistics
from testbed.trace.handover import handed_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["statistics_agree"]

#: enum bpf_map_type (uapi/linux/bpf.h): the map in which sockets are.
_XSKMAP = 17


@rule(
    "statistics-agree",
    28,
    statement="A socket's rx_ring_full grows by the number of frames that its RX ring refused, rx_packets by no more "
    "than the frames that came, and no counter of the socket or the interface goes back.",
    sources=["net/xdp/xsk.c, xsk_getsockopt()", "Documentation/networking/statistics.rst"],
    needs="two readings of a counter, of the same socket where it is the socket's",
    exceptions=[
        "refusals while the reading was under way may be in it or not",
        "a new socket begins at 0",
        "refusals of other maps than those of sockets",
        "frames that the host injected and that are not numbered: rx_packets is not judged where one was seen",
        "which XDP verdicts a driver counts in rx_packets is its own choice",
        "whether packets and bytes move together is not judged: the agent reads no bytes",
    ],
    unit="counters",
)
def statistics_agree(trace: Trace) -> Finding:
    """Count the pairs of readings that do not agree with what happened between them."""
    pairs = list(_pairs(trace))
    if not pairs:
        return not_exercised("no counter was read twice")
    back = [pair for pair in pairs if _value(trace, pair[1]) < _value(trace, pair[0])]
    wrong = [
        pair
        for pair in pairs
        if _is(trace, pair, Kind.XDP_STATISTICS, XdpStatistics.RX_RING_FULL) and not _agrees(trace, *pair)
    ]
    inflated = [
        pair
        for pair in pairs
        if _is(trace, pair, Kind.INTERFACE, Counter.RX_PACKETS) and _inflated(trace, *pair)
    ]
    if not back + wrong + inflated:
        return hold(f"{len(pairs)} pairs of readings agree")
    names = sorted({_name(trace, pair[0]) for pair in back})
    told = [f"{', '.join(names)} went back"] if names else []
    told += [f"rx_ring_full does not agree with the refusals {len(wrong)} times"] if wrong else []
    told += [f"rx_packets grew by more than the frames that came {len(inflated)} times"] if inflated else []
    return violated(
        "; ".join(told),
        observed=len(back) + len(wrong) + len(inflated),
        events=[row for pair in back + wrong + inflated for row in pair],
    )


def _is(trace: Trace, pair: tuple[int, int], kind: Kind, subject: int) -> bool:
    return bool(trace.kind[pair[0]] == kind and trace.events["subject"][pair[0]] == subject)


def _pairs(trace: Trace) -> Iterator[tuple[int, int]]:
    """Yield each reading with the next one of the same counter."""
    sockets = trace.rows(Kind.STEP_BEGIN)
    sockets = sockets[np.isin(trace.events["a"][sockets], (StepKind.UMEM, StepKind.UNBIND))]
    for kind in (Kind.XDP_STATISTICS, Kind.INTERFACE):
        rows = trace.rows(kind)
        for counter in np.unique(trace.events["subject"][rows]):
            own = rows[trace.events["subject"][rows] == counter]
            for first, second in zip(own[:-1].tolist(), own[1:].tolist(), strict=True):
                new = np.searchsorted(sockets, first) != np.searchsorted(sockets, second)
                if kind == Kind.INTERFACE or not new:
                    yield first, second


def _value(trace: Trace, row: int) -> int:
    return int(trace.events["c"][row])


def _name(trace: Trace, row: int) -> str:
    names = XdpStatistics if trace.kind[row] == Kind.XDP_STATISTICS else Counter
    number = int(trace.events["subject"][row])
    return names(number).name.lower() if number in set(names) else str(number)


def _agrees(trace: Trace, first: int, second: int) -> bool:
    """Return whether rx_ring_full grew by what was refused; a reading happens between its step's begin and row."""
    refused = trace.rows(Kind.REDIRECT, a=-errno.ENOBUFS, b=_XSKMAP)
    begins = trace.rows(Kind.STEP_BEGIN)

    def before(row: int) -> tuple[int, int]:
        begin = begins[np.searchsorted(begins, row) - 1] if len(begins) and begins[0] < row else row
        return int(np.searchsorted(refused, begin)), int(np.searchsorted(refused, row))

    (least_first, most_first), (least_second, most_second) = before(first), before(second)
    growth = _value(trace, second) - _value(trace, first)
    return least_second - most_first <= growth <= most_second - least_first


def _inflated(trace: Trace, first: int, second: int) -> bool:
    """Return whether rx_packets grew by more than came: what was injected before the second reading, less what
    the first one must have counted already, the frames of polls that had ended before its step began.
    """
    if not trace.injected or len(trace.rows(Kind.STACK_RX, b=0)):
        return False
    begins = trace.rows(Kind.STEP_BEGIN)
    reached = begins[begins < second]
    steps = set(trace.events["subject"][reached].tolist())
    came = sum(count for step, count in trace.bursts if step in steps) if trace.bursts else trace.injected
    begin = reached[reached < first][-1:]
    frames = handed_over(trace)
    owner = trace.polls.owner[frames]
    ended = trace.polls.row[owner[owner >= 0]] < (begin[0] if len(begin) else first)
    counted = len(np.unique(trace.field("c", frames[owner >= 0][ended])))
    return _value(trace, second) - _value(trace, first) > came - counted
