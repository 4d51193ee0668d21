"""What a corpus keeps of its campaigns, and the page of them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from test_report_page import refused_with, written

from testbed.cli import report
from testbed.fuzzing.campaign import Growth, Summary
from testbed.fuzzing.findings import Finding
from testbed.fuzzing.records import keep_campaign, load_campaigns
from testbed.report.growth import grown

FOUND = Finding(
    name="ring-full-exit-1234abcd",
    rule="ring-full-exit",
    message="2 polls <script>alert(1)</script>",
    repeated=3,
    inputs=1,
    first_seen="2026-12-01T01:00:00+00:00",
    nic="igb",
    driver="igb",
    kernel="",
    data="00",
)


def campaign(begun: str, *growth: Growth, **changes: object) -> Summary:
    last = growth[-1]
    fields = {
        "nic": "igb",
        "kernel": "",
        "jobs": 1,
        "executions_per_s": 1.0,
        "refused": 0,
        "restores": 3,
        "deaths": 0,
        "confirming_s": 0.0,
        "inputs": 4,
        "seen": {FOUND.name: 2},
        "findings": [FOUND],
    }
    return Summary(
        begun=begun,
        seconds=last.seconds,
        executions=last.executions,
        blocks=last.blocks,
        features=last.features,
        growth=list(growth),
        **(fields | changes),  # type: ignore[arg-type] # fields of it
    )


FIRST = campaign("2026-12-01T01:00:00+00:00", Growth(1, 5, 100, 10), Growth(20, 30, 150, 12))
SECOND = campaign("2026-12-02T01:00:00+00:00", Growth(2, 4, 90, 9), Growth(10, 16, 180, 15), inputs=6)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    keep_campaign(tmp_path, SECOND)
    keep_campaign(tmp_path, FIRST)
    return tmp_path


def test_campaigns_come_back_in_their_order_as_they_were_last_kept(corpus: Path) -> None:
    assert load_campaigns(corpus) == [FIRST, SECOND]
    later = msgspec.structs.replace(SECOND, seconds=11.0)
    keep_campaign(corpus, later)
    assert load_campaigns(corpus) == [FIRST, later]


def test_campaigns_stand_behind_each_other_in_time() -> None:
    assert grown([FIRST, SECOND]) == [
        [Growth(1, 5, 100, 10), Growth(20, 30, 150, 12)],
        [Growth(22, 34, 90, 9), Growth(30, 46, 180, 15)],
    ]


def test_the_page_draws_all_that_grew_and_names_what_was_found(corpus: Path) -> None:
    page = written(corpus)
    (drawn,) = re.findall(r'<script type="application/json">(.*)</script>', page)
    names = re.findall(r'"name":"(\w+ / \d)"', drawn)
    assert sorted(names) == sorted(
        f"{what} / {number}" for what in ("executions", "blocks", "features") for number in (0, 1)
    )
    assert "46 inputs run, 1 findings that repeat" in page
    assert "ring-full-exit-1234abcd" in page
    assert "4 times" in page
    assert "<script>alert" not in page
    assert not re.search(r'<(?:script|link|img)[^>]*(?:src|href)="(?!data:)', page)


def test_a_campaign_is_no_picture_and_no_trace(corpus: Path) -> None:
    for form in ("--png", "--perfetto"):
        assert f"expected a run for {form}, seen a corpus" in refused_with(corpus, form)
    assert not list(corpus.glob("report*"))


def test_what_is_no_campaign_of_this_version_is_refused(corpus: Path) -> None:
    file = next((corpus / "campaigns").iterdir())
    file.write_text(file.read_text().replace('"schema_version":1', '"schema_version":99'))
    assert "schema version 99" in refused_with(corpus)
    file.write_text("{")
    assert str(file) in refused_with(corpus)
    for each in (corpus / "campaigns").iterdir():
        each.unlink()
    assert "seen none" in refused_with(corpus)


def test_the_file_may_be_named(corpus: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(report.command, [str(corpus), "--out", str(tmp_path / "growth.html")])
    assert Path(done.output.strip()) == tmp_path / "growth.html"
