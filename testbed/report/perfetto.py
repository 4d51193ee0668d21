"""Lanes as a trace that ui.perfetto.dev opens: the JSON Trace Event Format, one track for each lane.

The format is described in "Trace Event Format" (Google, 2016), which Perfetto reads as its legacy JSON: a process for
each run, a thread for each lane, an instant event for each mark, and a counter beside it for each series with heights.
Times are microseconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from testbed.report.lanes import lanes_of, times_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from testbed.recorded import Recorded
    from testbed.report.lanes import Lane, Series
    from testbed.trace import Trace

__all__ = ["perfetto_trace"]

Event = dict[str, Any]


def perfetto_trace(runs: Sequence[Recorded]) -> str:
    """Return the runs that left a trace as one JSON document, each from its own first event."""
    events = [
        event
        for process, run in enumerate(runs, 1)
        if run.trace
        for event in _process(process, f"{run.result.scenario} on {run.result.nic}, {run.path}", run)
    ]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}, separators=(",", ":"))


def _process(process: int, title: str, run: Recorded) -> Iterator[Event]:
    yield _named("process_name", title, process, 0)
    if run.trace is None:
        return
    for thread, lane in enumerate(lanes_of(run.trace, run.result.rules), 1):
        yield _named("thread_name", lane.name, process, thread)
        yield {**_named("thread_sort_index", "", process, thread), "args": {"sort_index": thread}}
        for series in lane.series:
            yield from _marks(run.trace, lane, series, process, thread)


def _named(what: str, name: str, process: int, thread: int) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _marks(trace: Trace, lane: Lane, series: Series, process: int, thread: int) -> Iterator[Event]:
    times = times_us(trace)[series.rows].tolist()
    columns = [(key, _plain(values)) for key, values in series.details.items()]
    heights = None if series.height is None else series.height.tolist()
    for number, (row, time) in enumerate(zip(series.rows.tolist(), times, strict=True)):
        place = {"ts": time, "pid": process, "tid": thread, "cat": lane.name}
        told = {"row": row, **{key: values[number] for key, values in columns}}
        yield {"ph": "i", "s": "t", "name": series.name, **place, "args": told}
        if heights is not None:
            name = f"{lane.name}: {series.name}"
            yield {"ph": "C", "name": name, **place, "args": {series.name: heights[number]}}


def _plain(values: Any) -> list[object]:
    return values.tolist() if hasattr(values, "tolist") else list(values)
