"""Two runs of one scenario: where their sequences of events part, and what the difference comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from testbed.result import Result
from testbed.trace import STREAMS, Stream, event_lines, sequence_values, streams_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from testbed.run import Run
    from testbed.trace import Counters, Trace

    Events = npt.NDArray[np.void]
    Rows = npt.NDArray[np.intp]

__all__ = ["CONTEXT", "Difference", "Line", "Parting", "Side", "compare", "parting"]

CONTEXT = 8


class Side(msgspec.Struct, frozen=True):
    """The events around the parting in one run, as text: those before, and those it goes on with.

    :param row: of the first event that the other run does not have there; None when nothing comes any more.
    """

    before: list[str]
    after: list[str]
    row: int | None = None


class Parting(msgspec.Struct, frozen=True):
    """Where two sequences part.

    :param stream: whose sequences: ``driver``, ``user space``, or ``timing`` when only the order of independent events
        differs, and polls that did nothing.
    :param common: how many events of the stream both have in common from the beginning.
    :param last: the last of them as text, None when there is none.
    """

    stream: Stream | Literal["timing"]
    common: int
    last: str | None
    a: Side
    b: Side


class Line(msgspec.Struct, frozen=True):
    """One figure of the summary; None where a run had nothing to measure it by."""

    name: str
    a: float | None
    b: float | None


class Difference(msgspec.Struct, frozen=True):
    """What two runs differ in; ``parting`` is None when their sequences are equal."""

    parting: Parting | None
    summary: list[Line]
    a: Result
    b: Result

    @property
    def rules(self) -> list[tuple[str, str, str]]:
        """The rules whose outcomes differ: id, outcome in the first run, outcome in the second."""
        other = {rule.id: rule.outcome for rule in self.b.rules}
        pairs = [(rule.id, rule.outcome, other.get(rule.id, "not judged")) for rule in self.a.rules]
        return [pair for pair in pairs if pair[1] != pair[2]]


def compare(a: Run, b: Run, context: int = CONTEXT) -> Difference | None:
    """Return what two runs differ in, None when one of them left no trace.

    :param context: how many events to show before and after the place where they part.
    """
    if a.trace is None or b.trace is None:
        return None
    return Difference(
        parting=parting(a.trace, b.trace, context), summary=_summary(a, b), a=a.result, b=b.result
    )


def parting(a: Trace, b: Trace, context: int = CONTEXT) -> Parting | None:
    """Return where two traces part, None when their digests are equal.

    That is the first difference in what was done; only when there is none, in the order of everything.
    """
    (every_a, values_a), (every_b, values_b) = sequence_values(a.events), sequence_values(b.events)
    exact = _first_other(values_a, values_b)
    if exact is None:
        return None
    found = []
    own_a, own_b = streams_of(a), streams_of(b)
    for stream in STREAMS:
        rows = own_a[stream], own_b[stream]
        at = _first_other(values_a[_places(every_a, rows[0])], values_b[_places(every_b, rows[1])])
        if at is not None:
            found.append((int(np.append(rows[0], len(a.events))[at]), stream, at, rows))
    if found:
        _, stream, at, rows = min(found, key=lambda each: each[0])
        return _parting(stream, at, (a, rows[0]), (b, rows[1]), context)
    return _parting("timing", exact, (a, every_a), (b, every_b), context)


def _places(every: Rows, rows: Rows) -> Rows:
    """Return where rows stand among all that count."""
    return np.searchsorted(every, rows)


def _first_other(a: Events, b: Events) -> int | None:
    """Return the first index at which two arrays differ; where the shorter one ends, if nowhere before."""
    shorter = min(len(a), len(b))
    other = np.flatnonzero(a[:shorter] != b[:shorter])
    if len(other):
        return int(other[0])
    return None if len(a) == len(b) else shorter


def _parting(
    stream: Stream | Literal["timing"], at: int, a: tuple[Trace, Rows], b: tuple[Trace, Rows], context: int
) -> Parting:
    last = list(event_lines(a[0].events, a[1][at - 1 : at].tolist())) if at else []
    return Parting(
        stream=stream,
        common=at,
        last=last[0] if last else None,
        a=_side(*a, at, context),
        b=_side(*b, at, context),
    )


def _side(trace: Trace, rows: Rows, at: int, context: int) -> Side:
    """Return the events around the parting: up to the last one in common, and from the first other one on."""
    end = len(trace.events)
    last = int(rows[at - 1]) if at else -1
    first = int(rows[at]) if at < len(rows) else end
    return Side(
        before=list(event_lines(trace.events, range(max(0, last - context + 1), last + 1))),
        after=list(event_lines(trace.events, range(first, min(end, first + context)))),
        row=first if first < end else None,
    )


def _of_polls(measure: Callable[[npt.NDArray[np.int64]], float]) -> Callable[[Trace, Counters], float | None]:
    """Return what measures the work of a run's polls; there is none without polls."""
    return lambda trace, _: float(measure(trace.polls.work)) if len(trace.polls) else None


def _per_frame_ns(_: Trace, counters: Counters) -> float | None:
    frames = counters.frames_to_driver + counters.tx_completed
    return round(counters.virtual_ns / frames, 1) if frames else None


_FIGURES: dict[str, Callable[[Trace, Counters], float | None]] = {
    "polls": lambda _, counters: counters.polls,
    "polls without work": _of_polls(lambda work: int((work == 0).sum())),
    "polls of the whole budget": lambda _, counters: counters.polls_full,
    "work of a poll, median": _of_polls(np.median),
    "work of a poll, 90 %": _of_polls(lambda work: float(np.percentile(work, 90))),
    "work of a poll, most": _of_polls(np.max),
    "interrupts": lambda _, counters: counters.irqs,
    "fires of the deferral timer": lambda _, counters: counters.timer_fires,
    "failed redirects": lambda _, counters: counters.redirect_errors,
    "failed redirects in a poll, most": lambda _, counters: counters.max_redirect_errors_in_poll,
    "frames to the socket": lambda _, counters: counters.frames_to_socket,
    "frames lost": lambda _, counters: counters.frames_lost,
    "frames out of order": lambda _, counters: counters.out_of_order,
    "frames delivered twice": lambda _, counters: counters.duplicated,
    "frames completed": lambda _, counters: counters.tx_completed,
    "virtual time per frame, ns": _per_frame_ns,
}


def _summary(a: Run, b: Run) -> list[Line]:
    values = [
        [figure(run.trace, run.result.counters) for figure in _FIGURES.values()]
        for run in (a, b)
        if run.trace is not None and run.result.counters is not None
    ]
    return [Line(name, *pair) for name, pair in zip(_FIGURES, zip(*values, strict=True), strict=True)]
