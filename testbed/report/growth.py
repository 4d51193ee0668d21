"""The page of a campaign: how it grew, what it found, and the campaigns that its corpus has seen."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from bokeh.embed import json_item
from bokeh.layouts import gridplot
from bokeh.models import HoverTool, NumeralTickFormatter, Range1d, Span
from bokeh.plotting import figure

from testbed.report.page import filled
from testbed.report.strip import COLOURS, LINE_COLOUR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.fuzzing.campaign import Growth, Summary

__all__ = ["campaign_page", "grown"]

_LINES = {"executions": "inputs run", "blocks": "basic blocks reached", "features": "features of traces"}
_HEIGHT_PX = 200


def campaign_page(campaigns: Sequence[Summary]) -> str:
    """Return the page of a corpus.

    :param campaigns: at least one, the oldest first; what the last one knew of findings is what the corpus holds.
    """
    last = campaigns[-1]
    seen: Counter[str] = Counter()
    for each in campaigns:
        seen.update(each.seen)
    executions = sum(each.executions for each in campaigns)
    confirmed = sum(finding.confirmed for finding in last.findings)
    return filled(
        "campaign.html",
        f"Fuzzing {last.nic}: {executions} inputs run, {confirmed} findings that repeat",
        timeline=_plots(campaigns),
        campaigns=campaigns,
        findings=last.findings,
        seen=seen,
    )


def grown(campaigns: Sequence[Summary]) -> list[list[Growth]]:
    """Return how each campaign grew, one behind the other in time; inputs run are added up, the rest is as it was."""
    seconds, executions = 0.0, 0
    found = []
    for each in campaigns:
        found.append(
            [
                type(point)(
                    seconds + point.seconds, executions + point.executions, point.blocks, point.features
                )
                for point in each.growth
            ]
        )
        seconds += each.seconds
        executions += each.executions
    return found


def _plots(campaigns: Sequence[Summary]) -> str:
    """Return a plot for each thing that grows, above each other with one time, as JSON for Bokeh's `embed_item()`."""
    parts = grown(campaigns)
    end = sum(each.seconds for each in campaigns)
    time = Range1d(-end * 0.01, end * 1.01 + 1, name="time")
    plots = [_plot(name, about, parts, time, place) for place, (name, about) in enumerate(_LINES.items())]
    plots[-1].xaxis.axis_label = "seconds of fuzzing"
    grid = gridplot(
        [[plot] for plot in plots],
        sizing_mode="stretch_width",
        toolbar_location="above",
        toolbar_options={"logo": None},
    )
    return json.dumps(json_item(grid), separators=(",", ":"))


def _plot(name: str, about: str, parts: list[list[Growth]], time: Range1d, place: int) -> figure:
    plot = figure(
        height=_HEIGHT_PX,
        title=about,
        x_range=time,
        tools="xpan,xwheel_zoom,xbox_zoom,reset,save",
        active_scroll="xwheel_zoom",
        active_drag="xbox_zoom",
        min_border_left=80,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=LINE_COLOUR,
    )
    plot.grid.grid_line_alpha = 0.25
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    for number, points in enumerate(parts):
        x, y = [point.seconds for point in points], [getattr(point, name) for point in points]
        plot.step(x, y, mode="after", line_color=COLOURS[place], line_width=2)
        marks = plot.scatter(x, y, size=5, color=COLOURS[place], name=f"{name} / {number}")
        plot.add_tools(HoverTool(renderers=[marks], tooltips=[("at", "@x{0,0} s"), (about, "@y{0,0}")]))
        if number:
            begin = parts[number - 1][-1].seconds
            plot.add_layout(
                Span(dimension="height", location=begin, line_color=LINE_COLOUR, line_dash="dotted")
            )
    return plot
