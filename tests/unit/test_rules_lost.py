"""Rule 8 on traces that hold it, violate it, and do not exercise it."""

from __future__ import annotations

from judging import outcome
from traces import ZERO_COPY, carrier, event, frames, later, poll, step, trace_of

from testbed.scenario.program import StepKind
from testbed.trace.events import Kind

STACK = {"mode": "none", "xdp_mode": "none"}
COPY = {"mode": "copy", "need_wakeup": True}


def inject(number):
    return step(StepKind.HOST, number=number)


def judged(*parts, settings=COPY, **facts):
    trace = trace_of(*parts, settings=settings, bursts=[(1, 2), (2, 2)], injected=4, **facts)
    return outcome("no-lost-event", trace)


FIRST = inject(1) + later(1) + poll(frames(0, 1), work=2)


def test_a_burst_that_is_polled_for_in_time_holds() -> None:
    result = judged(FIRST, inject(2), later(5), poll(frames(2, 3), work=2), later(50), event(Kind.FLUSH))
    assert (result.outcome, result.observed) == ("hold", 0)


def test_a_burst_that_nobody_comes_for_violates_and_names_its_barrier() -> None:
    result = judged(FIRST, inject(2), later(50), event(Kind.FLUSH))
    assert (result.outcome, result.observed) == ("violated", 1)
    assert len(result.events) == 1


def test_another_cpu_may_have_come_before_the_barrier_has_ended() -> None:
    at_once = step(StepKind.HOST, poll(frames(2, 3), work=2), number=2)
    assert judged(FIRST, at_once, later(50), event(Kind.FLUSH)).outcome == "hold"
    of_before = inject(1) + step(StepKind.HOST, poll(frames(0, 1), work=2), number=2)
    assert judged(of_before, later(50), event(Kind.FLUSH)).outcome == "violated"


def test_a_napi_for_transmission_answers_nothing() -> None:
    reaping = poll(work=0, napi=11)
    result = judged(FIRST, inject(2), later(5), reaping, later(50), event(Kind.FLUSH))
    assert (result.outcome, result.observed) == ("violated", 1)


def test_a_watchdog_two_seconds_later_is_no_excuse() -> None:
    result = judged(FIRST, inject(2), later(2000), poll(frames(2, 3), work=2))
    assert result.outcome == "violated"


def test_a_driver_that_has_not_received_yet_is_not_judged() -> None:
    assert judged(inject(1), later(50), event(Kind.FLUSH)).outcome == "not-exercised"


def test_neither_is_one_that_starts_anew_or_whose_link_goes_down() -> None:
    assert (
        judged(FIRST, carrier(on=False), inject(2), later(50), event(Kind.FLUSH)).outcome == "not-exercised"
    )
    assert judged(FIRST, inject(2), later(1), step(StepKind.RINGS), later(50)).outcome == "not-exercised"


def test_a_trace_that_ends_too_soon_decides_nothing() -> None:
    assert judged(FIRST, inject(2), later(5), event(Kind.FLUSH)).outcome == "not-exercised"


def test_a_zero_copy_ring_without_buffers_is_not_judged() -> None:
    result = judged(FIRST, inject(2), later(50), event(Kind.FLUSH), settings=ZERO_COPY)
    assert result.outcome == "not-exercised"
