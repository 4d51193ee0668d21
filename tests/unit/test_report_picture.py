"""The picture for mails: what it draws in each lane is what the trace holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from large_run import large
from PIL import Image, ImageColor
from test_report import REPAIRED, STOCK
from test_report_page import kept, refused_with

from testbed.cli import report
from testbed.recorded import load_recorded
from testbed.report.lanes import times_us
from testbed.report.picture import LEFT_PX, LINE_PX, MARGIN_PX, PLOT_PX, column_of, lane_height
from testbed.report.strip import PARTING_COLOUR, Strip, colour_of, span_us


def drawn(*words: str | Path) -> Image.Image:
    done = CliRunner().invoke(report.command, [*map(str, words), "--png"], catch_exceptions=False)
    assert done.exit_code == 0
    file = Path(done.output.strip())
    assert file.suffix == ".png"
    with Image.open(file) as image:
        return image.convert("RGB")


def coloured(image: Image.Image, line: int, colour: str) -> list[int]:
    """Return the columns within the time that have a colour in a line of pixels."""
    wanted = ImageColor.getrgb(colour)
    return [x for x in range(LEFT_PX, LEFT_PX + PLOT_PX) if image.getpixel((x, line)) == wanted]


def strip_of(path: Path) -> Strip:
    run = load_recorded(path)
    assert run.trace
    return Strip(run.result, run.trace)


def assert_marks_are_drawn(image: Image.Image, strip: Strip) -> int:
    """See that each series has its columns of pixels, and return how many there were."""
    span, times, count = span_us([strip]), times_us(strip.trace), 0
    violated = [rule for rule in strip.result.rules if rule.outcome == "violated"]
    top = MARGIN_PX + LINE_PX * (1 + len(violated))
    for lane in strip.lanes():
        top += LINE_PX
        for place, series in enumerate(lane.series if lane.drawn != "levels" else []):
            if series.height is None:
                line = top + place * lane_height(lane) // len(lane.series) + 6
            else:
                line = top + lane_height(lane) - 2
            expected = np.unique(column_of(times[series.rows], span)).tolist()
            assert coloured(image, line, colour_of(lane, place)) == expected, (lane.name, series.name)
            count += len(expected)
        top += lane_height(lane)
    return count


def test_each_lane_has_a_column_for_its_marks(tmp_path: Path) -> None:
    path = kept(tmp_path / "run", STOCK)
    image = drawn(path)
    assert image.width == 1000
    assert assert_marks_are_drawn(image, strip_of(path)) > 5


def test_two_runs_stand_above_each_other_with_the_place_where_they_part(tmp_path: Path) -> None:
    a, b = kept(tmp_path / "a", STOCK), kept(tmp_path / "b", REPAIRED)
    both, one = drawn(a, b, "--out", tmp_path / "both.png"), drawn(a)
    assert one.height < both.height < 2 * one.height + LINE_PX
    columns = [
        x for line in (one.height // 2, one.height * 3 // 2) for x in coloured(both, line, PARTING_COLOUR)
    ]
    assert len(columns) >= 2
    assert not any(coloured(one, line, PARTING_COLOUR) for line in range(one.height))


def test_a_run_of_100000_events_is_one_small_picture(tmp_path: Path) -> None:
    path = large(tmp_path / "run")
    image = drawn(path)
    assert (path / "report.png").stat().st_size < 300_000
    assert assert_marks_are_drawn(image, strip_of(path)) > 1000


def test_what_has_no_trace_cannot_be_drawn(tmp_path: Path) -> None:
    kept(tmp_path / "m" / "one", STOCK)
    assert "of a matrix" in refused_with(tmp_path / "m", "--png")


@pytest.mark.parametrize(("times", "columns"), [([0, 10], [160, 979]), ([5, 5], [570, 570])])
def test_the_first_and_the_last_column_are_the_ends_of_the_time(times: list[int], columns: list[int]) -> None:
    assert column_of(np.array(times, dtype=np.float64), (0.0, 10.0)).tolist() == columns
