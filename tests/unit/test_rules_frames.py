"""Rules 23 and 27: each on traces that hold it, violate it, and do not exercise it."""

from __future__ import annotations

import numpy as np
import pytest
from judging import outcome
from traces import (
    ZERO_COPY,
    alloc,
    bound,
    carrier,
    event,
    filled,
    frame,
    frames,
    interleaved,
    later,
    napi_disabled,
    on,
    poll,
    redirect,
    refused,
    rx,
    schedule,
    stack_rx,
    step,
    trace_of,
    tx,
    verdict,
)

from testbed.scenario.program import ALL, StepKind, Verdict
from testbed.trace.events import Kind

NEW, OLD = (6, 8), (6, 7)
COPY = {"mode": "copy", "need_wakeup": True}
GENERIC = {"mode": "copy", "xdp_mode": "generic"}


def passed(*sequences):
    return [line for n in sequences for line in verdict(n, Verdict.PASS) + stack_rx(n)]


def dropped(*sequences):
    return [line for n in sequences for line in verdict(n, Verdict.DROP)]


def sent_back(*sequences):
    return [line for n in sequences for line in verdict(n, Verdict.TX)]


# refused-frame-fate


def fate(*parts, kernel=NEW, settings=ZERO_COPY, **facts):
    return outcome("refused-frame-fate", trace_of(*parts, kernel=kernel, settings=settings, **facts))


def test_from_6_8_a_refused_frame_is_gone() -> None:
    result = fate(poll(frames(1), refused(2), work=2), poll(frames(3, 4), work=2))
    assert (result.outcome, result.observed, result.message) == ("hold", 0, "1 refused frames were dropped")


@pytest.mark.parametrize("again", [frame(2), refused(2), passed(2)])
def test_from_6_8_a_refused_frame_that_comes_again_violates(again) -> None:
    result = fate(poll(frames(1), refused(2), work=2), poll(again, frames(3), work=2))
    assert result.outcome == "violated"
    assert result.events == [3, 7]


def test_a_refused_frame_that_comes_again_in_the_same_poll_violates() -> None:
    assert fate(poll(refused(2), frame(2), work=2), poll(frames(3), work=1)).outcome == "violated"


def test_without_a_frame_behind_it_nothing_is_known() -> None:
    assert fate(poll(frames(1), refused(2), work=2)).outcome == "not-exercised"
    assert fate(poll(refused(2), work=1), poll(frames(3), work=1, napi=11)).outcome == "not-exercised"


def test_a_frame_on_another_cpu_of_the_same_napi_counts() -> None:
    assert fate(poll(refused(2), work=1), on(1, poll(frames(3), work=1))).outcome == "hold"


@pytest.mark.parametrize("settings", [COPY, GENERIC])
@pytest.mark.parametrize("kernel", [OLD, NEW])
def test_copies_are_dropped_by_any_kernel(settings, kernel) -> None:
    hand = stack_rx(2) if settings is GENERIC else []
    gone = [poll(hand, refused(2), work=1), poll(stack_rx(3), work=1)]
    assert fate(*gone, kernel=kernel, settings=settings).outcome == "hold"
    again = [poll(hand, refused(2), work=1), poll(hand, frame(2), work=1)]
    assert fate(*again, kernel=kernel, settings=settings).outcome == "violated"


def test_before_6_8_some_drivers_must_offer_it_again() -> None:
    again = [poll(frames(1), refused(2), work=1), poll(frames(2, 3), work=2)]
    gone = [poll(frames(1), refused(2), work=1), poll(frames(3, 4), work=2)]
    assert fate(*again, kernel=OLD, driver="ice").outcome == "hold"
    assert fate(*gone, kernel=OLD, driver="ice").outcome == "violated"
    assert fate(*gone, kernel=OLD, driver="stmmac").outcome == "not-exercised"
    assert fate(*again, kernel=NEW, driver="ice").outcome == "violated"


def test_before_6_8_it_may_be_refused_many_times() -> None:
    trace = [poll(refused(2), work=0), poll(refused(2), work=0), poll(frames(2), work=1)]
    assert fate(*trace, kernel=OLD, driver="i40e").outcome == "hold"
    assert fate(*trace[:1], kernel=OLD, driver="i40e").outcome == "not-exercised"


@pytest.mark.parametrize("lines", [frames(1), redirect(22) + frames(1), redirect(105) + frames(2)])
def test_only_a_full_ring_refuses_and_only_numbered_frames_are_known(lines) -> None:
    assert fate(poll(lines, work=2), poll(frames(3), work=1)).outcome == "not-exercised"


def leaking(got):
    """Four buffers; two frames are refused; the refill should find their buffers."""
    start = bound() + filled(0, 1, 2, 3) + poll(alloc(4), work=0)
    return [start, poll(refused(1), work=1), poll(refused(2), frame(3), alloc(got, 3), work=2)]


@pytest.mark.parametrize(("got", "expected"), [(2, "hold"), (1, "hold"), (0, "violated")])
def test_a_pool_that_gets_no_buffer_back_violates(got, expected) -> None:
    assert fate(*leaking(got)).outcome == expected


def test_a_pool_that_is_empty_for_good_reason_holds() -> None:
    start = bound() + filled(0, 1) + poll(alloc(2), work=0)
    assert fate(
        start, poll(refused(1), frame(2), alloc(1), alloc(0, 9), work=2), poll(frame(3), work=1)
    ).outcome == ("hold")
    unpublished = event(Kind.STEP_BEGIN, a=StepKind.FILL) + event(Kind.FILL, subject=3)
    trace = [
        start,
        poll(refused(1), frame(2), alloc(1), work=2),
        unpublished,
        poll(frame(3), alloc(0, 9), work=1),
    ]
    assert fate(*trace).outcome == "hold"


# verdict-conservation


def conserved(*parts, settings=ZERO_COPY, **facts):
    return outcome("verdict-conservation", trace_of(*parts, settings=settings, **{"kernel": NEW, **facts}))


def test_every_verdict_with_its_fate_holds() -> None:
    result = conserved(poll(frames(1), passed(2), dropped(3), sent_back(4), refused(5), work=5), rx(0, 1))
    assert (result.outcome, result.message) == ("hold", "5 frames had one fate each")


@pytest.mark.parametrize("facts", [{"settings": {"mode": "none"}}, {}])
def test_without_a_program_the_stack_gets_each_frame_once(facts) -> None:
    assert conserved(poll(stack_rx(1), stack_rx(2), work=2), **facts).outcome == "hold"
    assert conserved(poll(stack_rx(1), stack_rx(1), work=2), **facts).outcome == "violated"


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (frame(1) + frame(1), "two fates"),
        (frame(1) + passed(1), "two fates"),
        (passed(1) + passed(1), "two fates"),
        (dropped(1) + dropped(1), "two fates"),
        (dropped(1) + sent_back(1), "two fates"),
        (dropped(1) + stack_rx(1), "went on"),
        (verdict(1, Verdict.DROP) + stack_rx(1), "went on"),
        (verdict(1, Verdict.PASS) + frame(2), "reached no stack"),
        (verdict(1) + frame(2), "went nowhere"),
    ],
)
def test_a_frame_with_no_fate_or_two_violates(lines, what) -> None:
    result = conserved(poll(lines, work=2))
    assert result.outcome == "violated"
    assert what in result.message


def test_a_frame_for_which_there_was_no_memory_comes_again() -> None:
    result = conserved(poll(verdict(1, Verdict.PASS), work=0), poll(passed(1), work=1))
    assert result.outcome == "hold"
    assert conserved(poll(frame(1), verdict(2, Verdict.PASS), work=0)).outcome == "hold"


def test_a_redirect_without_a_socket_goes_to_the_stack() -> None:
    assert conserved(poll(verdict(1), stack_rx(1), verdict(2), stack_rx(2), work=2)).outcome == "hold"


def test_a_refused_frame_may_be_offered_again() -> None:
    lines = [poll(refused(1), work=0), poll(frame(1), work=1)]
    assert conserved(*lines, kernel=OLD).outcome == "hold"


def test_frames_of_two_cpus_are_told_apart() -> None:
    result = conserved(interleaved(poll(frames(1, 2), work=2), on(1, poll(passed(3, 4), work=2, napi=11))))
    assert (result.outcome, result.message) == ("hold", "4 frames had one fate each")


def test_foreign_frames_have_no_number_to_be_known_by() -> None:
    assert conserved(poll(stack_rx(), stack_rx(), redirect(), work=3)).outcome == "not-exercised"


def drain(*inside, count=ALL, done=0):
    return step(StepKind.RX_DRAIN, *inside, operand=count, done=done)


def test_what_the_ring_took_is_read_once() -> None:
    got = poll(frames(1, 2), work=2)
    assert conserved(got, drain(rx(0, 1), rx(1, 2), done=2)).outcome == "hold"
    assert "more often" in conserved(got, drain(rx(0, 1), rx(1, 2), rx(2, 2), done=3)).message
    assert "nobody could read" in conserved(got, drain(rx(0, 1), done=1)).message
    assert "more often" in conserved(poll(dropped(1), work=1), drain(rx(0, 1), done=1)).message


@pytest.mark.parametrize(
    "lines",
    [
        drain(rx(0, 1), count=1, done=1),
        drain(rx(0, 1), rx(1, 2, intact=-1), done=2),
        step(StepKind.UNBIND) + drain(),
        event(Kind.STEP_BEGIN, a=StepKind.RX_DRAIN, c=ALL) + rx(0, 1),
        rx(0, 1),
    ],
    ids=["not emptied", "damaged", "unbound before", "still reading", "never drained"],
)
def test_what_could_not_be_read_is_not_missed(lines) -> None:
    assert conserved(poll(frames(1, 2), work=2), lines).outcome == "hold"


def test_a_frame_taken_while_the_ring_was_being_emptied_may_come_later() -> None:
    trace = drain(rx(0, 1), done=1)[:-1] + poll(frames(2), work=1) + event(Kind.STEP_END, c=1)
    assert conserved(poll(frames(1), work=1), trace).outcome == "hold"
    assert conserved(poll(frames(1), work=1), trace, drain()).outcome == "violated"


def test_generic_xdp_judges_what_the_program_saw() -> None:
    settings = GENERIC
    good = poll(stack_rx(1), frame(1), stack_rx(2), verdict(2, Verdict.PASS), stack_rx(3), dropped(3), work=3)
    assert conserved(good, drain(rx(0, 1), done=1), settings=settings).outcome == "hold"
    assert conserved(poll(stack_rx(1), frame(1), frame(1), work=1), settings=settings).outcome == "violated"
    late = [poll(stack_rx(1), stack_rx(2), work=2), frame(1), poll(frame(2), work=0)]
    assert conserved(*late, settings=settings).outcome == "hold"


def wire(*sequences):
    return np.array(sequences, dtype=np.int64)


def test_a_frame_sent_back_must_be_on_the_wire() -> None:
    back = poll(sent_back(1, 2), work=2)
    assert conserved(back, wire_sequences=wire(1, 2)).outcome == "hold"
    result = conserved(back, wire_sequences=wire(2))
    assert (result.outcome, result.events) == ("violated", [0])


@pytest.mark.parametrize(
    "lines",
    [
        event(Kind.XDP_EXCEPTION, a=Verdict.TX),
        tx(0, 7),
        step(StepKind.STACK_SEND),
        napi_disabled(),
        carrier(on=False),
        later(50) + carrier(on=False),
    ],
)
def test_a_frame_sent_back_may_be_lost_for_a_reason(lines) -> None:
    back = poll(sent_back(1), work=1)
    assert conserved(back, lines, wire_sequences=wire()).outcome == "hold"
    assert conserved(back, lines).outcome == "hold"


def test_a_link_that_the_host_took_down_loses_frames() -> None:
    def pulled(*, up):
        return conserved(
            step(StepKind.HOST, number=5), poll(sent_back(1), work=1), wire_sequences=wire(), links=[(5, up)]
        )

    assert pulled(up=False).outcome == "hold"
    assert pulled(up=True).outcome == "violated"


def test_a_dead_guest_sent_nothing_more() -> None:
    back = poll(sent_back(1), work=1)
    assert conserved(back, wire_sequences=wire(), alive=False).outcome == "hold"


def test_schedules_alone_hand_over_nothing() -> None:
    assert conserved(schedule(), poll(work=0)).outcome == "not-exercised"
