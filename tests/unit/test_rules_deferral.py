"""Rules 15 and 16: each on traces that hold it, violate it, and do not exercise it."""

from __future__ import annotations

import numpy as np
import pytest
from judging import outcome
from traces import (
    complete,
    event,
    interleaved,
    napi_disabled,
    on,
    poll,
    polled,
    schedule,
    stack_rx,
    stack_tx,
    step,
    times,
    trace_of,
    tx_done,
    verdict,
    watchdog,
)

from testbed.scenario.program import STEP, Setting, StepKind, Verdict
from testbed.trace.events import Kind

DEFER, TIMEOUT = Setting.NAPI_DEFER_HARD_IRQS, Setting.GRO_FLUSH_TIMEOUT


def program(*values):
    """The steps of a program that only sets knobs, from step 0 on."""
    steps = np.zeros(len(values), dtype=STEP)
    for number, (knob, value) in enumerate(values):
        steps[number]["kind"], steps[number]["a"], steps[number]["b"] = StepKind.SET, knob, value
    return steps


def set_knob(number, knob):
    return step(StepKind.SET, number=number, operand=knob)


def deferring(*parts, defer=2, timeout=200_000, **facts):
    begin = set_knob(0, DEFER) + set_knob(1, TIMEOUT)
    return trace_of(begin, *parts, steps=program((DEFER, defer), (TIMEOUT, timeout)), **facts)


def busy(work=1):
    return schedule() + times(work, stack_rx()) + deferred(work)


def deferred(work=0, napi=10):
    """A poll that completes and keeps its interrupt masked."""
    return complete(work, napi, returned=False) + polled(work, napi=napi)


def released(napi=10):
    return complete(0, napi) + polled(0, napi=napi)


# deferral-drains


@pytest.mark.parametrize("idle", [0, 1, 2])
def test_a_deferral_that_drains_within_its_count_holds(idle) -> None:
    trace = deferring(busy(), times(idle, watchdog() + deferred()), watchdog() + released())
    result = outcome("deferral-drains", trace)
    assert (result.outcome, result.observed, result.limit) == ("hold", idle + 1, 3)


def test_a_deferral_that_never_drains_violates() -> None:
    trace = deferring(busy(), times(4, watchdog() + deferred()))
    result = outcome("deferral-drains", trace)
    assert (result.outcome, result.observed, result.limit, len(result.events)) == ("violated", 4, 3, 4)


def test_idle_polls_that_report_work_do_not_count_as_work() -> None:
    trace = deferring(busy(), times(9, watchdog() + deferred(63)))
    assert (outcome("deferral-drains", trace).outcome, outcome("deferral-drains", trace).observed) == (
        "violated",
        9,
    )


def test_draining_too_late_violates() -> None:
    trace = deferring(busy(), times(3, watchdog() + deferred()), watchdog() + released())
    assert outcome("deferral-drains", trace).outcome == "violated"


def test_real_work_begins_the_count_anew() -> None:
    again = times(2, watchdog() + deferred()) + watchdog() + stack_rx() + deferred(1)
    assert outcome("deferral-drains", deferring(busy(), times(9, again))).outcome == "not-exercised"
    trace = deferring(busy(), times(9, again), times(2, watchdog() + deferred()), watchdog() + released())
    assert outcome("deferral-drains", trace).outcome == "hold"


def test_polls_that_no_timer_asked_for_begin_the_count_anew() -> None:
    trace = deferring(busy(), times(9, watchdog() + deferred() + schedule() + deferred()))
    assert outcome("deferral-drains", trace).outcome == "not-exercised"


def test_the_timer_of_another_napi_is_no_cause() -> None:
    trace = deferring(busy(), times(9, watchdog(11) + deferred()))
    assert outcome("deferral-drains", trace).outcome == "not-exercised"


def test_each_napi_drains_for_itself() -> None:
    each = watchdog() + deferred() + watchdog(11) + deferred(napi=11)
    assert outcome("deferral-drains", deferring(busy(), times(3, each))).outcome == "not-exercised"
    assert outcome("deferral-drains", deferring(busy(), times(4, each))).outcome == "violated"


def test_a_timer_on_one_cpu_and_the_poll_on_another() -> None:
    moved = times(4, watchdog() + on(1, deferred()))
    assert outcome("deferral-drains", deferring(busy(), moved)).outcome == "violated"
    mixed = times(4, interleaved(watchdog(), on(1, busy())))
    assert outcome("deferral-drains", deferring(mixed)).outcome == "not-exercised"


@pytest.mark.parametrize(("defer", "timeout"), [(0, 200_000), (2, 0)])
def test_without_both_knobs_nothing_is_deferred(defer, timeout) -> None:
    trace = deferring(busy(), times(9, watchdog() + deferred()), defer=defer, timeout=timeout)
    assert outcome("deferral-drains", trace).outcome == "not-exercised"


def test_an_unknown_program_says_nothing() -> None:
    begin = set_knob(0, DEFER) + set_knob(1, TIMEOUT)
    trace = trace_of(begin, busy(), times(9, watchdog() + deferred()))
    assert outcome("deferral-drains", trace).outcome == "not-exercised"


def test_knobs_turned_meanwhile_begin_the_count_anew() -> None:
    steps = program((DEFER, 2), (TIMEOUT, 200_000), (DEFER, 5))
    begin = set_knob(0, DEFER) + set_knob(1, TIMEOUT)
    idle = times(3, watchdog() + deferred())
    trace = trace_of(begin, busy(), idle, set_knob(2, DEFER), idle[:-3], released(), steps=steps)
    result = outcome("deferral-drains", trace)
    assert (result.outcome, result.observed, result.limit) == ("hold", 3, 6)


def test_work_that_leaves_no_event_may_be_real() -> None:
    reaping = times(9, watchdog() + deferred(1))
    assert outcome("deferral-drains", deferring(stack_tx(), reaping)).outcome == "not-exercised"
    assert outcome("deferral-drains", deferring(verdict(1, Verdict.TX), reaping)).outcome == "not-exercised"
    idle = times(9, watchdog() + deferred(0))
    assert outcome("deferral-drains", deferring(stack_tx(), idle)).outcome == "violated"


def test_a_driver_starting_anew_begins_the_count_anew() -> None:
    idle = times(2, watchdog() + deferred())
    disabled = event(Kind.DISABLE, subject=10) + watchdog() + deferred() + napi_disabled()
    assert outcome("deferral-drains", deferring(idle, disabled, idle)).outcome == "not-exercised"


# tx-work-reported


def sent(work, completes=None):
    lines = schedule() + tx_done(8)
    return lines + (complete(work) if completes is None else completes) + polled(work)


def test_reaping_that_is_reported_holds() -> None:
    result = outcome("tx-work-reported", trace_of(sent(8), sent(1), driver="stmmac"))
    assert (result.outcome, result.observed) == ("hold", 0)


def test_reaping_that_is_not_reported_violates_where_it_must_be() -> None:
    trace = trace_of(sent(8), sent(0), driver="stmmac")
    result = outcome("tx-work-reported", trace)
    assert (result.outcome, result.observed) == ("violated", 1)
    assert trace.polls.row[1] in result.events


def test_what_was_passed_counts_and_not_what_was_returned() -> None:
    trace = trace_of(schedule(), tx_done(8), complete(0), polled(8), driver="stmmac")
    assert outcome("tx-work-reported", trace).outcome == "violated"
    trace = trace_of(schedule(), tx_done(8), complete(8), polled(0), driver="stmmac")
    assert outcome("tx-work-reported", trace).outcome == "hold"


@pytest.mark.parametrize("driver", ["igb", ""])
def test_of_other_drivers_it_is_only_told(driver) -> None:
    result = outcome("tx-work-reported", trace_of(sent(0), sent(3), driver=driver))
    assert result.outcome == "not-exercised"
    assert "1 of 2 polls that reaped Tx completions reported no work" in result.message


@pytest.mark.parametrize(
    "lines", [poll(work=0), schedule() + tx_done(0) + poll(work=0), schedule() + tx_done(64) + polled(64)]
)
def test_polls_that_reaped_nothing_or_go_on_are_not_asked(lines) -> None:
    assert outcome("tx-work-reported", trace_of(lines, driver="stmmac")).outcome == "not-exercised"
