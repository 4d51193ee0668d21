"""The result: verdicts, exit statuses, the JSON form and its way back."""

from __future__ import annotations

import json

import pytest
from test_report import STOCK, result_of

from testbed.errors import UsageError
from testbed.result import (
    decode_result,
    encode_result,
    encode_results,
    judge_run,
    load_result,
    save_result,
    trace_path,
)
from testbed.rules import RuleResult


def line(rule_id: str, outcome: str) -> RuleResult:
    return RuleResult(
        id=rule_id,
        number=1,
        outcome=outcome,
        observed=None,
        limit=None,
        unit="frames",
        message=f"{rule_id} seen",
    )


HOLD, VIOLATED = line("a", "hold"), line("b", "violated")
WAIVED, IDLE = line("c", "waived"), line("d", "not-exercised")


@pytest.mark.parametrize(
    ("rules", "must_exercise", "lost", "verdict"),
    [
        ([HOLD], [], 0, "pass"),
        ([HOLD, WAIVED, IDLE], ["a", "c"], 0, "pass"),
        ([], [], 0, "pass"),
        ([HOLD, VIOLATED], [], 0, "fail"),
        ([HOLD, VIOLATED], [], 3, "fail"),
        ([VIOLATED, IDLE], ["d"], 0, "fail"),
        ([VIOLATED], ["b"], 0, "fail"),
        ([HOLD], [], 1, "broken"),
        ([WAIVED], [], 1, "broken"),
        ([HOLD, IDLE], ["a", "d"], 0, "broken"),
        ([HOLD], ["z"], 0, "broken"),
    ],
)
def test_the_verdict_follows_from_outcomes_and_loss(rules, must_exercise, lost, verdict) -> None:
    assert judge_run(rules, must_exercise, lost).verdict == verdict


def test_a_failure_names_a_loss_and_nothing_else() -> None:
    assert judge_run([VIOLATED], [], 3).error == "3 records of the trace were lost"
    assert judge_run([VIOLATED], [], 0).error is None
    assert judge_run([HOLD], ["a"], 0).error is None


def test_a_broken_run_says_what_is_missing() -> None:
    assert judge_run([HOLD], [], 3).error.startswith("3 records of the trace were lost")
    error = judge_run([HOLD, IDLE], ["d", "z"], 0).error
    assert error == "the scenario must exercise d (d seen), z (not judged)"


@pytest.mark.parametrize(
    ("verdict", "status", "bisect"),
    [("pass", 0, 0), ("fail", 1, 1), ("broken", 3, 125), ("unsupported", 4, 125)],
)
def test_exit_statuses(verdict, status, bisect) -> None:
    result = result_of(STOCK, verdict=verdict)
    assert (result.exit_status(), result.exit_status(bisect=True)) == (status, bisect)


def test_a_result_comes_back_as_it_was() -> None:
    result = result_of(STOCK, settings={"umem_chunks": 8}, program={"name": "x", "steps": [{"fill": 3}]})
    assert decode_result(encode_result(result), "x") == result


def test_the_document_has_the_fields_that_were_promised() -> None:
    document = json.loads(encode_result(result_of(STOCK)))
    assert document.keys() >= {
        "schema_version",
        "verdict",
        "error",
        "kernel",
        "nic",
        "driver",
        "scenario",
        "settings",
        "clock",
        "accelerator",
        "rules",
        "counters",
        "trace",
        "timings",
        "reproduce",
        "program",
    }
    assert document["kernel"].keys() == {
        "name",
        "release",
        "package",
        "variants",
        "patches",
        "asked",
        "contents",
    }
    assert document["rules"][0].keys() == {
        "id",
        "number",
        "outcome",
        "observed",
        "limit",
        "unit",
        "message",
        "events",
        "waiver",
    }
    assert document["counters"].keys() == {
        "frames_injected",
        "frames_on_wire",
        "frames_to_driver",
        "frames_to_socket",
        "frames_to_stack",
        "frames_refused",
        "frames_dropped_by_program",
        "frames_lost",
        "out_of_order",
        "duplicated",
        "tx_submitted",
        "tx_sent",
        "tx_completed",
        "polls",
        "polls_full",
        "irqs",
        "irqs_per_1000_frames",
        "redirect_errors",
        "max_redirect_errors_in_poll",
        "rx_ring_full",
        "timer_fires",
        "virtual_ns",
    }
    assert document["trace"].keys() == {"events", "lost", "sequence_digest"}
    assert document["timings"].keys() == {"boot_s", "restore_s", "run_s", "total_s"}
    assert document["schema_version"] == 1


def test_several_runs_are_one_document() -> None:
    document = json.loads(encode_results([result_of(STOCK), result_of(STOCK)]))
    assert document["schema_version"] == 1
    assert [run["verdict"] for run in document["runs"]] == ["fail", "fail"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"schema_version": "1"}',
        b"\xff\xfe",
        encode_results([]),
        encode_result(result_of(STOCK)).replace(b'"nic"', b'"nick"'),
        encode_result(result_of(STOCK)).replace(b'"fail"', b'"failed"'),
        encode_result(result_of(STOCK)).replace(b'"restore_s"', b'"restored_s"'),
        encode_result(result_of(STOCK)).replace(b'"package"', b'"packet"'),
        encode_result(result_of(STOCK)).replace(b'"waiver"', b'"weaver"'),
        encode_result(result_of(STOCK))[:-20],
    ],
)
def test_anything_else_is_a_usage_error(data) -> None:
    with pytest.raises(UsageError, match="expected the result of one run in some"):
        decode_result(data, "some.json")


def test_another_schema_is_named() -> None:
    data = encode_result(result_of(STOCK)).replace(b'"schema_version": 1', b'"schema_version": 2')
    with pytest.raises(UsageError, match="schema version 2"):
        decode_result(data, "some.json")


def test_a_result_is_loaded_from_its_directory_or_file(tmp_path) -> None:
    file = save_result(tmp_path, result_of(STOCK))
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert load_result(tmp_path) == load_result(file) == result_of(STOCK)
    assert trace_path(tmp_path) == trace_path(file) == tmp_path / "trace.npy"


def test_a_missing_result_is_a_usage_error(tmp_path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_result(tmp_path)
