"""KTAP of made-up runs; tests/guest/test_ktap.py lets the kernel's own parser read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from test_report import REPAIRED, STOCK, result_of

from testbed.report import ktap_head, ktap_lines
from testbed.rules import RuleResult

if TYPE_CHECKING:
    from testbed.result import Result


def lines_of(result: Result, number: int = 1) -> list[str]:
    return list(ktap_lines(result, number))


def inner(result: Result) -> list[str]:
    """Return the lines of the subtest, without their indentation."""
    return [line.removeprefix("  ") for line in lines_of(result) if line.startswith("  ")]


def test_the_outer_plan_counts_runs() -> None:
    assert ktap_head(3) == ["KTAP version 1", "1..3"]


def test_a_run_is_a_subtest_with_a_point_for_itself_and_for_each_rule() -> None:
    result = result_of(STOCK)
    lines = inner(result)
    assert lines[:3] == ["KTAP version 1", "# Subtest: ring-full on igb", f"1..{1 + len(result.rules)}"]
    points = [line for line in lines if line.startswith(("ok ", "not ok "))]
    assert [int(line.removeprefix("not ").split()[1]) for line in points] == list(range(1, len(points) + 1))
    assert len(points) == 1 + len(result.rules)
    assert points[0] == "ok 1 - run"
    assert lines_of(result, 7)[-1] == "not ok 7 - ring-full on igb"


def test_a_violation_is_not_ok_and_says_what_was_seen_before_it() -> None:
    lines = inner(result_of(STOCK))
    at = next(place for place, line in enumerate(lines) if line.endswith("- ring-full-exit"))
    assert lines[at].startswith("not ok ")
    assert lines[at - 2].startswith("# ring-full-exit: 1 of 1 polls")
    assert lines[at - 1] == "# observed: 2 frames, limit: 1"
    assert "# reproduce: testbed run ring-full --nic igb" in lines


def test_what_was_not_exercised_is_skipped() -> None:
    assert any(" - no-spin # SKIP no poll" in line for line in inner(result_of(STOCK)))


def test_a_waived_violation_is_ok_and_names_the_waiver() -> None:
    waived = RuleResult(
        id="no-spin",
        number=4,
        outcome="waived",
        observed=2,
        limit=1,
        unit="polls",
        message="it spun",
        waiver="known; see\n #12",
    )
    lines = inner(result_of(REPAIRED, rules=[waived], verdict="pass"))
    assert lines[-1] == "ok 2 - no-spin # waived: known; see No. 12"
    assert "# no-spin: it spun" in lines


def test_a_broken_run_is_itself_not_ok() -> None:
    lines = lines_of(result_of(STOCK, verdict="broken", rules=[], error="QEMU ended"))
    assert "  1..1" in lines
    assert "  # QEMU ended" in lines
    assert lines[-2:] == ["  not ok 1 - run", "not ok 1 - ring-full on igb"]


def test_an_unsupported_run_is_one_skipped_point() -> None:
    lines = lines_of(result_of(STOCK, verdict="unsupported", rules=[], error="no zero copy"), 2)
    assert lines == ["ok 2 - ring-full on igb # SKIP no zero copy"]
