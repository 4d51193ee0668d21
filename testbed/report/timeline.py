"""The lanes of one run, or of two above each other, as Bokeh figures that share their time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
from bokeh.embed import json_item
from bokeh.layouts import gridplot
from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    CrosshairTool,
    FixedTicker,
    HoverTool,
    NumeralTickFormatter,
    Range1d,
    Span,
)
from bokeh.plotting import figure

from testbed.report.lanes import Series, times_us
from testbed.report.strip import LINE_COLOUR, PARTING_COLOUR, colour_of, lane_title, span_us, top_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from testbed.report.lanes import Lane
    from testbed.report.strip import Strip

    Times = npt.NDArray[np.float64]

__all__ = ["mark_name", "timeline"]

_NOTHING = Series("none", np.zeros(0, dtype=np.intp))
_LEFT_PX = 110
_HEIGHT_PX = 130


def mark_name(strip: str, lane: str, series: str) -> str:
    """Return the name of the renderer that draws the marks of a series."""
    return " / ".join(word for word in (strip, lane, series) if word)


def timeline(strips: Sequence[Strip]) -> str:
    """Return what Bokeh's `embed_item()` draws in a browser, as JSON; arrays are columns of packed numbers."""
    first, last = span_us(strips)
    margin = (last - first) * 0.01 + 1
    time = Range1d(first - margin, last + margin, name="time")
    hair = Span(dimension="height", line_dash="dotted", line_color=LINE_COLOUR)
    figures = [
        _figure(strip, lane, times_us(strip.trace), time, hair) for strip in strips for lane in strip.lanes()
    ]
    figures[-1].xaxis.visible = True
    figures[-1].xaxis.axis_label = "microseconds since the first event"
    figures[-1].xaxis.formatter = NumeralTickFormatter(format="0,0.[000]")
    figures[-1].height += 45
    grid = gridplot(
        [[each] for each in figures],
        sizing_mode="stretch_width",
        toolbar_location="above",
        toolbar_options={"logo": None},
    )
    return json.dumps(json_item(grid), separators=(",", ":"))


def _figure(strip: Strip, lane: Lane, times: Times, time: Range1d, hair: Span) -> figure:
    plot = figure(
        height=_height(lane),
        title=lane_title(strip.name, lane),
        x_range=time,
        y_range=_heights(lane),
        tools="xpan,xwheel_zoom,xbox_zoom,reset,save",
        active_scroll="xwheel_zoom",
        active_drag="xbox_zoom",
        min_border_left=_LEFT_PX,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=LINE_COLOUR,
    )
    plot.xaxis.visible = False
    plot.title.text_font_size = "12px"
    plot.grid.grid_line_alpha = 0.25
    plot.add_tools(CrosshairTool(overlay=hair))
    for place, series in enumerate(lane.series or [_NOTHING]):
        _draw(plot, mark_name(strip.name, lane.name, series.name), lane, series, place, times)
    _label(plot, lane)
    parting = strip.parting_us()
    if parting is not None:
        plot.add_layout(
            Span(
                dimension="height", location=parting, line_color=PARTING_COLOUR, line_width=2, name="parting"
            )
        )
    return plot


def _draw(plot: figure, name: str, lane: Lane, series: Series, place: int, times: Times) -> None:
    colour = colour_of(lane, place)
    x = times[series.rows]
    y = (
        np.full(len(x), place, dtype=np.float64)
        if series.height is None
        else series.height.astype(np.float64)
    )
    data = {"x": x, "y": y, "row": series.rows.astype(np.int32)}
    data |= {key: _column(value) for key, value in series.details.items()}
    source = ColumnDataSource(data)
    if lane.drawn == "stems":
        plot.segment("x", 0, "x", "y", source=source, line_color=colour, line_alpha=0.6)
    if lane.drawn == "levels":
        plot.step("x", "y", source=source, mode="after", line_color=colour, legend_label=series.name)
    if lane.line:
        plot.step("x", lane.line, source=source, mode="before", line_color=LINE_COLOUR, line_width=1.5)
    flat = series.height is None
    marks = plot.scatter(
        "x",
        "y",
        source=source,
        name=name,
        marker="dash" if flat else "circle",
        angle=np.pi / 2 if flat else 0,
        size=14 if flat else 5,
        line_color=colour if flat else None,  # an outline takes as long to draw as all the rest of a circle
        fill_color=colour,
    )
    told = [("event", "@row"), ("at", "@x{0.000} us"), *((key, f"@{{{key}}}") for key in series.details)]
    plot.add_tools(HoverTool(renderers=[marks], tooltips=[("", series.name), *told]))


def _column(values: Sequence[object] | npt.NDArray[np.generic]) -> list[object] | npt.NDArray[np.generic]:
    """Return numbers in 32 bits where they fit: that halves what the file holds of them."""
    if not isinstance(values, np.ndarray):
        return list(values)
    fits = not len(values) or (values.min() >= -(2**31) and values.max() < 2**31)
    return values.astype(np.int32 if fits else np.float64)


def _heights(lane: Lane) -> Range1d:
    if lane.drawn == "marks":
        return Range1d(-0.7, max(len(lane.series), 1) - 0.3)
    top = top_of(lane)
    return Range1d(-top * 0.06, top * (1.5 if lane.drawn == "levels" else 1.12))


def _height(lane: Lane) -> int:
    return 50 + 16 * max(len(lane.series), 1) if lane.drawn == "marks" else _HEIGHT_PX


def _label(plot: figure, lane: Lane) -> None:
    if lane.drawn == "marks":
        places = list(range(len(lane.series)))
        plot.yaxis.ticker = FixedTicker(ticks=places)
        plot.yaxis.major_label_overrides = {place: lane.series[place].name for place in places}
        plot.ygrid.visible = False
    else:
        plot.yaxis.ticker = BasicTicker(desired_num_ticks=4)
    if plot.legend:
        plot.legend.orientation = "horizontal"
        plot.legend.location = "top_right"
        plot.legend.background_fill_alpha = 0
        plot.legend.border_line_color = None
        plot.legend.padding = 0
        plot.legend.click_policy = "hide"
