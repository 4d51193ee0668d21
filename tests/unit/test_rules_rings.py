"""Rules 22, 25 and 26: each on traces that hold it, violate it, and do not exercise it."""

from __future__ import annotations

import errno

import numpy as np
import pytest
from judging import outcome
from traces import (
    ZERO_COPY,
    complete,
    completed,
    fill,
    flush,
    frames,
    interleaved,
    on,
    poll,
    polled,
    redirect,
    refused,
    rx,
    statistic,
    step,
    trace_of,
    tx,
    verdict,
)

from testbed.scenario.program import StepKind, Verdict
from testbed.trace.events import Kind, XdpStatistics

COPY = {"mode": "copy", "need_wakeup": True}


def zero_copy(*parts, **facts):
    return trace_of(*parts, settings=ZERO_COPY, **facts)


# ring-full-exit


def test_leaving_at_the_first_refused_frame_holds() -> None:
    trace = zero_copy(
        poll(frames(1, 2), refused(3), work=3), poll(refused(4), work=1), poll(frames(5, 6), work=2)
    )
    result = outcome("ring-full-exit", trace)
    assert (result.outcome, result.observed, result.limit) == ("hold", 1, 1)


def test_going_on_after_a_refused_frame_violates() -> None:
    trace = zero_copy(poll(frames(1), refused(2), refused(3), refused(4), work=4), poll(refused(5), work=1))
    result = outcome("ring-full-exit", trace)
    assert (result.outcome, result.observed, result.limit) == ("violated", 3, 1)
    assert result.events == [3, 5, 7, trace.polls.row[0]]
    assert "up to 3 failed redirects" in result.message


def test_the_poll_that_took_most_is_the_proof() -> None:
    trace = zero_copy(poll(refused(1), refused(2), work=2), poll(refused(3), refused(4), refused(5), work=3))
    result = outcome("ring-full-exit", trace)
    assert result.observed == 3
    assert result.events == [*trace.rows(Kind.REDIRECT)[2:], trace.polls.row[1]]


def test_a_frame_taken_by_the_ring_after_a_refused_one_violates() -> None:
    result = outcome("ring-full-exit", zero_copy(poll(refused(2), frames(3), work=2)))
    assert (result.outcome, result.observed) == ("violated", 2)


def test_a_frame_that_our_program_dropped_after_a_refused_one_violates() -> None:
    after = verdict(3, Verdict.DROP)
    assert outcome("ring-full-exit", zero_copy(poll(refused(2), after, work=2))).outcome == "violated"
    assert outcome("ring-full-exit", zero_copy(poll(after, refused(2), work=2))).outcome == "hold"
    assert (
        outcome("ring-full-exit", zero_copy(poll(refused(2), work=2), poll(after, work=1))).outcome == "hold"
    )


def test_a_frame_that_says_no_queue_is_not_held_against_a_poll_of_two() -> None:
    trace = zero_copy(poll(redirect(queue=1), refused(2), verdict(3, Verdict.DROP), work=3))
    assert outcome("ring-full-exit", trace).outcome == "hold"


def test_each_queue_of_a_poll_may_refuse_once() -> None:
    assert (
        outcome("ring-full-exit", zero_copy(poll(refused(1), refused(2, queue=1), work=2))).outcome == "hold"
    )
    trace = zero_copy(poll(refused(1), refused(2, queue=1), refused(3, queue=1), work=3))
    assert outcome("ring-full-exit", trace).outcome == "violated"


def test_refusals_of_two_cpus_are_of_two_polls() -> None:
    trace = zero_copy(interleaved(poll(refused(1), work=1), on(1, poll(refused(2), work=1, napi=11))))
    assert outcome("ring-full-exit", trace).outcome == "hold"


@pytest.mark.parametrize(
    "settings",
    [
        COPY,
        {"mode": "zerocopy", "need_wakeup": False},
        {**ZERO_COPY, "xdp_mode": "generic"},
        {},
    ],
)
def test_only_zero_copy_with_need_wakeup_exercises_the_exit(settings) -> None:
    trace = trace_of(poll(refused(1), refused(2), work=2), settings=settings)
    assert outcome("ring-full-exit", trace).outcome == "not-exercised"


def test_other_errors_and_free_rings_do_not_exercise_the_exit() -> None:
    trace = zero_copy(poll(frames(1), redirect(errno.EINVAL), redirect(errno.EINVAL), work=3))
    assert outcome("ring-full-exit", trace).outcome == "not-exercised"


def test_refusals_outside_any_poll_do_not_exercise_the_exit() -> None:
    assert (
        outcome("ring-full-exit", zero_copy(poll(work=0), refused(1), refused(2))).outcome == "not-exercised"
    )


# completion-order

SENT = tx(5, 100) + tx(3, 101) + tx(4, 102)


def test_completions_in_the_order_of_submission_hold() -> None:
    result = outcome("completion-order", zero_copy(SENT, completed(5, 3), tx(5, 103), completed(4, 5)))
    assert (result.outcome, result.observed, result.limit) == ("hold", 0, 0)


def test_completions_out_of_order_violate_in_zero_copy_only() -> None:
    result = outcome("completion-order", zero_copy(SENT, completed(3, 5, 4)))
    assert (result.outcome, result.observed, result.events) == ("violated", 2, [3, 4])
    assert outcome("completion-order", trace_of(SENT, completed(3, 5, 4), settings=COPY)).outcome == "hold"


@pytest.mark.parametrize("settings", [ZERO_COPY, COPY])
def test_a_completion_of_what_was_not_submitted_violates(settings) -> None:
    trace = trace_of(SENT, completed(5, 9), settings=settings)
    assert outcome("completion-order", trace).outcome == "violated"
    trace = trace_of(SENT, completed(5, 3, 4, 4), settings=settings)
    assert outcome("completion-order", trace).events == [6]
    trace = trace_of(fill(5), SENT, completed(5, 5), settings=settings)
    assert outcome("completion-order", trace).outcome == "violated"


def test_a_new_socket_begins_anew() -> None:
    trace = zero_copy(SENT, completed(5, 3), step(StepKind.BIND), tx(7, 200), tx(8, 201), completed(7, 8))
    assert outcome("completion-order", trace).outcome == "hold"


def test_invalid_descriptors_may_be_left_out_but_no_more_than_there_were() -> None:
    invalid = statistic(XdpStatistics.TX_INVALID_DESCS, 1)
    assert outcome("completion-order", zero_copy(SENT, completed(5, 4), invalid)).outcome == "hold"
    assert outcome("completion-order", zero_copy(SENT, completed(5, 4))).outcome == "violated"
    assert (
        outcome("completion-order", zero_copy(SENT, tx(9, 103), completed(5, 9), invalid)).outcome
        == "violated"
    )
    assert outcome("completion-order", zero_copy(SENT, completed(4, 3), invalid)).outcome == "violated"


@pytest.mark.parametrize("settings", [ZERO_COPY, COPY])
def test_a_completed_frame_that_never_left_violates(settings) -> None:
    trace = trace_of(SENT, completed(5, 3, 4), settings=settings, wire_sequences=np.array([100, 102]))
    result = outcome("completion-order", trace)
    assert (result.outcome, result.observed, result.events) == ("violated", 1, [4])


def test_the_very_first_row_counts_too() -> None:
    trace = zero_copy(SENT, completed(5, 3, 4), wire_sequences=np.array([101, 102]))
    assert outcome("completion-order", trace).events == [3]
    trace = trace_of(redirect(), complete(1), polled(1))
    assert outcome("flush-before-complete", trace).events == [0, 2]


def test_a_frame_that_left_and_is_not_completed_yet_is_fine() -> None:
    trace = zero_copy(SENT, completed(5, 3), wire_sequences=np.array([100, 101, 102]))
    assert outcome("completion-order", trace).outcome == "hold"


def test_what_left_is_not_judged_when_the_guest_died() -> None:
    trace = zero_copy(SENT, completed(5, 3), wire_sequences=np.array([100]), alive=False)
    assert outcome("completion-order", trace).outcome == "hold"


def test_fewer_than_two_completions_say_nothing_of_order() -> None:
    assert outcome("completion-order", zero_copy(SENT, completed(5))).outcome == "not-exercised"


# flush-before-complete


def test_flushing_before_completing_holds() -> None:
    trace = trace_of(poll(frames(1, 2), work=2), poll(frames(3), work=64), poll(work=0))
    result = outcome("flush-before-complete", trace)
    assert (result.outcome, result.observed, result.limit) == ("hold", 0, 0)


def test_never_flushing_violates() -> None:
    trace = trace_of(poll(frames(1), work=1), poll(frames(2), work=1, flushed=False))
    result = outcome("flush-before-complete", trace)
    assert (result.outcome, result.observed) == ("violated", 1)
    assert result.events == [trace.polls.last(trace.rows(37))[1], trace.polls.row[1]]


def test_a_full_poll_must_flush_too() -> None:
    assert (
        outcome("flush-before-complete", trace_of(poll(frames(1), work=64, flushed=False))).outcome
        == "violated"
    )


@pytest.mark.parametrize(
    "order",
    [
        frames(1) + complete(1) + flush() + polled(1),
        frames(1) + flush() + frames(2) + complete(2) + flush() + polled(2),
        frames(1) + flush() + complete(1) + frames(2) + flush() + polled(2),
        frames(1) + flush() + frames(2) + complete(2) + polled(2),
        flush() + frames(1) + complete(1) + polled(1),
    ],
)
def test_any_other_order_violates(order) -> None:
    assert outcome("flush-before-complete", trace_of(order)).outcome == "violated"


def test_a_second_flush_after_completing_is_fine() -> None:
    trace = trace_of(frames(1), flush(), complete(1), flush(), polled(1))
    assert outcome("flush-before-complete", trace).outcome == "hold"


def test_a_flush_on_another_cpu_or_in_the_next_poll_does_not_count() -> None:
    trace = trace_of(frames(1), on(1, flush()), complete(1), polled(1), on(1, polled(0)))
    assert outcome("flush-before-complete", trace).outcome == "violated"
    trace = trace_of(frames(1), complete(1), polled(1), flush(), complete(), polled(0))
    assert outcome("flush-before-complete", trace).outcome == "violated"


def test_interleaved_polls_of_two_cpus_hold() -> None:
    trace = trace_of(interleaved(poll(frames(1, 2, 3), work=3), on(1, poll(frames(4), work=1, napi=11))))
    assert outcome("flush-before-complete", trace).outcome == "hold"


def test_generic_xdp_flushes_by_itself() -> None:
    trace = trace_of(poll(frames(1), work=1, flushed=False), settings={"xdp_mode": "generic"})
    assert outcome("flush-before-complete", trace).outcome == "not-exercised"


def test_refused_frames_and_deliveries_alone_do_not_exercise_flushing() -> None:
    trace = trace_of(poll(refused(1), work=1, flushed=False), rx(0, 1), frames(2))
    assert outcome("flush-before-complete", trace).outcome == "not-exercised"
