"""Reports in a real browser: what it draws is what the trace holds, and it complains of nothing.

`make test-report` installs Chromium and runs these; without one on the host they cannot run.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from large_run import large
from playwright.sync_api import sync_playwright
from test_report import REPAIRED, STOCK
from test_report_campaign import FIRST, SECOND
from test_report_page import kept, written

from testbed.fuzzing.records import keep_campaign
from testbed.recorded import load_recorded
from testbed.report.lanes import lanes_of, times_us
from testbed.result import load_result

if TYPE_CHECKING:
    from pathlib import Path

# Of each lane the marks that its renderers hold, those within the axes' ranges, and how many pixels are in colour.
SEEN = """() => {
  const views = [...Bokeh.index.query((view) => view.model.type === "Figure")];
  return Object.fromEntries(views.map((plot) => {
    const marks = [...plot.renderer_views.values()]
      .filter((each) => each.model.type === "GlyphRenderer" && each.model.name);
    const {width, height} = plot.canvas_view.primary.canvas;
    const pixels = plot.canvas_view.primary.ctx.getImageData(0, 0, width, height).data;
    let coloured = 0;
    for (let at = 0; at < pixels.length; at += 4) {
      const [r, g, b] = [pixels[at], pixels[at + 1], pixels[at + 2]];
      if (pixels[at + 3] > 100 && Math.max(r, g, b) - Math.min(r, g, b) > 60) coloured += 1;
    }
    const count = (measure) => marks.reduce((sum, each) => sum + measure(each.glyph), 0);
    return [plot.model.title.text.split(":")[0], {
      all: count((glyph) => glyph.data_size),
      visible: count((glyph) => glyph.mask_data().count),
      coloured,
    }];
  }));
}"""
# Of each lane the columns of pixels in which something is in colour.
COLUMNS = """() => {
  const views = [...Bokeh.index.query((view) => view.model.type === "Figure")];
  return Object.fromEntries(views.map((plot) => {
    const {width, height} = plot.canvas_view.primary.canvas;
    const pixels = plot.canvas_view.primary.ctx.getImageData(0, 0, width, height).data;
    const columns = new Set();
    for (let at = 0; at < pixels.length; at += 4) {
      const [r, g, b] = [pixels[at], pixels[at + 1], pixels[at + 2]];
      if (pixels[at + 3] > 100 && Math.max(r, g, b) - Math.min(r, g, b) > 60) columns.add(at / 4 % width);
    }
    return [plot.model.title.text.split(":")[0], [...columns]];
  }));
}"""
OPENED_LIMIT_S = 3.0
SPAN = """() => {
  const range = Bokeh.documents.at(-1).get_model_by_name("time");
  return [range.start, range.end];
}"""


@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium")
    assert path, "expected Debian's chromium on this host, seen none; run `make test-report`"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(params=["light", "dark"])
def page(browser, request):
    """A window of 1,000 pixels; an error in its console fails the test, and so does a request to the network."""
    window = browser.new_page(viewport={"width": 1000, "height": 900}, color_scheme=request.param)
    complaints: list[str] = []
    window.on("pageerror", lambda error: complaints.append(str(error)))
    window.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    window.on("request", lambda asked: complaints.append(asked.url) if asked.url.startswith("http") else None)
    yield window
    window.close()
    assert not complaints


def opened(page, file: Path) -> float:
    """Open a page and return after how many seconds all of its timelines were drawn."""
    since = time.monotonic()
    page.goto(file.as_uri())
    page.wait_for_selector("body > .timeline[data-drawn]")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return time.monotonic() - since


def shown(page) -> dict[str, dict[str, int]]:
    return page.evaluate(SEEN)


@pytest.fixture(scope="module")
def large_run(tmp_path_factory):
    path = large(tmp_path_factory.mktemp("large") / "run")
    written(path)
    return path


def expected(path: Path, begin_us: float = -np.inf, end_us: float = np.inf) -> dict[str, int]:
    """Return how many marks each lane of a run has in a span of time."""
    trace = load_recorded(path).trace
    times = times_us(trace)
    return {
        lane.name: sum(
            int(((times[s.rows] >= begin_us) & (times[s.rows] <= end_us)).sum()) for s in lane.series
        )
        for lane in lanes_of(trace, load_result(path).rules)
    }


def test_every_lane_of_a_run_with_100000_events_holds_the_marks_of_the_trace(
    page, large_run, record_property
) -> None:
    file = large_run / "report.html"
    assert file.stat().st_size < 15_000_000
    seconds = opened(page, file)
    record_property("bytes", file.stat().st_size)
    record_property("seconds", round(seconds, 2))
    seen = shown(page)
    assert {name: lane["all"] for name, lane in seen.items()} == expected(large_run)
    assert {name: lane["visible"] for name, lane in seen.items()} == expected(large_run)
    assert {name for name, lane in seen.items() if lane["coloured"]} == {
        n for n, c in expected(large_run).items() if c
    }
    assert page.evaluate("document.documentElement.scrollWidth") <= 1000


def test_a_large_run_opens_within_the_limit(browser, large_run, record_property) -> None:
    """Time of the browser's processors, which others that share them do not change."""
    window = browser.new_page(viewport={"width": 1000, "height": 900})
    metrics = window.context.new_cdp_session(window)
    metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
    record_property("seconds", round(opened(window, large_run / "report.html"), 2))
    measured = metrics.send("Performance.getMetrics")["metrics"]
    spent = next(each["value"] for each in measured if each["name"] == "TaskDuration")
    record_property("cpu_seconds", round(spent, 2))
    window.close()
    assert spent < OPENED_LIMIT_S


def test_marks_that_are_left_out_change_no_column_of_pixels(page, large_run, tmp_path) -> None:
    opened(page, large_run / "report.html")
    thinned = page.evaluate(COLUMNS)
    text = (large_run / "report.html").read_text()
    assert text.count('\nthin("') == 2
    (tmp_path / "all.html").write_text(text.replace('\nthin("', '\nvoid ("'))
    opened(page, tmp_path / "all.html")
    for lane, columns in page.evaluate(COLUMNS).items():
        near = {column + aside for column in thinned[lane] for aside in (-1, 0, 1)}
        assert set(columns) <= near
        assert len(thinned[lane]) <= len(columns)


def test_zooming_leaves_the_marks_of_that_time(page, large_run) -> None:
    opened(page, large_run / "report.html")
    before = page.evaluate(SPAN)
    box = page.locator(".bk-Figure").nth(2).bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.mouse.wheel(0, -600)
    page.wait_for_function(f"() => ({SPAN})()[0] > {before[0]}")
    page.wait_for_timeout(300)
    begin, end = page.evaluate(SPAN)
    assert before[0] < begin < end < before[1]
    rim = (end - begin) * 20 / box["width"]  # a mark is drawn while some of it is in sight
    least, most = expected(large_run, begin, end), expected(large_run, begin - rim, end + rim)
    for name, lane in shown(page).items():
        assert least[name] <= lane["visible"] <= most[name]
    assert 0 < most["polls"] < expected(large_run)["polls"]


def test_a_click_leads_to_the_proof_of_a_violation(page, tmp_path) -> None:
    path = kept(tmp_path / "run", STOCK)
    written(path)
    opened(page, path / "report.html")
    before = page.evaluate(SPAN)
    rule = next(rule for rule in load_result(path).rules if rule.outcome == "violated")
    page.click(f"summary:has-text('{rule.id}') button")
    page.wait_for_function(f"() => ({SPAN})()[0] !== {before[0]}")
    begin, end = page.evaluate(SPAN)
    proof = times_us(STOCK)[rule.events]
    assert begin < proof.min() <= proof.max() < end
    page.click(f"summary:has-text('{rule.id}') b")
    assert page.locator("details.violation[open] pre").first.is_visible()


def test_two_runs_stand_above_each_other(page, tmp_path) -> None:
    a, b = kept(tmp_path / "a", STOCK), kept(tmp_path / "b", REPAIRED)
    written(a, b)
    opened(page, a / "report.html")
    seen = {name: lane["all"] for name, lane in shown(page).items()}
    assert seen == {
        f"{name} / {lane}": count
        for name, path in (("A", a), ("B", b))
        for lane, count in expected(path).items()
    }


def test_a_grid_leads_to_the_timeline_of_a_run(page, tmp_path) -> None:
    path = kept(tmp_path / "m" / "one", STOCK)
    kept(tmp_path / "m" / "two", REPAIRED, nic="stmmac", verdict="pass")
    written(tmp_path / "m")
    page.goto((tmp_path / "m" / "report.html").as_uri())
    page.click(".grid a.fail")
    page.wait_for_selector("#one .timeline[data-drawn]")
    page.wait_for_timeout(300)
    assert {name: lane["all"] for name, lane in shown(page).items()} == expected(path)
    assert page.locator("#two .timeline[data-drawn]").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1000


def test_a_campaign_shows_how_it_grew(page, tmp_path) -> None:
    keep_campaign(tmp_path, FIRST)
    keep_campaign(tmp_path, SECOND)
    written(tmp_path)
    opened(page, tmp_path / "report.html")
    seen = shown(page)
    assert list(seen) == ["inputs run", "basic blocks reached", "features of traces"]
    assert all(lane["all"] == lane["visible"] == 4 and lane["coloured"] for lane in seen.values())
    assert page.locator("td.fail").inner_text() == "ring-full-exit-1234abcd"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1000


def test_ink_and_paper_differ_in_light_and_in_dark(page, tmp_path) -> None:
    path = kept(tmp_path / "run", STOCK)
    written(path)
    opened(page, path / "report.html")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = page.evaluate(
        "[...Bokeh.documents[0].roots()[0].references()].find((m) => m.type === 'Title').text_color"
    )
    assert (paper, ink) == (("rgb(20, 23, 27)", "#e5e7eb") if dark else ("rgb(255, 255, 255)", "#1b1f24"))
