"""Lanes of a trace, and the files that show them: every mark stands for an event of the trace, and none is left out."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from test_report import REPAIRED, STOCK, result_of
from traces import event, fill, irq, poll, trace_of

from testbed.cli import report
from testbed.errors import UsageError
from testbed.report.lanes import lanes_of, times_us
from testbed.result import save_result
from testbed.scenario import load
from testbed.trace import save_events
from testbed.trace.events import Kind, Ring


def kept(path, trace, **changes):
    path.mkdir(parents=True)
    program = msgspec.to_builtins(load("ring-full"))
    if trace is not None:
        save_events(path / "trace.npy", trace.events)
        save_result(path, result_of(trace, program=program, **changes))
    return path


def written(*words) -> str:
    done = CliRunner().invoke(report.command, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0
    return Path(done.output.strip()).read_text()


def refused_with(*words) -> str:
    with pytest.raises(UsageError) as error:
        CliRunner().invoke(report.command, [str(word) for word in words], catch_exceptions=False)
    assert "\n" not in str(error.value)
    return str(error.value)


def lane(trace, name, rules=()):
    return next(each for each in lanes_of(trace, rules) if each.name == name)


def test_each_lane_has_a_mark_for_each_of_its_events() -> None:
    trace = trace_of(
        irq(30), irq(31), poll(work=3), poll(work=0),
        event(Kind.RING, subject=Ring.FILL, a=5, b=2, c=8),
        event(Kind.RING, subject=Ring.FILL, a=1, b=-1, c=8),
        event(Kind.WATCHDOG, subject=10), event(Kind.LINK, cpu=255, a=1),
    )  # fmt: skip
    marks = {each.name: len(each) for each in lanes_of(trace, [])}
    assert marks == {
        "injected frames": 0, "interrupts": 2, "polls": 2, "completions": len(trace.rows(Kind.COMPLETE)),
        "failed redirects": 0, "ring levels": 2, "timer fires": 1, "device events": 1, "violations": 0,
    }  # fmt: skip
    assert [each.name for each in lane(trace, "interrupts").series] == ["irq 30", "irq 31"]
    assert lane(trace, "polls").series[0].height.tolist() == [3, 0]
    assert lane(trace, "ring levels").series[0].height.tolist() == [3, 2]


def test_failed_redirects_and_proofs_are_the_rows_that_the_result_cites() -> None:
    rules = result_of(STOCK).rules
    (failed,) = lane(STOCK, "failed redirects").series
    assert failed.name == "ENOBUFS"
    assert len(failed.rows) == 2
    violated = {rule.id: rule.events for rule in rules if rule.outcome == "violated"}
    assert {s.name: s.rows.tolist() for s in lane(STOCK, "violations", rules).series} == violated
    assert violated


def test_bursts_stand_where_their_barrier_ended() -> None:
    steps = (
        event(Kind.STEP_END, subject=4) + event(Kind.STEP_END, subject=5) + event(Kind.STEP_END, subject=9)
    )
    series = lane(trace_of(fill(0), steps, bursts=[(4, 50), (9, 7)]), "injected frames").series[0]
    assert series.rows.tolist() == [1, 3]
    assert series.height.tolist() == [50, 7]


def test_a_line_of_the_log_stands_with_the_event_before_it() -> None:
    trace = trace_of(irq(), irq(), event(Kind.LOG, subject=3))
    trace.events["time_ns"] = [1000, 3000, 0]
    assert times_us(trace).tolist() == [0, 2, 2]


def test_the_page_of_a_run_needs_nothing_else_and_draws_every_lane(tmp_path) -> None:
    page = written(kept(tmp_path / "run", STOCK))
    assert not re.search(r'<(?:script|link|img)[^>]*(?:src|href)="(?!data:)', page)
    (drawn,) = re.findall(r'<script type="application/json">(.*)</script>', page)
    names = Counter(re.findall(r'"name":"([\w -]+ / [\w -]+)"', drawn))
    assert names["failed redirects / ENOBUFS"] == 1
    assert names["violations / ring-full-exit"] == 1
    json.loads(drawn)


def test_two_runs_are_marked_where_they_part(tmp_path) -> None:
    page = written(kept(tmp_path / "a", STOCK), kept(tmp_path / "b", REPAIRED))
    (drawn,) = re.findall(r'<script type="application/json">(.*)</script>', page)
    assert drawn.count('"name":"parting"') == 2 * len(lanes_of(STOCK, []))
    same = written(tmp_path / "a", tmp_path / "a", "--out", tmp_path / "same.html")
    assert '"name":"parting"' not in same
    assert "do not part" in same


def test_a_matrix_is_a_grid_that_leads_to_its_runs(tmp_path) -> None:
    kept(tmp_path / "m" / "one", STOCK)
    kept(tmp_path / "m" / "two", REPAIRED, nic="stmmac", verdict="pass")
    page = written(tmp_path / "m")
    for place, verdict in (("one", "fail"), ("two", "pass")):
        assert f'<a class="{verdict}" href="#{place}">{verdict}</a>' in page
        assert f'id="{place}"' in page
    assert page.count('<script type="application/json">') == 2


def test_what_the_guest_said_cannot_become_part_of_the_page(tmp_path) -> None:
    page = written(kept(tmp_path / "run", STOCK, error="<script>alert(1)</script>", scenario="</title><b>"))
    assert "<script>alert" not in page
    assert "</title><b>" not in page


def test_perfetto_gets_a_track_for_each_lane_with_all_its_marks(tmp_path) -> None:
    document = json.loads(written(kept(tmp_path / "run", STOCK), "--perfetto"))
    events = document["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    lanes = lanes_of(STOCK, result_of(STOCK).rules)
    assert list(tracks.values()) == [each.name for each in lanes]
    marks = [each for each in events if each["ph"] == "i"]
    for each in lanes:
        mine = sorted(mark["args"]["row"] for mark in marks if tracks[mark["tid"]] == each.name)
        assert mine == sorted(np.concatenate([s.rows for s in each.series] or [[]]).tolist())
    for mark in marks:
        assert mark["ts"] == pytest.approx(times_us(STOCK)[mark["args"]["row"]])
    works = [e["args"]["work"] for e in events if e["ph"] == "C" and e["name"] == "polls: work"]
    assert works == STOCK.polls.work.tolist()


def test_a_report_of_nothing_says_what_was_expected(tmp_path) -> None:
    assert "seen none" in refused_with(tmp_path)
    assert "No such file" in refused_with(tmp_path / "missing")


def test_a_result_of_a_newer_version_is_refused(tmp_path) -> None:
    kept(tmp_path / "m" / "run", STOCK, schema_version=99)
    assert "schema version 99" in refused_with(tmp_path / "m")


def test_a_run_without_a_trace_has_a_page_but_nothing_to_draw(tmp_path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    save_result(path, result_of(STOCK, trace=None, verdict="broken", error="the guest died"))
    assert "the guest died" in written(path)
    assert "left no trace: the guest died" in refused_with(path, "--perfetto")
    assert "left no trace" in refused_with(path, path)


def test_a_trace_of_another_run_is_refused(tmp_path) -> None:
    path = kept(tmp_path / "run", STOCK)
    save_events(path / "trace.npy", REPAIRED.events)
    assert "found" in refused_with(path)


def test_a_matrix_cannot_be_one_trace(tmp_path) -> None:
    kept(tmp_path / "m" / "one", STOCK)
    assert "of a matrix" in refused_with(tmp_path / "m", "--perfetto")
