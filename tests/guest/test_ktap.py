"""Our KTAP, read by the kernel's own parser: tools/testing/kunit of the kernel that set-up fetched."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from testbed.kernel import resolve
from testbed.report import ktap_head, ktap_lines
from testbed.result import KernelRecord, Result
from testbed.rules import RuleResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.run import Run

OUTCOMES = {
    "work-in-budget": "hold",
    "ring-full-exit": "violated",
    "chunk-single-owner": "waived",
    "no-spin": "not-exercised",
}


class Parse(Protocol):
    def __call__(self, *results: Result) -> Any: ...


@pytest.fixture(scope="module")
def parse() -> Parse:
    """Return what lets the kernel's parser read the document of some results."""
    source = resolve().source
    folder = source / "tools/testing/kunit" if source else None
    if folder is None or not (folder / "kunit_parser.py").exists():
        pytest.fail(f"{resolve().name} was fetched without tools/testing/kunit; run: testbed setup")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)  # nothing of the cache is ever changed
        patch.syspath_prepend(str(folder))
        import kunit_parser  # noqa: PLC0415 - it lies in the cache
        import kunit_printer  # noqa: PLC0415

    def read(*results: Result) -> Any:
        lines = ktap_head(len(results))
        for number, result in enumerate(results, 1):
            lines += ktap_lines(result, number)
        return kunit_parser.parse_run_tests(lines, kunit_printer.Printer(print=False))

    return read


def result_of(verdict: str, outcomes: dict[str, str] = OUTCOMES, error: str | None = None) -> Result:
    return Result(
        verdict=verdict,
        kernel=KernelRecord(name="debian:any", release="7.3.4"),
        nic="igb",
        driver="igb",
        scenario="ring-full",
        clock="virtual",
        accelerator="tcg",
        error=error,
        rules=[
            RuleResult(
                id=name,
                number=number,
                outcome=outcome,
                observed=4,
                limit=1,
                unit="frames",
                message="ok 3 # of 4",
                waiver="known, #12" if outcome == "waived" else None,
            )
            for number, (name, outcome) in enumerate(outcomes.items(), 1)
        ],
        reproduce="testbed run ring-full --nic igb",
    )


def statuses(test: Any) -> dict[str, str]:
    return {each.name: each.status.name for each in test.subtests}


def test_every_outcome_is_read_as_it_is_meant(parse: Parse) -> None:
    test = parse(result_of("fail"))
    assert test.counts.errors == 0
    (run,) = test.subtests
    assert (run.name, run.status.name, run.expected_count) == ("ring-full on igb", "FAILURE", 5)
    assert statuses(run) == {
        "run": "SUCCESS",
        "work-in-budget": "SUCCESS",
        "ring-full-exit": "FAILURE",
        "chunk-single-owner": "SUCCESS",
        "no-spin": "SKIPPED",
    }
    proof = run.subtests[2].log
    assert any("ok 3 # of 4" in line for line in proof)
    assert any("observed: 4 frames, limit: 1" in line for line in proof)


def test_every_verdict_is_read_as_it_is_meant(parse: Parse) -> None:
    held = dict.fromkeys(OUTCOMES, "hold")
    test = parse(
        result_of("pass", held),
        result_of("fail"),
        result_of("broken", held, "3 records of the trace were lost"),
        result_of("broken", {}, "QEMU ended"),
        result_of("unsupported", {}, "igb has zero_copy from kernel 6.14 on"),
    )
    assert test.counts.errors == 0
    assert test.expected_count == 5
    assert [run.status.name for run in test.subtests] == [
        *("SUCCESS", "FAILURE", "FAILURE", "FAILURE", "SKIPPED"),
    ]
    assert statuses(test.subtests[3]) == {"run": "FAILURE"}


def test_a_passing_document_is_a_success(parse: Parse) -> None:
    held = dict.fromkeys(OUTCOMES, "hold")
    test = parse(result_of("pass", held), result_of("pass", held))
    assert (test.status.name, test.counts.errors) == ("SUCCESS", 0)


def test_a_real_run_is_read_whole(parse: Parse, seen: Callable[..., Run]) -> None:
    result = seen("ring-full").result
    test = parse(result)
    assert test.counts.errors == 0
    assert test.counts.total() == 1 + len(result.rules)
    assert test.counts.failed == sum(rule.outcome == "violated" for rule in result.rules)
