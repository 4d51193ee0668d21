"""What a timeline is drawn of, whoever draws it: strips of lanes above each other, and their colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from testbed.report.lanes import Lane, lanes_of, times_us

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.result import Result
    from testbed.trace import Trace

__all__ = [
    "COLOURS",
    "LINE_COLOUR",
    "PARTING_COLOUR",
    "Strip",
    "colour_of",
    "lane_title",
    "span_us",
    "top_of",
]

#: Seen well on white and on black; the series of a lane take them in turn.
COLOURS = ("#3b82f6", "#f59e0b", "#10b981", "#a855f7", "#ef4444", "#06b6d4", "#ec4899", "#84a016", "#8b8b8b")
PARTING_COLOUR = "#d946ef"
LINE_COLOUR = "#8b8b8b"


@dataclass(frozen=True, eq=False)
class Strip:
    """One run of a timeline.

    :param name: "A" or "B" where two runs are compared, else empty.
    :param parting: the row from which on the other run differs.
    """

    result: Result
    trace: Trace
    name: str = ""
    parting: int | None = None

    def lanes(self) -> list[Lane]:
        """Return the lanes of the run."""
        return lanes_of(self.trace, self.result.rules)

    def parting_us(self) -> float | None:
        """Return when the run parts from the other one, in microseconds since its first event."""
        return None if self.parting is None else float(times_us(self.trace)[self.parting])


def span_us(strips: Sequence[Strip]) -> tuple[float, float]:
    """Return when the first and the last mark of all stand: before the first there is only set-up."""
    spans = [
        (times[each.rows].min(), times[each.rows].max())
        for strip in strips
        for times in [times_us(strip.trace)]
        for lane in strip.lanes()
        for each in lane.series
        if len(each.rows)
    ]
    return float(min((a for a, _ in spans), default=0)), float(max((b for _, b in spans), default=0))


def colour_of(lane: Lane, place: int) -> str:
    """Return the colour of a lane's series.

    :param place: of the series in its lane.
    """
    return COLOURS[4 if lane.name == "violations" else place % len(COLOURS)]


def lane_title(strip: str, lane: Lane) -> str:
    """Return the heading of a lane: its name, how many marks it has, and what they show."""
    return f"{f'{strip} / ' if strip else ''}{lane.name}: {len(lane)}, {lane.about}"


def top_of(lane: Lane) -> int:
    """Return the greatest height in a lane, its line included; at least 1."""
    tops = [int(each.height.max(initial=0)) for each in lane.series if each.height is not None]
    tops += [int(np.asarray(each.details[lane.line]).max(initial=0)) for each in lane.series if lane.line]
    return max([1, *tops])
