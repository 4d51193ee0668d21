"""Rules 1, 2, 4 and 12: each on traces that hold it, violate it, and do not exercise it."""

from __future__ import annotations

import pytest
from judging import outcome
from traces import (
    ZERO_COPY,
    alloc,
    complete,
    event,
    fill,
    frames,
    interleaved,
    later,
    on,
    poll,
    polled,
    reaped,
    redirect,
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

# work-in-budget


@pytest.mark.parametrize("work", [0, 1, 63, 64])
def test_work_within_the_budget_holds(work) -> None:
    result = outcome("work-in-budget", trace_of(poll(work=work)))
    assert (result.outcome, result.observed, result.limit, result.events) == ("hold", work, 64, [])


@pytest.mark.parametrize(
    ("work", "budget", "limit"), [(65, 64, 64), (-1, 64, 0), (1, 0, 0), (9, 8, 8), (-1, 0, 0)]
)
def test_work_outside_the_budget_violates(work, budget, limit) -> None:
    result = outcome("work-in-budget", trace_of(poll(work=64), poll(work=0, budget=0), polled(work, budget)))
    assert (result.outcome, result.observed, result.limit) == ("violated", work, limit)
    assert len(result.events) == 1


def test_the_most_work_of_all_polls_is_observed() -> None:
    assert outcome("work-in-budget", trace_of(poll(work=3), poll(work=9), poll(work=1))).observed == 9


def test_the_worst_poll_is_shown() -> None:
    assert outcome("work-in-budget", trace_of(polled(65), polled(128), polled(66))).observed == 128


def test_a_budget_of_zero_with_no_work_holds() -> None:
    assert outcome("work-in-budget", trace_of(polled(0, 0))).outcome == "hold"


def test_without_a_poll_work_is_not_exercised() -> None:
    assert outcome("work-in-budget", trace_of(fill(1))).outcome == "not-exercised"


# complete-below-budget


def test_short_polls_may_complete() -> None:
    result = outcome("complete-below-budget", trace_of(poll(work=63), poll(work=64), poll(work=0)))
    assert (result.outcome, result.observed, result.limit) == ("hold", 0, 0)


@pytest.mark.parametrize("returned", [True, False])
def test_completing_and_returning_the_budget_violates(returned) -> None:
    trace = trace_of(poll(work=1), frames(1), complete(63, returned=returned), polled(64))
    result = outcome("complete-below-budget", trace)
    assert (result.outcome, result.observed, len(result.events)) == ("violated", 1, 2)


def test_returning_more_than_the_budget_after_completing_violates() -> None:
    assert outcome("complete-below-budget", trace_of(complete(1), polled(65))).outcome == "violated"


def test_a_budget_of_one_leaves_room_for_no_work() -> None:
    assert outcome("complete-below-budget", trace_of(complete(1), polled(1, 1))).outcome == "violated"
    assert outcome("complete-below-budget", trace_of(complete(0), polled(0, 1))).outcome == "hold"
    assert outcome("short-poll-completes", trace_of(polled(1, 1), polled(0, 1))).outcome == "violated"
    assert outcome("no-spin", trace_of(times(64, polled(1, 1)))).outcome == "violated"


def test_completing_is_judged_on_its_own_cpu() -> None:
    trace = trace_of(interleaved(poll(work=3), on(1, frames(1, 2), polled(64, napi=11))))
    assert outcome("complete-below-budget", trace).outcome == "hold"


def test_a_completion_with_a_budget_of_zero_is_another_rules_matter() -> None:
    assert outcome("complete-below-budget", trace_of(complete(), polled(0, 0))).outcome == "not-exercised"


def test_the_cores_completion_while_disabling_is_nobodys() -> None:
    trace = trace_of(step(StepKind.BIND, polled(64), complete(), schedule(), polled(64)), poll(work=1))
    assert outcome("complete-below-budget", trace).outcome == "hold"


def test_full_polls_alone_do_not_exercise_completion() -> None:
    assert outcome("complete-below-budget", trace_of(polled(64), polled(64))).outcome == "not-exercised"


# short-poll-completes


@pytest.mark.parametrize("returned", [True, False])
def test_a_short_poll_that_completes_holds_whatever_came_back(returned) -> None:
    trace = trace_of(polled(64), complete(5, returned=returned), polled(5))
    assert outcome("short-poll-completes", trace).outcome == "hold"


def test_a_short_poll_without_completion_violates() -> None:
    trace = trace_of(poll(work=1), polled(5))
    result = outcome("short-poll-completes", trace)
    assert (result.outcome, result.observed, result.limit) == ("violated", 1, 0)
    assert result.events == [trace.polls.row[1]]


def test_a_short_poll_that_completes_twice_violates() -> None:
    result = outcome("short-poll-completes", trace_of(polled(64), complete(5), complete(5), polled(5)))
    assert (result.outcome, result.observed) == ("violated", 1)


def test_a_completion_on_another_cpu_does_not_count() -> None:
    trace = trace_of(polled(64), on(1, polled(64, napi=11)), on(1, complete(5)), polled(5))
    assert outcome("short-poll-completes", trace).outcome == "violated"


def test_full_polls_and_budget_zero_need_no_completion() -> None:
    trace = trace_of(polled(64), polled(64), polled(0, 0))
    assert outcome("short-poll-completes", trace).outcome == "not-exercised"


def test_a_poll_whose_beginning_is_not_in_the_trace_is_not_judged() -> None:
    assert outcome("short-poll-completes", trace_of(polled(5))).outcome == "not-exercised"
    assert outcome("short-poll-completes", trace_of(schedule(), polled(5))).outcome == "violated"


def test_polls_while_rings_are_taken_down_are_not_judged() -> None:
    trace = trace_of(polled(64), step(StepKind.UNBIND, polled(5)))
    assert outcome("short-poll-completes", trace).outcome == "not-exercised"
    trace = trace_of(polled(64), step(StepKind.UNBIND), polled(5))
    assert outcome("short-poll-completes", trace).outcome == "violated"
    trace = trace_of(polled(64), step(StepKind.SLEEP, polled(5)))
    assert outcome("short-poll-completes", trace).outcome == "violated"


def test_a_step_that_never_ended_is_still_under_way() -> None:
    trace = trace_of(polled(64), event(Kind.STEP_BEGIN, a=StepKind.BIND), polled(5))
    assert outcome("short-poll-completes", trace).outcome == "not-exercised"


# no-spin

FULL = polled(64)
NO_WAKEUP = {"mode": "zerocopy", "need_wakeup": False, "rx_ring": 64}


def test_sixty_four_idle_full_polls_in_a_row_violate() -> None:
    result = outcome("no-spin", trace_of(times(64, FULL)))
    assert (result.outcome, result.observed, result.limit, len(result.events)) == ("violated", 64, 63, 32)


def test_sixty_three_do_not() -> None:
    result = outcome("no-spin", trace_of(times(63, FULL)))
    assert (result.outcome, result.observed) == ("hold", 63)


@pytest.mark.parametrize(
    "between",
    [
        poll(work=3),
        frames(1) + FULL,
        redirect() + FULL,
        verdict(9, Verdict.DROP) + FULL,
        refused(9) + FULL,
    ],
    ids=[
        "a short poll",
        "a redirect",
        "a redirect of a foreign frame",
        "a dropped frame",
        "a frame refused for the first time",
    ],
)
def test_progress_ends_a_streak(between) -> None:
    assert outcome("no-spin", trace_of(times(40, FULL), between, times(40, FULL))).outcome == "hold"


def test_the_same_refused_frame_again_and_again_is_no_progress() -> None:
    assert outcome("no-spin", trace_of(times(70, refused(9) + FULL))).outcome == "violated"


def test_other_napis_do_not_interrupt_a_streak() -> None:
    trace = trace_of(times(64, FULL + poll(work=1, napi=11)))
    assert outcome("no-spin", trace).outcome == "violated"


def test_streaks_of_two_napis_do_not_add_up() -> None:
    trace = trace_of(times(40, FULL + polled(64, napi=11)))
    assert outcome("no-spin", trace).outcome == "hold"


def test_a_streak_over_two_cpus_is_one() -> None:
    assert outcome("no-spin", trace_of(times(40, FULL), on(1, times(40, FULL)))).outcome == "violated"


@pytest.mark.parametrize(
    "between", [stack_rx() + FULL, reaped() + FULL, tx_done(3) + FULL, tx_taken(3) + FULL, alloc(3, 9) + FULL]
)
def test_whatever_moves_is_progress(between) -> None:
    assert outcome("no-spin", trace_of(times(40, FULL), between, times(40, FULL))).outcome == "hold"


@pytest.mark.parametrize("between", [tx_done(0) + FULL, tx_taken(0) + FULL, alloc(0, 9) + FULL])
def test_asking_in_vain_is_no_progress(between) -> None:
    trace = trace_of(times(40, FULL), between, times(40, FULL), settings=ZERO_COPY)
    assert outcome("no-spin", trace).outcome == "violated"


def test_frames_that_are_cleaned_up_unseen_excuse_a_poll_each() -> None:
    for sent in (stack_tx(), verdict(1, Verdict.TX)):
        assert outcome("no-spin", trace_of(times(40, sent), times(103, FULL))).outcome == "hold"
        assert outcome("no-spin", trace_of(times(40, sent), times(105, FULL))).outcome == "violated"
    seen = times(40, stack_tx()) + times(40, reaped() + FULL)
    assert outcome("no-spin", trace_of(seen, times(64, FULL))).outcome == "violated"
    assert outcome("no-spin", trace_of(times(40, stack_tx(1)), times(64, FULL))).outcome == "violated"


def test_a_full_tx_ring_excuses_polls_for_ten_milliseconds() -> None:
    settings = {**ZERO_COPY, "tx_ring": 64}
    busy = tx_taken(60) + FULL
    assert outcome("no-spin", trace_of(busy, times(100, FULL), settings=settings)).outcome == "hold"
    assert (
        outcome("no-spin", trace_of(tx_taken(30), times(100, FULL), settings=settings)).outcome == "violated"
    )
    trace = trace_of(busy, times(30, FULL), later(11), times(100, FULL), settings=settings)
    assert outcome("no-spin", trace).outcome == "violated"


def test_a_refill_that_came_short_must_be_tried_again_without_need_wakeup() -> None:
    short = alloc(0, 20) + FULL
    assert outcome("no-spin", trace_of(times(100, short), settings=NO_WAKEUP)).outcome == "hold"
    assert outcome("no-spin", trace_of(short, times(100, FULL), settings=NO_WAKEUP)).outcome == "violated"
    assert outcome("no-spin", trace_of(times(100, short), settings=ZERO_COPY)).outcome == "violated"


def test_an_empty_fill_ring_without_need_wakeup_is_no_spin() -> None:
    given = fill(*range(64))
    assert outcome("no-spin", trace_of(given, times(100, FULL), settings=NO_WAKEUP)).outcome == "hold"
    assert outcome("no-spin", trace_of(given, times(100, FULL), settings=ZERO_COPY)).outcome == "violated"


def test_a_fill_ring_that_cannot_be_empty_is_no_excuse() -> None:
    trace = trace_of(fill(*range(80)), frames(1, 2), times(100, FULL), settings=NO_WAKEUP)
    assert outcome("no-spin", trace).outcome == "violated"
    trace = trace_of(fill(*range(80)), frames(*range(16)), times(100, FULL), settings=NO_WAKEUP)
    assert outcome("no-spin", trace).outcome == "hold"


def test_short_polls_alone_do_not_exercise_spinning() -> None:
    assert outcome("no-spin", trace_of(poll(work=3), event(Kind.POLL, subject=10))).outcome == "not-exercised"
