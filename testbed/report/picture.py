"""The lanes of one run, or of two above each other, as a PNG to attach to a mail.

Drawn with Pillow, which Bokeh brings along: Bokeh's own export drives a browser, and machines that run tests have
none. A mark is a column of pixels, so what is drawn can be counted.
"""

from __future__ import annotations

import io
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from testbed.report.lanes import times_us
from testbed.report.strip import LINE_COLOUR, PARTING_COLOUR, colour_of, lane_title, span_us, top_of
from testbed.report.terminal import measure, title

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from testbed.report.lanes import Lane, Series
    from testbed.report.strip import Strip

__all__ = ["LEFT_PX", "LINE_PX", "MARGIN_PX", "PLOT_PX", "column_of", "lane_height", "picture"]

#: Where the time begins, and how wide it is.
LEFT_PX, PLOT_PX = 160, 820
#: What is above everything, and how high a line of text is: a run has its title, its violations, and a title a lane.
MARGIN_PX, LINE_PX = 4, 17
_WIDTH_PX = LEFT_PX + PLOT_PX + 20
_ROW_PX = 16
_STEMS_PX = 70
_AXIS_PX = 40
_TICKS = 6
_INK, _DIM, _RIM, _FAIL = "#1b1f24", "#6b7280", "#c8ccd2", "#b91c1c"
_VERDICT = {"pass": "#15803d", "fail": _FAIL, "broken": "#a21caf", "unsupported": _DIM}


def picture(strips: Sequence[Strip]) -> bytes:
    """Return the PNG: of each run what it is, what it violates and its lanes; then the time."""
    heights = [
        LINE_PX * (2 + len(_violated(strip))) + sum(LINE_PX + lane_height(lane) for lane in strip.lanes())
        for strip in strips
    ]
    image = Image.new("RGB", (_WIDTH_PX, sum(heights) + _AXIS_PX), "white")
    drawing = _Drawing(image, span_us(strips))
    for strip in strips:
        drawing.strip(strip)
    drawing.axis()
    data = io.BytesIO()
    image.save(data, "PNG", optimize=True)
    return data.getvalue()


def column_of(times_us: npt.NDArray[np.float64], span_us: tuple[float, float]) -> npt.NDArray[np.int64]:
    """Return the columns of pixels at which times stand.

    :param span_us: the times of the first and the last column.
    """
    first, last = span_us
    columns: npt.NDArray[np.int64] = LEFT_PX + np.rint(
        (times_us - first) / max(last - first, 1e-3) * (PLOT_PX - 1)
    ).astype(np.int64)
    return columns


def lane_height(lane: Lane) -> int:
    """Return how many lines of pixels a lane has below its title."""
    return _ROW_PX * max(1, len(lane.series)) if lane.drawn == "marks" else _STEMS_PX


def _violated(strip: Strip) -> list[str]:
    return [
        f"{rule.number} {rule.id}: observed {measure(rule)}, limit {rule.limit}: {rule.message}"
        for rule in strip.result.rules
        if rule.outcome == "violated"
    ]


class _Drawing:
    """An image that is filled from above."""

    def __init__(self, image: Image.Image, span: tuple[float, float]) -> None:
        self._draw = ImageDraw.Draw(image)
        self._font = ImageFont.load_default(size=12)
        self._span = span
        self._top = MARGIN_PX

    def strip(self, strip: Strip) -> None:
        """Draw one run."""
        name = f"{strip.name}  " if strip.name else ""
        self._text(f"{name}{title(strip.result).plain}", _VERDICT[strip.result.verdict])
        for line in _violated(strip):
            self._text(line, _FAIL)
        begin = self._top
        times = times_us(strip.trace)
        for lane in strip.lanes():
            self._text(lane_title(strip.name, lane), _DIM)
            for place, series in enumerate(lane.series):
                self._series(lane, series, place, column_of(times[series.rows], self._span))
            self._top += lane_height(lane)
            self._draw.line([(LEFT_PX, self._top), (LEFT_PX + PLOT_PX, self._top)], _RIM)
        parting = strip.parting_us()
        if parting is not None:
            x = int(column_of(np.array([parting]), self._span)[0])
            self._draw.line([(x, begin), (x, self._top)], PARTING_COLOUR, width=2)
        self._top += LINE_PX - MARGIN_PX

    def axis(self) -> None:
        """Draw the time below everything."""
        first, last = self._span
        for number in range(_TICKS):
            x = LEFT_PX + number * (PLOT_PX - 1) // (_TICKS - 1)
            time = first + (last - first) * number / (_TICKS - 1)
            anchor = "ra" if number == _TICKS - 1 else "ma"
            self._draw.line([(x, self._top), (x, self._top + 4)], _DIM)
            self._draw.text((x, self._top + 6), f"{time:,.0f} us", _DIM, self._font, anchor=anchor)

    def _text(self, text: str, colour: str) -> None:
        while self._font.getlength(text) > _WIDTH_PX - 16:
            text = f"{text.removesuffix('...')[:-1]}..."
        self._draw.text((8, self._top), text, colour, self._font)
        self._top += LINE_PX

    def _series(self, lane: Lane, series: Series, place: int, columns: npt.NDArray[np.int64]) -> None:
        colour = colour_of(lane, place)
        if series.height is None:
            top = self._top + place * _ROW_PX
            self._draw.text((LEFT_PX - 6, top), series.name, _INK, self._font, anchor="ra")
            for x in np.unique(columns).tolist():
                self._draw.line([(x, top + 2), (x, top + _ROW_PX - 3)], colour)
            return
        highest = top_of(lane)
        base = self._top + _STEMS_PX - 2
        rise = np.rint(series.height / highest * (_STEMS_PX - 8)).astype(np.int64)
        if not place:
            self._draw.text((LEFT_PX - 6, self._top + 4), str(highest), _DIM, self._font, anchor="ra")
        if lane.drawn == "levels":
            self._draw.text(
                (LEFT_PX - 6, self._top + 18 + 12 * place), series.name, colour, self._font, anchor="ra"
            )
            self._steps(columns, base - rise, colour)
            return
        tops = np.zeros(_WIDTH_PX, dtype=np.int64)
        np.maximum.at(tops, columns, rise)
        for x in np.unique(columns).tolist():
            self._draw.line([(x, base - int(tops[x])), (x, base)], colour)
        if lane.line:
            line = np.asarray(series.details[lane.line], dtype=np.int64)
            self._steps(
                columns, base - np.rint(line / highest * (_STEMS_PX - 8)).astype(np.int64), LINE_COLOUR
            )

    def _steps(self, columns: npt.NDArray[np.int64], lines: npt.NDArray[np.int64], colour: str) -> None:
        """Draw a line that keeps its height until the next mark."""
        points = [(x, y) for x, y in zip(columns.tolist(), lines.tolist(), strict=True)]
        corners = [corner for (_, y), (x, after) in pairwise(points) for corner in ((x, y), (x, after))]
        self._draw.line([*points[:1], *corners], colour)
