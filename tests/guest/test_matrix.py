"""``testbed matrix`` with real guests: it goes on where it was left, and its runs are those of ``testbed run``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from victims import Cache

    from testbed.run import Run


def test_a_matrix_goes_on_where_it_was_left(cache: Cache, tmp_path: Path, seen: Callable[..., Run]) -> None:
    product = ("--nics", "igb,e1000e", "--scenarios", "ring-full,stack-only", "--out", tmp_path)
    half = cache.call("matrix", "--json", *product, "--shard", "1/2")
    assert (half.status, len(half.document()["runs"])) == (1, 2)
    assert "2/2" in half.err
    whole = cache.call("matrix", "--json", *product)
    assert whole.status == 1
    runs = {(run["order"]["scenario"], run["order"]["nic"]): run for run in whole.document()["runs"]}
    verdicts = {place: run["result"]["verdict"] for place, run in runs.items()}
    assert verdicts == {
        ("ring-full", "igb"): "fail",
        ("ring-full", "e1000e"): "unsupported",
        ("stack-only", "igb"): "pass",
        ("stack-only", "e1000e"): "pass",
    }
    assert sum(run["again"] for run in runs.values()) == whole.err.count("(kept)") == 2
    record = seen("ring-full", nic="igb").result.trace
    assert record
    assert runs["ring-full", "igb"]["result"]["trace"]["sequence_digest"] == record.sequence_digest
