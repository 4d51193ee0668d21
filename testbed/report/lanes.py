"""A trace as lanes of marks along the time: what a timeline draws, however it is drawn."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from testbed.trace.events import Kind, Ring

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from testbed.rules import RuleResult
    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]
    Numbers = npt.NDArray[np.int64]

__all__ = ["Lane", "Series", "lanes_of", "times_us"]


@dataclass(frozen=True, eq=False)
class Series:
    """Marks of one sort in a lane, shape ``(m,)`` each, in the order of the trace.

    :param rows: the rows of the trace that they stand for.
    :param height: what is drawn upwards; None where a mark says only that something happened.
    :param details: numbers or words told of a mark.
    """

    name: str
    rows: Rows
    height: Numbers | None = None
    details: Mapping[str, Sequence[object] | npt.NDArray[np.generic]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Lane:
    """One lane of a timeline.

    :param drawn: "marks", one line of them for each series; "stems" from 0 up to the height; "levels" that last
        until the next mark.
    :param line: the name of the detail that is drawn as a line besides.
    """

    name: str
    about: str
    drawn: Literal["marks", "stems", "levels"]
    series: list[Series]
    line: str = ""

    def __len__(self) -> int:
        return sum(len(each.rows) for each in self.series)


def times_us(trace: Trace) -> npt.NDArray[np.float64]:
    """Return when each row happened, in microseconds since the first; a line of the log with the row before it."""
    times = trace.events["time_ns"].astype(np.int64)
    rows = np.arange(len(times))
    known = np.flatnonzero(trace.kind != Kind.LOG)
    if not len(known):
        return np.zeros(len(times))
    before = known[(np.searchsorted(known, rows, side="right") - 1).clip(min=0)]
    since: npt.NDArray[np.float64] = (times[before] - times[known[0]]) / 1000
    return since


def lanes_of(trace: Trace, rules: Sequence[RuleResult]) -> list[Lane]:
    """Return all lanes of a run, empty ones too, in the order in which they are shown from above.

    :param rules: the run's rules; the events that those violated cite are the last lane.
    """
    return [
        _injected(trace),
        _marks(trace, "interrupts", "by vector", Kind.IRQ, "irq {subject}", {"irq": "subject", "cpu": "cpu"}),
        _polls(trace),
        _completions(trace),
        _failed_redirects(trace),
        _ring_levels(trace),
        _marks(
            trace, "timer fires", "gro_flush_timeout", Kind.WATCHDOG, "napi {subject}", {"napi": "subject"}
        ),
        _device(trace),
        _proofs(trace, rules),
    ]


def _numbers(trace: Trace, rows: Rows, details: Mapping[str, str]) -> dict[str, Numbers]:
    return {name: trace.field(source, rows) for name, source in details.items()}


def _marks(trace: Trace, name: str, about: str, kind: Kind, series: str, details: Mapping[str, str]) -> Lane:
    """Return a lane of one kind of event with a series for each subject."""
    rows = trace.rows(kind)
    subjects = trace.field("subject", rows)
    parts = [
        (series.format(subject=subject), rows[subjects == subject])
        for subject in np.unique(subjects).tolist()
    ]
    return Lane(
        name,
        about,
        "marks",
        [Series(title, own, None, _numbers(trace, own, details)) for title, own in parts],
    )


def _injected(trace: Trace) -> Lane:
    """Frames are put on the wire while the guest waits in a barrier: the mark stands at its end."""
    count_of = dict(trace.bursts)
    ends = trace.rows(Kind.STEP_END)
    rows = ends[np.isin(trace.field("subject", ends), list(count_of))]
    steps = trace.field("subject", rows)
    frames = np.array([count_of[step] for step in steps.tolist()], dtype=np.int64)
    series = Series("frames", rows, frames, {"step": steps, "frames": frames})
    return Lane("injected frames", "height = frames of a burst", "stems", [series])


def _polls(trace: Trace) -> Lane:
    rows = trace.polls.row
    details = _numbers(trace, rows, {"napi": "subject", "work": "a", "budget": "b", "cpu": "cpu"})
    return Lane(
        "polls",
        "height = work, line = budget",
        "stems",
        [Series("work", rows, trace.polls.work, details)],
        "budget",
    )


def _completions(trace: Trace) -> Lane:
    details = {"napi": "subject", "work_done": "a", "returned": "b"}
    parts = [
        ("returned false", trace.rows(Kind.COMPLETE, b=0)),
        ("returned true", trace.rows(Kind.COMPLETE, b=1)),
    ]
    return Lane(
        "completions",
        "napi_complete_done()",
        "marks",
        [Series(name, rows, None, _numbers(trace, rows, details)) for name, rows in parts],
    )


def _failed_redirects(trace: Trace) -> Lane:
    rows = trace.rows(Kind.REDIRECT)
    results = trace.field("a", rows)
    series = [
        Series(
            errno.errorcode.get(-result, str(-result)),
            rows[results == result],
            None,
            _numbers(trace, rows[results == result], {"queue": "subject"}),
        )
        for result in np.unique(results[results < 0]).tolist()
    ]
    return Lane("failed redirects", "by error", "marks", series)


def _ring_levels(trace: Trace) -> Lane:
    series = []
    for ring in Ring:
        rows = trace.rows(Kind.RING, subject=ring)
        if not len(rows):
            continue
        level = (trace.field("a", rows) - trace.field("b", rows)) & 0xFFFFFFFF
        packed = trace.field("c", rows)
        details = {"entries": packed & 0xFFFFFFFF, "need_wakeup": packed >> 32}
        series.append(Series(ring.name, rows, level, {"level": level, **details}))
    return Lane("ring levels", "producer - consumer", "levels", series)


def _device(trace: Trace) -> Lane:
    details = {"queue": "subject", "a": "a", "b": "b"}
    kinds = [kind for kind in Kind if kind >= Kind.RX_DONE]
    parts = [(kind.name, rows) for kind in kinds if len(rows := trace.rows(kind))]
    return Lane(
        "device events",
        "the device model's",
        "marks",
        [Series(name, rows, None, _numbers(trace, rows, details)) for name, rows in parts],
    )


def _proofs(trace: Trace, rules: Sequence[RuleResult]) -> Lane:
    series = []
    for rule in rules:
        rows = np.array([row for row in rule.events if row < len(trace.events)], dtype=np.intp)
        if rule.outcome == "violated":
            kinds = [Kind(kind).name for kind in trace.kind[rows].tolist()]
            series.append(Series(rule.id, rows, None, {"event": kinds}))
    return Lane("violations", "the events that prove them", "marks", series)
