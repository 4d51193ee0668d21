"""Rules 36 and 37."""

from __future__ import annotations

from judging import outcome
from traces import events_of, fill, poll, step, trace_of

from testbed.scenario.program import StepKind
from testbed.trace import Trace, with_splat_rows

SPLAT = "[    2.000000] WARNING: CPU: 0 PID: 12 at net/core/dev.c:6651 __napi_poll+0x1c0/0x2a0"


def test_a_clean_log_holds() -> None:
    result = outcome("kernel-clean", trace_of(log=["[    1.000000] igb: eth0 NIC Link is Up"]))
    assert (result.outcome, result.observed, result.limit) == ("hold", 0, 0)


def test_a_log_in_which_nothing_was_said_holds() -> None:
    assert outcome("kernel-clean", trace_of(log=[])).outcome == "hold"


def test_a_log_that_was_not_captured_is_not_exercised() -> None:
    assert outcome("kernel-clean", trace_of(poll(work=1))).outcome == "not-exercised"


def test_a_splat_violates_with_its_essence_and_row() -> None:
    log = ["[    1.000000] fine", SPLAT, "[    2.000001] ---[ end trace 0 ]---", SPLAT]
    trace = Trace(events=with_splat_rows(events_of(fill(1)), log), log=log)
    result = outcome("kernel-clean", trace)
    assert (result.outcome, result.observed, result.events) == ("violated", 2, [1, 2])
    assert "line 2 " in result.message
    assert "__napi_poll+0x1c0" in result.message
    assert "(and 1 more)" in result.message


def test_a_guest_that_answers_holds() -> None:
    assert outcome("guest-alive", trace_of(step(StepKind.SLEEP))).outcome == "hold"


def test_a_guest_that_died_violates_and_says_how() -> None:
    result = outcome(
        "guest-alive", trace_of(step(StepKind.SLEEP), alive=False, death="silent for 10 s in step 3")
    )
    assert (result.outcome, result.observed, result.message) == ("violated", 1, "silent for 10 s in step 3")
    assert result.events == [0, 1]


def test_before_the_first_step_nothing_is_said_of_life() -> None:
    assert outcome("guest-alive", trace_of(poll(work=1))).outcome == "not-exercised"
