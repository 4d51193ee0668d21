"""Rules 9 and 13: each on traces that hold it, violate it, and do not exercise it."""

from __future__ import annotations

import pytest
from judging import outcome
from traces import (
    alloc,
    bound,
    complete,
    event,
    filled,
    frame,
    frames,
    interleaved,
    irq,
    napi_disabled,
    on,
    poll,
    polled,
    refused,
    schedule,
    stack_rx,
    step,
    times,
    trace_of,
    verdict,
)

from testbed.scenario.program import StepKind, Verdict
from testbed.trace.events import Kind

STACK = {"mode": "none", "rx_ring": 512}
ZERO_COPY = {"mode": "zerocopy", "need_wakeup": True, "rx_ring": 256}
RULES = ("full-when-backlogged", "irq-rate")


def inject(number):
    return step(StepKind.HOST, number=number)


def woken():
    return irq() + schedule()


def handed(first, count):
    return [line for sequence in range(first, first + count) for line in stack_rx(sequence)]


def burst(*parts, count=96, **facts):
    """A burst of numbered frames, then the parts."""
    return trace_of(inject(3), *parts, **{"settings": STACK, "bursts": [(3, count)], **facts})


def stack_poll(first, count, **how):
    return poll(handed(first, count), work=count, **how)


# full-when-backlogged


def test_full_polls_while_frames_wait_hold() -> None:
    trace = burst(woken(), stack_poll(0, 64), stack_poll(64, 32))
    result = outcome("full-when-backlogged", trace)
    assert (result.outcome, result.observed) == ("hold", 0)
    assert "1 polls" in result.message


def test_a_short_poll_while_frames_wait_violates() -> None:
    trace = burst(woken(), stack_poll(0, 8), woken(), stack_poll(8, 64), stack_poll(72, 24))
    result = outcome("full-when-backlogged", trace)
    assert (result.outcome, result.observed, result.events) == ("violated", 1, [trace.polls.row[0]])


def test_frames_that_the_driver_took_while_the_barrier_ended_count_too() -> None:
    trace = trace_of(
        step(StepKind.HOST, woken(), stack_poll(0, 8), number=3),
        woken(),
        stack_poll(8, 64),
        stack_poll(72, 24),
        settings=STACK,
        bursts=[(3, 96)],
    )
    result = outcome("full-when-backlogged", trace)
    assert (result.outcome, result.observed, result.events) == ("violated", 1, [trace.polls.row[0]])


def test_every_poll_counts_until_less_than_the_budget_waits() -> None:
    trace = burst(*(woken() + stack_poll(first, 8) for first in range(0, 96, 8)))
    assert outcome("full-when-backlogged", trace).observed == 5  # 96, 88, 80, 72, 64 were waiting


def test_a_poll_that_takes_nothing_while_frames_wait_violates() -> None:
    trace = burst(stack_poll(0, 10), poll(work=0), count=80)
    assert outcome("full-when-backlogged", trace).observed == 2


@pytest.mark.parametrize(("budget", "expected"), [(1, "hold"), (8, "hold"), (64, "not-exercised")])
def test_the_budget_at_hand_counts(budget, expected) -> None:
    polls = [stack_poll(first, budget, budget=budget) for first in range(0, 40 - 40 % budget, budget)]
    tail = stack_poll(0, 40) if budget > 40 else []
    assert outcome("full-when-backlogged", burst(*polls, tail, count=40)).outcome == expected


@pytest.mark.parametrize("count", [63, 64])
def test_a_burst_smaller_than_the_budget_says_nothing(count) -> None:
    trace = burst(stack_poll(0, 10), stack_poll(10, count - 10), count=count)
    assert (outcome("full-when-backlogged", trace).outcome == "violated") == (count == 64)


def test_no_more_than_half_the_ring_is_known_to_wait() -> None:
    trace = burst(stack_poll(0, 10), stack_poll(10, 64), settings={"mode": "none", "rx_ring": 120})
    assert outcome("full-when-backlogged", trace).outcome == "not-exercised"
    assert outcome("full-when-backlogged", burst(stack_poll(0, 10), settings={})).outcome == "not-exercised"


def zero_copy(buffers, *parts):
    """A burst of 96 frames that meets so many Rx descriptors with a buffer."""
    start = bound() + filled(*range(200)) + poll(alloc(buffers, 255), work=0)
    return trace_of(start, inject(3), *parts, settings=ZERO_COPY, bursts=[(3, 96)], kernel=(7, 3))


def test_in_zero_copy_as_many_wait_as_there_are_buffers() -> None:
    early = poll(frames(*range(10)), work=10)
    assert outcome("full-when-backlogged", zero_copy(80, early)).outcome == "violated"
    assert outcome("full-when-backlogged", zero_copy(64, early)).outcome == "violated"
    assert outcome("full-when-backlogged", zero_copy(63, early)).outcome == "not-exercised"
    assert outcome("full-when-backlogged", zero_copy(64, frames(*range(64)), polled(64))).outcome == "hold"


def test_buffers_given_after_the_burst_came_make_nothing_wait() -> None:
    trace = zero_copy(10, poll(alloc(200), work=0), poll(frames(*range(10)), work=10))
    assert outcome("full-when-backlogged", trace).outcome == "not-exercised"


def test_a_full_ring_and_an_empty_pool_let_a_poll_leave() -> None:
    for why in (refused(10), frames(10) + alloc(0, 30)):
        assert (
            outcome("full-when-backlogged", zero_copy(80, poll(frames(1, 2), work=2))).outcome
            == "not-exercised"
        )
        trace = zero_copy(80, poll(frames(*range(10)), why, work=11))
        assert outcome("full-when-backlogged", trace).outcome == "not-exercised"


def test_frames_of_an_older_burst_in_the_ring_make_it_unknown() -> None:
    trace = trace_of(
        inject(3),
        inject(4),
        stack_poll(0, 10),
        stack_poll(10, 20),
        settings=STACK,
        bursts=[(3, 10), (4, 96)],
    )
    assert outcome("full-when-backlogged", trace).outcome == "not-exercised"


def test_a_lost_first_frame_makes_it_unknown() -> None:
    assert outcome("full-when-backlogged", burst(stack_poll(1, 10))).outcome == "not-exercised"


@pytest.mark.parametrize(
    "anew", [napi_disabled(), step(StepKind.RINGS), event(Kind.DISABLE, subject=10), step(StepKind.MTU)]
)
def test_a_ring_taken_down_has_no_backlog(anew) -> None:
    trace = burst(stack_poll(0, 64), anew, poll(work=0), count=200)
    assert "1 polls" in outcome("full-when-backlogged", trace).message


def test_a_program_that_drops_takes_frames_too() -> None:
    dropped = [line for n in range(64) for line in verdict(n, Verdict.DROP)]
    assert outcome("full-when-backlogged", burst(dropped, polled(64))).outcome == "hold"


def test_foreign_frames_count_towards_the_budget() -> None:
    trace = burst(handed(0, 40), times(24, stack_rx()), polled(64), stack_poll(40, 56))
    assert outcome("full-when-backlogged", trace).outcome == "hold"
    trace = burst(stack_rx(), handed(0, 8), polled(9))
    assert outcome("full-when-backlogged", trace).outcome == "not-exercised"


def test_the_polls_of_a_tx_napi_are_not_asked() -> None:
    trace = burst(stack_poll(0, 64), poll(work=0, napi=11), stack_poll(64, 64), count=200)
    assert outcome("full-when-backlogged", trace).outcome == "hold"


def test_two_receiving_napis_make_it_unknown() -> None:
    trace = burst(interleaved(stack_poll(0, 5), on(1, stack_poll(5, 5, napi=11))))
    assert outcome("full-when-backlogged", trace).outcome == "not-exercised"


@pytest.mark.parametrize("facts", [{"clock": "real"}, {"bursts": []}])
def test_without_virtual_time_or_bursts_nothing_is_known_to_wait(facts) -> None:
    trace = burst(stack_poll(0, 10), **facts)
    assert [outcome(rule, trace).outcome for rule in RULES] == ["not-exercised"] * 2


def test_the_second_burst_is_judged_too() -> None:
    trace = trace_of(
        inject(3),
        stack_poll(0, 64),
        stack_poll(64, 6),
        inject(9),
        stack_poll(70, 8),
        settings=STACK,
        bursts=[(3, 70), (9, 90)],
    )
    result = outcome("full-when-backlogged", trace)
    assert (result.observed, result.events) == (1, [trace.polls.row[2]])


# irq-rate


def nibbled(size, count=96):
    """One interrupt for every poll of so many frames."""
    sizes = [(first, min(size, count - first)) for first in range(0, count, size)]
    return [line for first, part in sizes for line in woken() + stack_poll(first, part)]


def test_one_interrupt_for_a_burst_holds() -> None:
    trace = burst(woken(), stack_poll(0, 64), stack_poll(64, 32))
    result = outcome("irq-rate", trace)
    assert (result.outcome, result.observed, result.limit) == ("hold", 1, 11)


@pytest.mark.parametrize(("size", "expected"), [(8, "violated"), (4, "violated"), (9, "hold"), (16, "hold")])
def test_an_interrupt_for_every_eight_frames_is_too_many(size, expected) -> None:
    result = outcome("irq-rate", burst(nibbled(size)))
    assert (result.outcome, result.observed) == (expected, -(-96 // size))


def test_the_worst_burst_is_judged() -> None:
    trace = trace_of(
        inject(3),
        woken(),
        stack_poll(0, 64),
        inject(9),
        [line for first in range(64, 128, 4) for line in woken() + stack_poll(first, 4)],
        settings=STACK,
        bursts=[(3, 64), (9, 64)],
    )
    assert (outcome("irq-rate", trace).outcome, outcome("irq-rate", trace).observed) == ("violated", 16)


def test_interrupts_of_other_vectors_and_outside_the_burst_do_not_count() -> None:
    trace = burst(woken(), times(30, irq(31)), stack_poll(0, 64), times(30, irq(31)), stack_poll(64, 32))
    assert outcome("irq-rate", trace).observed == 1
    trace = burst(times(20, woken() + poll(work=0)), nibbled(64), times(20, woken() + poll(work=0)))
    assert outcome("irq-rate", trace).observed == 2


def test_a_vector_that_comes_just_before_a_completion_schedules_again_is_no_vector_of_the_napi() -> None:
    other = times(20, irq(31))
    missed = irq(31) + schedule() + complete(32, returned=False)
    trace = burst(woken(), stack_poll(0, 64), other, handed(64, 31), missed, stack_poll(95, 1))
    assert outcome("irq-rate", trace).observed == 1


def test_small_bursts_are_low_load() -> None:
    assert outcome("irq-rate", burst(nibbled(1, 63), count=63)).outcome == "not-exercised"
    assert outcome("irq-rate", burst(nibbled(1, 64), count=64)).outcome == "violated"


def test_a_burst_that_was_not_taken_to_its_end_is_judged_by_what_was() -> None:
    for taken, said in ((15, "not-exercised"), (16, "violated"), (80, "violated")):
        assert outcome("irq-rate", burst(nibbled(8, taken))).outcome == said
    assert outcome("irq-rate", burst(woken(), stack_poll(0, 64))).outcome == "hold"


def test_polls_that_must_leave_early_cost_interrupts() -> None:
    def exits(leave):
        polls = [woken() + poll(frames(n), leave(n), work=2) for n in range(0, 60, 2)]
        return zero_copy(90, *polls)

    assert outcome("irq-rate", exits(lambda n: frame(n + 1))).outcome == "violated"
    assert outcome("irq-rate", exits(lambda n: refused(n + 1))).outcome == "not-exercised"
    assert outcome("irq-rate", exits(lambda n: frame(n + 1) + alloc(0, 2))).outcome == "not-exercised"


def test_busy_polling_takes_its_time() -> None:
    trace = burst(nibbled(8), settings={**STACK, "busy_poll": True})
    assert outcome("irq-rate", trace).outcome == "not-exercised"


def test_without_moderation_nothing_is_judged() -> None:
    def coalesced(rx_usecs):
        return trace_of(
            step(StepKind.COALESCE, operand=rx_usecs), inject(3), nibbled(4), settings=STACK, bursts=[(3, 96)]
        )

    assert outcome("irq-rate", coalesced(0)).outcome == "not-exercised"
    assert outcome("irq-rate", coalesced(20)).outcome == "violated"


def test_a_single_frame_in_flight_is_no_burst() -> None:
    assert outcome("irq-rate", burst(woken(), poll(frame(0), work=1), count=1)).outcome == "not-exercised"


def test_completions_that_returned_false_are_no_interrupts() -> None:
    again = complete(64, returned=False) + schedule()
    trace = burst(woken(), stack_poll(0, 64), again, stack_poll(64, 32))
    assert outcome("irq-rate", trace).observed == 1
