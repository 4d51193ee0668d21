"""``testbed matrix`` with real guests: it goes on where it was left, and its runs are those of ``testbed run``."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from testbed.run import Run

LIMIT_S = 120


def matrix(*words: str | Path) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, "-c", "from testbed.cli import main; main()", "matrix", "--json", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def test_a_matrix_goes_on_where_it_was_left(tmp_path: Path, seen: Callable[..., Run]) -> None:
    product = ("--nics", "igb,e1000e", "--scenarios", "ring-full,stack-only", "--out", tmp_path)
    status, document, said = matrix(*product, "--shard", "1/2")
    assert (status, len(document["runs"])) == (1, 2)
    assert "2/2" in said
    status, document, said = matrix(*product)
    assert status == 1
    runs = {(run["order"]["scenario"], run["order"]["nic"]): run for run in document["runs"]}
    verdicts = {place: run["result"]["verdict"] for place, run in runs.items()}
    assert verdicts == {
        ("ring-full", "igb"): "fail",
        ("ring-full", "e1000e"): "unsupported",
        ("stack-only", "igb"): "pass",
        ("stack-only", "e1000e"): "pass",
    }
    assert sum(run["again"] for run in runs.values()) == said.count("(kept)") == 2
    record = seen("ring-full", nic="igb").result.trace
    assert record
    assert runs["ring-full", "igb"]["result"]["trace"]["sequence_digest"] == record.sequence_digest
