"""Rules 3, 5, 10, 11 and 38: each on traces that hold it, violate it, and do not exercise it."""

from __future__ import annotations

import pytest
from judging import outcome
from traces import (
    ZERO_COPY,
    alloc,
    complete,
    event,
    frames,
    interleaved,
    napi_disabled,
    on,
    poll,
    polled,
    reaped,
    refused,
    schedule,
    stack_rx,
    stack_tx,
    step,
    times,
    trace_of,
    tx_done,
    tx_taken,
    verdict,
)

from testbed.scenario.program import StepKind, Verdict
from testbed.trace.events import Kind

GENERIC = {"xdp_mode": "generic"}


def foreign(count):
    return times(count, stack_rx())


# full-poll-not-released


@pytest.mark.parametrize("budget", [1, 8, 64])
def test_a_full_poll_keeps_its_napi(budget) -> None:
    trace = trace_of(polled(budget, budget), poll(work=0, budget=budget))
    result = outcome("full-poll-not-released", trace)
    assert (result.outcome, result.observed, result.limit) == ("hold", 0, 0)


@pytest.mark.parametrize("returned", [True, False])
def test_a_full_poll_that_completed_violates(returned) -> None:
    trace = trace_of(polled(64), complete(63, returned=returned), polled(64), polled(64))
    result = outcome("full-poll-not-released", trace)
    assert (result.outcome, result.observed, result.events) == ("violated", 1, [1, 2])


def test_short_polls_and_budget_zero_are_not_full() -> None:
    trace = trace_of(poll(work=63), polled(0, 0), complete(3), polled(65))
    assert outcome("full-poll-not-released", trace).outcome == "not-exercised"


def test_a_completion_of_another_napi_or_cpu_releases_nothing() -> None:
    trace = trace_of(polled(64), complete(0, napi=11), on(1, complete(3)), polled(64))
    assert outcome("full-poll-not-released", trace).outcome == "hold"


@pytest.mark.parametrize(
    "trace",
    [
        trace_of(event(Kind.DISABLE, subject=10), polled(64), complete(64), schedule(), polled(64)),
        trace_of(step(StepKind.MTU, polled(64), complete(), schedule(), polled(64))),
        trace_of(polled(8, 8), complete(8), polled(8, 8), settings={"busy_poll": True}),
    ],
    ids=["being disabled", "while the driver starts anew", "busy polling preferred"],
)
def test_the_core_may_release_a_full_poll(trace) -> None:
    assert outcome("full-poll-not-released", trace).outcome == "hold"
    assert outcome("complete-below-budget", trace).outcome == "not-exercised"


def test_once_enabled_again_the_core_has_no_cause_to_release() -> None:
    trace = trace_of(napi_disabled(), polled(64), complete(64), polled(64))
    assert outcome("full-poll-not-released", trace).outcome == "violated"
    trace = trace_of(event(Kind.DISABLE, subject=11), polled(64), complete(64), polled(64))
    assert outcome("full-poll-not-released", trace).outcome == "violated"


# single-complete


def test_polls_that_complete_once_hold() -> None:
    result = outcome("single-complete", trace_of(poll(work=1), polled(64), poll(work=3)))
    assert (result.outcome, result.observed) == ("hold", 0)


@pytest.mark.parametrize("work", [5, 64])
def test_completing_twice_violates(work) -> None:
    trace = trace_of(polled(1, 8), complete(5), complete(5, returned=False), polled(work))
    result = outcome("single-complete", trace)
    assert (result.outcome, result.observed, result.events) == ("violated", 1, [1, 2, 3])


def test_two_polls_and_two_napis_complete_once_each() -> None:
    trace = trace_of(
        interleaved(poll(work=1), on(1, poll(work=1, napi=11))), complete(0, napi=11), poll(work=2)
    )
    assert outcome("single-complete", trace).outcome == "hold"


def test_a_completion_behind_a_poll_that_completed_itself_violates() -> None:
    trace = trace_of(complete(1), polled(1), complete(0), complete(0), polled(0))
    assert outcome("single-complete", trace).outcome == "violated"


def test_without_a_completion_nothing_is_exercised() -> None:
    assert outcome("single-complete", trace_of(polled(64), polled(64))).outcome == "not-exercised"


# bounded-consumption


@pytest.mark.parametrize("handed", [frames(*range(64)), foreign(64), times(64, verdict(1, Verdict.DROP))])
def test_as_many_frames_as_the_budget_hold(handed) -> None:
    result = outcome("bounded-consumption", trace_of(handed, polled(64)))
    assert (result.outcome, result.observed, result.limit) == ("hold", 64, 65)


def test_one_more_may_be_refused() -> None:
    trace = trace_of(frames(*range(64)), refused(64), polled(64))
    assert outcome("bounded-consumption", trace).outcome == "hold"


@pytest.mark.parametrize(("count", "budget"), [(66, 64), (3, 1), (10, 8), (128, 64)])
def test_more_frames_than_the_budget_violate(count, budget) -> None:
    trace = trace_of(frames(*range(64)), polled(64), foreign(count), polled(budget, budget))
    result = outcome("bounded-consumption", trace)
    assert (result.outcome, result.observed, result.limit) == ("violated", count, budget + 1)
    assert trace.polls.row[1] in result.events


def test_a_frame_that_goes_on_to_the_stack_counts_once() -> None:
    passed = [line for n in range(64) for line in verdict(n, Verdict.PASS) + stack_rx(n)]
    assert outcome("bounded-consumption", trace_of(passed, polled(64))).observed == 64


def test_generic_xdp_counts_what_the_driver_hands_over_and_not_when_the_program_runs() -> None:
    late = trace_of(
        [line for n in range(64) for line in stack_rx(n)],
        polled(64),
        [line for n in range(64) for line in verdict(n)],
        [line for n in range(64, 70) for line in stack_rx(n) + verdict(n)],
        poll(work=6),
        settings=GENERIC,
    )
    assert (outcome("bounded-consumption", late).outcome, outcome("bounded-consumption", late).observed) == (
        "hold",
        64,
    )


def test_reaping_is_not_consumption_and_budget_zero_is_another_rules() -> None:
    trace = trace_of(times(200, reaped()), poll(work=0), foreign(3), polled(0, 0))
    assert outcome("bounded-consumption", trace).outcome == "not-exercised"


def test_frames_of_two_cpus_do_not_add_up() -> None:
    trace = trace_of(interleaved(foreign(40), on(1, foreign(40))), polled(40), on(1, polled(40, napi=11)))
    assert outcome("bounded-consumption", trace).observed == 40


# idle-reports-zero


def idle(work):
    return schedule() + poll(work=work)


def test_idle_polls_without_work_hold() -> None:
    result = outcome("idle-reports-zero", trace_of(idle(0), idle(0), foreign(2), idle(2)))
    assert (result.outcome, result.observed) == ("hold", 0)
    assert "2 idle polls" in result.message


@pytest.mark.parametrize("work", [1, 63, 64, -1])
def test_an_idle_poll_with_work_violates(work) -> None:
    trace = trace_of(idle(0), idle(work))
    result = outcome("idle-reports-zero", trace)
    assert (result.outcome, result.observed, result.events) == ("violated", 1, [trace.polls.row[1]])


@pytest.mark.parametrize(
    "cause",
    [
        stack_rx(),
        stack_rx(4),
        verdict(1),
        reaped(),
        tx_done(1),
        tx_taken(1),
        alloc(3, 16),
        alloc(0, 16),
    ],
)
def test_whatever_moved_or_failed_to_refill_excuses_work(cause) -> None:
    assert outcome("idle-reports-zero", trace_of(idle(0), schedule(), cause, polled(64))).outcome == "hold"


@pytest.mark.parametrize("vain", [tx_done(0), tx_taken(0), complete(0), alloc(0, 0)])
def test_what_moved_nothing_excuses_no_work(vain) -> None:
    assert outcome("idle-reports-zero", trace_of(idle(0), schedule(), vain, polled(64))).outcome == "violated"


def test_a_clean_up_that_leaves_no_event_excuses_one_poll() -> None:
    for sent in (stack_tx(), verdict(1, Verdict.TX) + idle(1)):
        assert outcome("idle-reports-zero", trace_of(idle(0), sent, reset(), idle(1))).outcome == "hold"
        assert outcome("idle-reports-zero", trace_of(sent, idle(1), idle(1), idle(1))).outcome == "violated"
        assert outcome("idle-reports-zero", trace_of(idle(0), idle(1), sent)).outcome == "violated"
    seen = trace_of(stack_tx(), reaped() + idle(1), idle(1))
    assert outcome("idle-reports-zero", seen).outcome == "violated"


def reset():
    return step(StepKind.SLEEP)


def test_copy_mode_sends_past_the_tracepoint() -> None:
    sent = event(Kind.TX, subject=1)
    assert outcome("idle-reports-zero", trace_of(sent, idle(1), settings={"mode": "copy"})).outcome == "hold"
    assert outcome("idle-reports-zero", trace_of(sent, idle(1), settings=ZERO_COPY)).outcome == "violated"


def test_polls_of_unknown_beginning_or_while_starting_anew_are_not_judged() -> None:
    assert outcome("idle-reports-zero", trace_of(polled(5))).outcome == "not-exercised"
    trace = trace_of(polled(0, 0), event(Kind.DISABLE, subject=10), polled(64))
    assert outcome("idle-reports-zero", trace).outcome == "not-exercised"


def test_each_napi_answers_for_itself() -> None:
    trace = trace_of(idle(0), foreign(1), poll(work=1), poll(work=1, napi=11))
    result = outcome("idle-reports-zero", trace)
    assert (result.outcome, result.events) == ("violated", [trace.polls.row[2]])


# full-poll-justified


def full(*inside, budget=64):
    return schedule() + [line for part in inside for line in part] + polled(budget, budget)


@pytest.mark.parametrize(
    "reason",
    [
        foreign(64),
        tx_taken(8, 8),
        tx_taken(1, 1),
        tx_taken(0, 0),
        tx_done(64),
        times(64, reaped()),
        tx_done(40) + times(24, reaped()),
        alloc(3, 16),
        verdict(1, Verdict.PASS),
    ],
    ids=[
        "its budget of frames",
        "a batch that was full",
        "an entry taken alone",
        "no room in the Tx ring",
        "entries cleaned up",
        "skbs cleaned up",
        "both",
        "a refill that came short",
        "a frame without memory",
    ],
)
def test_a_full_poll_with_a_reason_holds(reason) -> None:
    result = outcome("full-poll-justified", trace_of(full(reason)))
    assert (result.outcome, result.observed) == ("hold", 0)


@pytest.mark.parametrize(
    "inside",
    [[], foreign(63), tx_taken(7, 8), tx_taken(0, 8), tx_done(63), alloc(16, 16), verdict(1, Verdict.DROP)],
)
def test_a_full_poll_without_one_violates(inside) -> None:
    trace = trace_of(poll(work=1), full(inside))
    result = outcome("full-poll-justified", trace)
    assert (result.outcome, result.observed, result.events) == ("violated", 1, [trace.polls.row[1]])


def test_a_small_budget_needs_few_frames() -> None:
    for budget in (1, 8):
        assert (
            outcome("full-poll-justified", trace_of(full(foreign(budget), budget=budget))).outcome == "hold"
        )
        assert (
            outcome("full-poll-justified", trace_of(full(tx_done(budget), budget=budget))).outcome == "hold"
        )
    assert outcome("full-poll-justified", trace_of(full(foreign(7), budget=8))).outcome == "violated"
    assert outcome("full-poll-justified", trace_of(full(tx_done(7), budget=8))).outcome == "violated"


def test_a_clean_up_that_leaves_no_event_is_a_reason_once() -> None:
    assert outcome("full-poll-justified", trace_of(stack_tx(), full())).outcome == "hold"
    result = outcome("full-poll-justified", trace_of(stack_tx(), full(), full()))
    assert (result.outcome, result.observed) == ("violated", 1)


def test_short_polls_and_drivers_starting_anew_need_no_reason() -> None:
    trace = trace_of(poll(work=63), event(Kind.DISABLE, subject=10), full())
    assert outcome("full-poll-justified", trace).outcome == "not-exercised"
    assert outcome("full-poll-justified", trace_of(polled(64))).outcome == "not-exercised"
