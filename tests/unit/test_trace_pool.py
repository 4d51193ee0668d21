"""What is counted from events: buffers and entries of a queue, hand-overs, knobs, the link."""

from __future__ import annotations

import numpy as np
import pytest
from traces import (
    ZERO_COPY,
    alloc,
    bound,
    carrier,
    completed,
    event,
    filled,
    frame,
    frames,
    later,
    napi_disabled,
    need_wakeup,
    on,
    poll,
    polled,
    reaped,
    refused,
    stack_rx,
    stack_tx,
    step,
    times,
    trace_of,
    tx,
    tx_done,
    tx_taken,
    verdict,
)

from testbed.scenario.program import STEP, Setting, StepKind, Verdict
from testbed.trace.backlog import bursts
from testbed.trace.events import Kind, Ring
from testbed.trace.handover import handed_over, moved, sequences_of, unseen_sends
from testbed.trace.knobs import UNKNOWN, deferred_ns, knob_at
from testbed.trace.link import link_up_at
from testbed.trace.pool import available, free_tx_slots, outstanding, sendable, usable
from testbed.trace.wakeups import need_wakeup_at

SETTINGS = {**ZERO_COPY, "tx_ring": 64, "completion_entries": 8}


def at_end(count, *parts, **facts):
    """Return what is counted behind the last row."""
    trace = trace_of(*parts, **{"settings": SETTINGS, "kernel": (7, 3), **facts})
    return int(count(trace, [len(trace.events)])[0])


START = bound() + filled(*range(20)) + poll(alloc(10), work=0)


def test_buffers_come_from_the_pool_and_go_with_frames() -> None:
    assert (at_end(usable, START), at_end(available, START)) == (10, 10)
    went = poll(frames(1, 2), refused(3), verdict(4, Verdict.DROP), stack_rx(), alloc(1), work=5)
    assert at_end(usable, START, went) == 6
    assert at_end(available, START, went) == 12  # what was refused, dropped or copied for the stack came back


def test_what_was_asked_of_a_trace_is_kept_and_cannot_be_changed() -> None:
    one, other = trace_of(START), trace_of(START, poll(frames(1), work=1))
    assert handed_over(one) is handed_over(one)
    assert len(handed_over(other)) == len(handed_over(one)) + 1
    with pytest.raises(ValueError, match="read-only"):
        one.rows(Kind.FILL)[0] = 0


@pytest.mark.parametrize(
    "binding",
    [
        [napi_disabled(alloc(8)), napi_disabled(napi=12)],  # virtio_net: Rx, then the queue's own NAPI for Tx
        [napi_disabled(napi=12), alloc(8)],  # stmmac: the queue had other NAPIs than the socket has
    ],
)
def test_what_a_bind_gives_the_nic_stays_there(binding) -> None:
    begin = step(StepKind.UMEM) + filled(*range(20))
    begin += step(StepKind.BIND, *binding)
    assert at_end(usable, begin, poll(frames(1, 2), alloc(1), work=2)) == 7


def test_a_ring_taken_down_gives_its_buffers_back() -> None:
    assert at_end(usable, START, napi_disabled()) == 0
    assert at_end(available, START, napi_disabled()) == 20
    assert at_end(usable, START, napi_disabled(alloc(4))) == 4


def test_a_new_socket_has_nothing() -> None:
    assert (at_end(usable, START, bound()), at_end(available, START, bound())) == (0, 0)


@pytest.mark.parametrize(
    "parts",
    [
        [poll(alloc(3), work=0)],
        [step(StepKind.UMEM), step(StepKind.BIND), poll(alloc(3), work=0)],
        [START, step(StepKind.UNBIND)],
        [START, step(StepKind.UNBIND, napi_disabled())],
        [START, step(StepKind.UMEM, napi_disabled())],
        [bound(), filled(1)],
        [START, poll(verdict(1, Verdict.PASS), work=0)],
    ],
    ids=[
        "no bind",
        "never disabled",
        "unbound",
        "unbound and disabled",
        "closed",
        "nothing allocated",
        "a frame without memory",
    ],
)
def test_what_is_not_seen_is_unknown(parts) -> None:
    assert at_end(usable, *parts) < 0
    assert at_end(available, *parts) < 0


def test_a_refused_frame_leaves_the_ring_from_6_8_on_only() -> None:
    went = poll(refused(1), work=1)
    assert at_end(usable, START, went, kernel=(6, 8)) == 9
    assert at_end(usable, START, went, kernel=(6, 7)) < 0


def test_frames_of_other_napis_use_other_buffers() -> None:
    assert at_end(usable, START, poll(stack_rx(), work=1, napi=11)) == 10


def test_entries_being_posted_are_not_available_yet() -> None:
    posting = event(Kind.STEP_BEGIN, a=StepKind.FILL) + event(Kind.FILL, subject=7)
    assert at_end(available, START, posting) == 10
    assert at_end(available, START, posting, event(Kind.STEP_END)) == 11


def submitted(count):
    return step(StepKind.TX, times(count, tx(1, 1)))


def test_entries_are_sendable_while_completions_have_room() -> None:
    assert at_end(sendable, bound(), submitted(5)) == 5
    assert at_end(sendable, bound(), submitted(20)) == 8
    gone = [bound(), submitted(20), poll(tx_taken(6), work=0)]
    assert at_end(sendable, *gone) == 2
    assert at_end(sendable, *gone, step(StepKind.COMP_DRAIN, completed(1, 1, 1))) == 5
    assert at_end(sendable, *gone, settings=ZERO_COPY) == 0
    assert at_end(sendable, *gone, bound()) == 0


def test_descriptors_of_the_tx_ring_are_counted_down() -> None:
    assert at_end(free_tx_slots, bound()) == 63
    assert at_end(free_tx_slots, poll(tx_taken(20), tx_done(5), work=0)) == 48
    assert at_end(outstanding, poll(tx_taken(20), tx_done(5), work=0)) == 15
    assert at_end(free_tx_slots, stack_tx(), poll(reaped(), work=0), stack_tx()) == 59
    assert at_end(free_tx_slots, poll(verdict(1, Verdict.TX), work=1)) == 62
    assert at_end(free_tx_slots, settings={}) == 0


def test_a_frame_is_handed_over_once() -> None:
    native = trace_of(verdict(1, Verdict.PASS), stack_rx(1), stack_rx(), frame(2), polled(3))
    assert handed_over(native).tolist() == [0, 2, 3]
    assert sequences_of(native, handed_over(native)).tolist() == [1, -1, 2]
    generic = trace_of(stack_rx(1), stack_rx(2), polled(2), frame(1), frame(2))
    assert handed_over(generic).tolist() == [0, 1]
    assert handed_over(trace_of(polled(0))).tolist() == []


def test_only_the_first_offer_of_a_frame_moves_it() -> None:
    trace = trace_of(refused(1), refused(1), stack_rx(), stack_rx(), tx_taken(0), alloc(0, 4), alloc(1, 4))
    assert moved(trace).tolist() == [0, 4, 5, 8]


def test_clean_ups_are_unseen_where_a_driver_shows_none() -> None:
    trace = trace_of(stack_tx(), stack_tx(1), tx(0, 1), verdict(1, Verdict.TX), settings={"mode": "copy"})
    assert unseen_sends(trace).tolist() == [0, 2, 3]
    shown = trace_of(stack_tx(), verdict(1, Verdict.TX), reaped(), settings={"mode": "copy"})
    assert unseen_sends(shown).tolist() == [1]


def test_a_knob_is_known_once_its_step_has_ended() -> None:
    steps = np.zeros(2, dtype=STEP)
    steps["kind"], steps["a"], steps["b"] = StepKind.SET, Setting.GRO_FLUSH_TIMEOUT, [7, 9]
    parts = [
        step(StepKind.SET, number=n, operand=Setting.GRO_FLUSH_TIMEOUT) + step(StepKind.SLEEP) for n in (0, 1)
    ]
    trace = trace_of(*parts, steps=steps)
    assert knob_at(trace, Setting.GRO_FLUSH_TIMEOUT, range(8)).tolist() == [-1, 7, 7, 7, -1, 9, 9, 9]
    assert knob_at(trace, Setting.NAPI_DEFER_HARD_IRQS, [7]).tolist() == [UNKNOWN]
    assert (deferred_ns(trace), deferred_ns(trace_of(*parts)), deferred_ns(trace_of())) == (9, None, 0)


def test_a_knob_that_could_not_be_turned_is_unknown() -> None:
    steps = np.zeros(1, dtype=STEP)
    failed = event(Kind.STEP_BEGIN, a=StepKind.SET, c=1) + event(Kind.STEP_END, a=-22)
    trace = trace_of(failed, step(StepKind.SLEEP), steps=steps)
    assert knob_at(trace, Setting.NAPI_DEFER_HARD_IRQS, [3]).tolist() == [UNKNOWN]


def test_flags_are_the_drivers_last_word_since_the_bind() -> None:
    trace = trace_of(
        step(StepKind.BIND),
        need_wakeup(Ring.FILL, wanted=True),
        need_wakeup(Ring.TX, wanted=False),
        step(StepKind.SLEEP),
        step(StepKind.BIND),
        step(StepKind.SLEEP),
    )
    assert need_wakeup_at(trace, Ring.FILL, [1, 2, 5, 9]).tolist() == [0, 1, 1, 0]
    assert need_wakeup_at(trace, Ring.TX, [2, 3, 5, 9]).tolist() == [1, 0, 0, 1]
    assert need_wakeup_at(trace_of(), Ring.TX, [0]).tolist() == [1]


def test_a_link_is_up_when_nobody_says_else() -> None:
    trace = trace_of(
        event(Kind.FLUSH),
        later(200),
        event(Kind.FLUSH),
        carrier(on=False),
        event(Kind.FLUSH),
        carrier(on=True),
    )
    assert link_up_at(trace, [0, 1, 3, 4]).tolist() == [True, False, False, False]
    pulled = trace_of(step(StepKind.HOST, number=2), event(Kind.FLUSH), links=[(2, False)])
    assert link_up_at(pulled, [0, 2]).tolist() == [True, False]


def test_a_burst_knows_its_frames() -> None:
    parts = [
        step(StepKind.HOST, number=1),
        poll(stack_rx(0), stack_rx(1), work=2),
        on(1, poll(stack_rx(2), work=1)),
        step(StepKind.RINGS),
        poll(stack_rx(3), work=1),
    ]
    trace = trace_of(*parts, settings={"rx_ring": 64}, bursts=[(1, 5)])
    (burst,) = bursts(trace)
    assert (burst.napi, burst.waiting, burst.frames.tolist()) == (10, 5, [2, 3, 6])
    assert burst.end == trace.rows(Kind.STEP_BEGIN, a=StepKind.RINGS)[0]
