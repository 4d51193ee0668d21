"""testbed diff on real guests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from victims import Cache

from testbed.cache import cache_dir

if TYPE_CHECKING:
    from victims import Ended

REPAIRED = "@variant=igb/ring-full-exit"


@pytest.fixture(scope="module")
def diff() -> Ended:
    return Cache(cache_dir()).call("diff", "ring-full", "", REPAIRED, "--nic", "igb", "--json")


def test_stock_and_repaired_igb_part_after_the_first_failed_redirect(diff: Ended) -> None:
    assert diff.status == 1
    parting = diff.document()["parting"]
    assert parting["stream"] == "driver"
    failed = [line for line in parting["a"]["before"] if "-ENOBUFS" in line]
    assert len(failed) == 1
    assert "XDP_EXCEPTION" in parting["last"]  # which the driver records for the refused frame
    assert "VERDICT" in parting["a"]["after"][0]
    assert "FLUSH" in parting["b"]["after"][0]


def test_the_summary_says_what_it_comes_to(diff: Ended) -> None:
    lines = {line["name"]: (line["a"], line["b"]) for line in diff.document()["summary"]}
    assert lines["failed redirects in a poll, most"][1] == 1
    for name in ("failed redirects in a poll, most", "frames lost", "failed redirects"):
        assert lines[name][0] > lines[name][1]


def test_a_kernel_and_itself_are_equal() -> None:
    ended = Cache(cache_dir()).call("diff", "ring-full", REPAIRED, REPAIRED, "--nic", "igb")
    assert ended.status == 0
    assert "The sequences of events are equal" in ended.out


def test_a_kernel_that_cannot_run_it_is_named() -> None:
    ended = Cache(cache_dir()).call("diff", "ring-full", "", "debian:trixie", "--nic", "igb", "--json")
    assert ended.status == 4
    assert "igb has zero_copy from kernel 6.14 on" in ended.err
    assert ended.document()["b"]["verdict"] == "unsupported"
