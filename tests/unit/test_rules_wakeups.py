"""Rules 19, 20, 21 and 32: each on traces that hold it, violate it, and do not exercise it."""

from __future__ import annotations

import numpy as np
import pytest
from judging import outcome
from traces import (
    ZERO_COPY,
    alloc,
    bound,
    carrier,
    completed,
    event,
    filled,
    frames,
    later,
    need_wakeup,
    poll,
    polled,
    reaped,
    schedule,
    stack_rx,
    stack_tx,
    statistic,
    step,
    times,
    trace_of,
    tx,
    tx_done,
    tx_taken,
    verdict,
)

from testbed.scenario.program import STEP, Setting, StepKind, Verdict
from testbed.trace.events import Kind, Ring, XdpStatistics

SETTINGS = {**ZERO_COPY, "rx_ring": 64, "tx_ring": 64, "completion_entries": 64}
COPY = {**SETTINGS, "mode": "copy"}
GENERIC = {**SETTINGS, "xdp_mode": "generic"}


def socket(*parts, settings=SETTINGS, **facts):
    return trace_of(bound(), *parts, settings=settings, kernel=(7, 3), **facts)


def submitted(count, first=0):
    return step(StepKind.TX, [line for n in range(first, first + count) for line in tx(n, n)], done=count)


def drained(*chunks):
    return step(StepKind.COMP_DRAIN, completed(*chunks), done=len(chunks))


def kick(*inside, kind=StepKind.TX_KICK, done=1):
    return step(kind, *inside, done=done)


def serve(count, *more, wanted=True):
    """A poll that takes so many entries from the TX ring and completes."""
    return schedule() + poll(need_wakeup(Ring.TX, wanted=wanted), *more, tx_taken(count), work=0)


# tx-liveness


@pytest.mark.parametrize("ms", [0, 9])
def test_a_wakeup_that_is_answered_in_time_holds(ms) -> None:
    for kind in (StepKind.TX_KICK, StepKind.WAKEUP_TX):
        trace = socket(submitted(8), kick(kind=kind), later(ms), serve(8), later(20), submitted(0))
        result = outcome("tx-liveness", trace)
        assert (result.outcome, result.observed) == ("hold", 0)
        assert "1 wakeups" in result.message


def test_a_wakeup_that_nobody_answers_violates() -> None:
    trace = socket(submitted(8), kick(), schedule(), poll(work=0), later(11), submitted(1, 8))
    result = outcome("tx-liveness", trace)
    assert (result.outcome, result.observed) == ("violated", 1)
    assert result.events == [trace.rows(Kind.STEP_BEGIN, a=StepKind.TX_KICK)[0]]


@pytest.mark.parametrize("vain", [serve(0), serve(0, tx_done(0)), poll(work=64), later(11) + serve(8)])
def test_neither_polling_nor_a_late_answer_helps(vain) -> None:
    trace = socket(submitted(8), kick(), vain, later(12), step(StepKind.SLEEP))
    assert outcome("tx-liveness", trace).outcome == "violated"


@pytest.mark.parametrize("stalled", [0, 300])  # ms; a host that takes its CPU away from the guest
def test_an_answer_within_the_wakeup_itself_holds(stalled) -> None:
    trace = socket(submitted(8), kick(later(stalled), serve(8)), later(20), serve(0), clock="real")
    assert outcome("tx-liveness", trace).outcome == "hold"


@pytest.mark.parametrize(
    "cut",
    [
        [],
        later(5) + step(StepKind.UNBIND) + later(20) + step(StepKind.SLEEP),
        later(5) + carrier(on=False) + later(20) + step(StepKind.SLEEP),
        later(5) + event(Kind.DISABLE, subject=10) + later(20) + step(StepKind.SLEEP),
    ],
    ids=["the trace ends", "unbound", "link lost", "starting anew"],
)
def test_a_wait_that_was_cut_short_is_not_judged(cut) -> None:
    assert outcome("tx-liveness", socket(submitted(8), kick(), cut)).outcome == "not-exercised"


UNANSWERED = kick() + later(20) + step(StepKind.SLEEP)


@pytest.mark.parametrize(
    "lines",
    [
        UNANSWERED,
        submitted(8) + serve(8) + UNANSWERED,
        submitted(8) + kick(done=0) + later(20) + step(StepKind.SLEEP),
        submitted(60) + serve(60) + submitted(8, 60) + UNANSWERED,
        submitted(8) + times(32, stack_tx()) + UNANSWERED,
        submitted(8) + times(60, verdict(1, Verdict.TX)) + UNANSWERED,
        submitted(8) + carrier(on=False) + UNANSWERED,
        submitted(8) + statistic(XdpStatistics.TX_INVALID_DESCS, 8) + UNANSWERED,
        event(Kind.STEP_BEGIN, a=StepKind.TX) + tx(1, 1) + UNANSWERED[:1],
        submitted(64) + serve(64, tx_done(64)) + submitted(8, 64) + UNANSWERED,
        submitted(8) + bound() + UNANSWERED,
    ],
    ids=[
        "nothing was submitted",
        "all was taken",
        "nobody was woken",
        "the Tx ring is full",
        "the stack fills the Tx ring",
        "XDP_TX fills the Tx ring",
        "no link",
        "all are invalid",
        "still being submitted",
        "the COMPLETION ring is full",
        "a new socket",
    ],
)
def test_a_wakeup_with_nothing_that_can_be_sent_says_nothing(lines) -> None:
    assert outcome("tx-liveness", socket(lines)).outcome == "not-exercised"


@pytest.mark.parametrize(
    "lines",
    [
        submitted(60) + serve(60, tx_done(20)) + submitted(8, 60) + drained(*range(20)) + UNANSWERED,
        submitted(8) + times(32, stack_tx()) + times(32, reaped()) + polled(0) + UNANSWERED,
        submitted(8) + carrier(on=False) + carrier(on=True) + UNANSWERED,
        submitted(9) + statistic(XdpStatistics.TX_INVALID_DESCS, 8) + UNANSWERED,
        submitted(64) + serve(64, tx_done(64)) + drained(*range(8)) + submitted(8, 64) + UNANSWERED,
    ],
    ids=["half done", "skbs reaped", "link back", "one is valid", "COMPLETION drained"],
)
def test_room_that_came_back_is_room(lines) -> None:
    assert outcome("tx-liveness", socket(lines)).outcome == "violated"


def test_sixteen_free_descriptors_are_needed() -> None:
    for taken, said in ((47, "violated"), (48, "not-exercised")):
        trace = socket(submitted(taken), serve(taken), submitted(1, taken), UNANSWERED)
        assert outcome("tx-liveness", trace).outcome == said


@pytest.mark.parametrize("settings", [COPY, GENERIC, {"mode": "none"}])
def test_only_zero_copy_takes_entries_itself(settings) -> None:
    assert (
        outcome("tx-liveness", socket(submitted(8), UNANSWERED, settings=settings)).outcome == "not-exercised"
    )


def test_a_deferred_interrupt_may_take_its_time() -> None:
    steps = np.zeros(1, dtype=STEP)
    steps["kind"], steps["a"], steps["b"] = StepKind.SET, Setting.GRO_FLUSH_TIMEOUT, 15_000_000
    knob = step(StepKind.SET, operand=Setting.GRO_FLUSH_TIMEOUT)
    late = submitted(8) + kick() + later(20) + serve(8) + later(30) + step(StepKind.SLEEP)
    assert outcome("tx-liveness", socket(late)).outcome == "violated"
    assert outcome("tx-liveness", socket(knob, late, steps=steps)).outcome == "hold"
    assert outcome("tx-liveness", socket(knob, late)).outcome == "not-exercised"


def test_in_real_time_more_patience_is_needed() -> None:
    late = socket(submitted(8), kick(), later(150), serve(8), later(300), step(StepKind.SLEEP), clock="real")
    assert outcome("tx-liveness", late).outcome == "hold"
    never = socket(submitted(8), kick(), later(250), step(StepKind.SLEEP), clock="real")
    assert outcome("tx-liveness", never).outcome == "violated"


def test_a_poll_that_forgets_entries_violates() -> None:
    trace = socket(submitted(8), serve(0, wanted=False), submitted(1, 8))
    result = outcome("tx-liveness", trace)
    assert (result.outcome, result.events) == ("violated", [trace.polls.row[0]])


@pytest.mark.parametrize("way_back", [serve(0), serve(4, wanted=False)])
def test_a_poll_with_a_way_back_may_leave_entries(way_back) -> None:
    assert outcome("tx-liveness", socket(submitted(8), way_back, submitted(1, 8))).outcome == "hold"


def test_a_poll_that_nothing_brings_back_in_time_violates() -> None:
    def back(ms):
        return socket(
            submitted(8), serve(4, wanted=False), later(ms), serve(4, wanted=False), submitted(1, 8)
        )

    assert outcome("tx-liveness", back(9)).outcome == "hold"
    result = outcome("tx-liveness", back(11))
    assert (result.outcome, result.events) == ("violated", [back(11).polls.row[0]])


def test_a_flag_that_nobody_looks_at_brings_nobody_back() -> None:
    unasked = {**SETTINGS, "need_wakeup": False}
    trace = socket(submitted(8), schedule(), poll(tx_taken(0), work=0), submitted(1, 8), settings=unasked)
    assert outcome("tx-liveness", trace).outcome == "violated"


def test_what_is_submitted_behind_the_drivers_look_is_not_forgotten() -> None:
    look = schedule() + need_wakeup(Ring.TX, wanted=False) + tx_taken(0)
    trace = socket(look, submitted(8), poll(work=0), submitted(1, 8))
    assert outcome("tx-liveness", trace).outcome == "not-exercised"


# rx-need-wakeup


def starved(got, asked, *, wanted, work=0):
    return schedule() + poll(alloc(got, asked), need_wakeup(Ring.FILL, wanted=wanted), work=work)


def test_a_starved_poll_that_sets_the_flag_holds() -> None:
    result = outcome("rx-need-wakeup", socket(starved(0, 63, wanted=True)))
    assert (result.outcome, result.observed) == ("hold", 0)


@pytest.mark.parametrize("asked", [63, 1])
def test_a_starved_poll_that_leaves_the_flag_clear_violates(asked) -> None:
    trace = socket(starved(0, asked, wanted=False))
    result = outcome("rx-need-wakeup", trace)
    assert (result.outcome, result.events) == ("violated", [trace.polls.row[0]])


@pytest.mark.parametrize(("got", "asked"), [(15, 16), (62, 63)])
def test_a_refill_that_came_short_needs_no_flag_while_descriptors_are_left(got, asked) -> None:
    assert outcome("rx-need-wakeup", socket(starved(got, asked, wanted=False))).outcome == "not-exercised"


def test_a_flag_never_touched_is_clear_after_a_bind() -> None:
    assert outcome("rx-need-wakeup", socket(schedule(), poll(alloc(0, 63), work=0))).outcome == "violated"
    still_set = starved(0, 63, wanted=True) + schedule() + poll(alloc(0, 63), work=0)
    assert outcome("rx-need-wakeup", socket(still_set)).outcome == "hold"
    assert (
        outcome("rx-need-wakeup", socket(still_set, bound(), schedule(), poll(alloc(0, 9), work=0))).observed
        == 1
    )


def test_the_last_refill_of_a_poll_counts() -> None:
    whole = schedule() + poll(alloc(3, 9), alloc(6, 6), need_wakeup(Ring.FILL, wanted=False), work=0)
    assert outcome("rx-need-wakeup", socket(whole)).outcome == "not-exercised"


def test_a_poll_that_did_not_try_is_judged_by_what_the_nic_holds() -> None:
    def left(buffers):
        given = schedule() + poll(alloc(20), need_wakeup(Ring.FILL, wanted=False), work=0)
        taken = poll(frames(*range(20 - buffers)), need_wakeup(Ring.FILL, wanted=False), work=20 - buffers)
        return socket(filled(*range(20)), given, schedule(), taken)

    assert outcome("rx-need-wakeup", left(0)).outcome == "violated"
    assert outcome("rx-need-wakeup", left(1)).outcome == "not-exercised"


def test_what_the_device_has_written_to_is_used_up() -> None:
    given = filled(*range(20)) + schedule() + poll(alloc(20), need_wakeup(Ring.FILL, wanted=False), work=0)
    for written, said in ((19, "not-exercised"), (20, "violated")):
        used = [line for index in range(written) for line in event(Kind.RX_DONE, a=index, b=64, c=0x1000)]
        other = event(Kind.RX_DONE, subject=1, a=0, b=64, c=0x1000)
        last = poll(frames(*range(19)), need_wakeup(Ring.FILL, wanted=False), work=19)
        assert outcome("rx-need-wakeup", socket(given, used, other, schedule(), last)).outcome == said


def test_frames_for_the_stack_use_descriptors_up_too() -> None:
    given = filled(0, 1) + schedule() + poll(alloc(2), need_wakeup(Ring.FILL, wanted=False), work=0)
    used = poll(stack_rx(), verdict(3, Verdict.PASS), stack_rx(3), work=2)
    assert outcome("rx-need-wakeup", socket(given, used)).outcome == "violated"


def test_polls_that_go_on_or_start_anew_need_no_flag() -> None:
    full = schedule() + alloc(0, 63) + polled(64)
    assert outcome("rx-need-wakeup", socket(full)).outcome == "not-exercised"
    down = event(Kind.DISABLE, subject=10) + starved(0, 63, wanted=False)
    assert outcome("rx-need-wakeup", socket(down)).outcome == "not-exercised"


def test_without_a_socket_the_driver_has_buffers_of_its_own() -> None:
    closed = step(StepKind.UNBIND, event(Kind.DISABLED, subject=10), event(Kind.ENABLE, subject=10))
    idle = schedule() + poll(work=0)
    assert (
        outcome("rx-need-wakeup", socket(filled(1), poll(alloc(1), work=0), closed, idle)).outcome
        == "not-exercised"
    )


def test_what_a_bind_allocates_is_of_no_poll() -> None:
    trace = trace_of(bound(alloc(0, 63)), schedule(), poll(work=0), settings=SETTINGS)
    assert outcome("rx-need-wakeup", trace).outcome == "not-exercised"


def test_the_tx_napi_is_not_asked() -> None:
    trace = socket(starved(0, 63, wanted=True), poll(work=0, napi=11), poll(work=0, napi=11))
    assert "1 starved polls" in outcome("rx-need-wakeup", trace).message


def test_the_flag_may_be_set_after_completing() -> None:
    late = schedule() + alloc(0, 63) + poll(work=0)[:-1] + need_wakeup(Ring.FILL, wanted=True) + polled(0)
    assert outcome("rx-need-wakeup", socket(late)).outcome == "hold"


@pytest.mark.parametrize("settings", [COPY, GENERIC, {**SETTINGS, "need_wakeup": False}])
def test_without_the_flag_nothing_is_promised(settings) -> None:
    for rule in ("rx-need-wakeup", "tx-need-wakeup"):
        assert outcome(rule, socket(starved(0, 63, wanted=False), serve(0), settings=settings)).outcome == (
            "not-exercised"
        )


def woken(*after):
    start = starved(0, 63, wanted=True) + filled(*range(20)) + step(StepKind.WAKEUP_RX, done=1)
    return socket(start, *after)


def test_the_wait_begins_when_the_wakeup_returns() -> None:
    for ms, expected in ((9, "hold"), (11, "violated")):
        start = starved(0, 63, wanted=True) + filled(*range(20))
        wakeup = step(StepKind.WAKEUP_RX, later(50), done=1)
        trace = socket(start, wakeup, later(ms), schedule(), poll(alloc(16), work=0), later(30), submitted(0))
        assert outcome("rx-need-wakeup", trace).outcome == expected


def test_a_wakeup_that_moves_buffers_holds() -> None:
    trace = woken(starved(20, 63, wanted=True), later(20), step(StepKind.SLEEP))
    assert outcome("rx-need-wakeup", trace).message.endswith("1 wakeups moved buffers")


@pytest.mark.parametrize("vain", [[], starved(0, 63, wanted=True), later(11) + starved(20, 63, wanted=True)])
def test_a_wakeup_that_moves_nothing_violates(vain) -> None:
    trace = woken(vain, later(12), step(StepKind.SLEEP))
    result = outcome("rx-need-wakeup", trace)
    assert (result.outcome, result.observed) == ("violated", 1)
    assert result.events == [trace.rows(Kind.STEP_BEGIN, a=StepKind.WAKEUP_RX)[0]]


def test_a_wakeup_with_a_full_ring_or_an_empty_pool_is_not_judged() -> None:
    quiet = later(20) + step(StepKind.SLEEP)
    vain = step(StepKind.WAKEUP_RX, done=1) + quiet
    empty = starved(0, 63, wanted=True) + vain
    assert "0 wakeups" in outcome("rx-need-wakeup", socket(empty)).message
    for given, decided in ((48, 0), (47, 1)):
        full = filled(*range(60)) + starved(given, 63, wanted=True) + vain
        assert f"of {decided} wakeups" in outcome("rx-need-wakeup", socket(full)).message or not decided
    nobody = starved(0, 63, wanted=True) + filled(1) + step(StepKind.WAKEUP_RX, done=0) + quiet
    assert "0 wakeups" in outcome("rx-need-wakeup", socket(nobody)).message


# tx-need-wakeup


def test_a_flag_that_stays_set_promises_nothing() -> None:
    result = outcome("tx-need-wakeup", socket(serve(8), serve(0)))
    assert (result.outcome, result.message) == ("hold", "2 polls went idle, 0 of them with need_wakeup clear")


def test_a_bind_sets_the_flag() -> None:
    assert outcome("tx-need-wakeup", socket(schedule(), poll(tx_taken(8), work=0))).outcome == "hold"


@pytest.mark.parametrize("back", [schedule(), poll(work=0)])
def test_a_clear_flag_with_a_way_back_holds(back) -> None:
    trace = socket(serve(8, wanted=False), later(9), back, later(20), step(StepKind.SLEEP))
    assert outcome("tx-need-wakeup", trace).outcome == "hold"


@pytest.mark.parametrize("back", [[], later(11) + schedule(), later(9) + schedule(11)])
def test_a_clear_flag_without_one_violates(back) -> None:
    trace = socket(serve(8, wanted=False), back, later(12), step(StepKind.SLEEP))
    result = outcome("tx-need-wakeup", trace)
    assert (result.outcome, result.events) == ("violated", [trace.polls.row[0]])


def test_a_wait_for_the_way_back_may_be_cut_short() -> None:
    for cut in ([], later(5) + step(StepKind.UNBIND) + later(20) + step(StepKind.SLEEP)):
        assert outcome("tx-need-wakeup", socket(serve(8, wanted=False), cut)).outcome == "not-exercised"


def test_polls_that_did_not_serve_tx_are_not_asked() -> None:
    trace = socket(starved(0, 63, wanted=True), schedule(), tx_taken(8), polled(64))
    assert outcome("tx-need-wakeup", trace).outcome == "not-exercised"


# refill-recovers


def recovering(*after, wanted=True, settings=SETTINGS, **facts):
    """A refill that comes short, buffers again, and what follows."""
    return socket(starved(0, 63, wanted=wanted), filled(*range(20)), *after, settings=settings, **facts)


UNASKED = {**SETTINGS, "need_wakeup": False}
REFILL = schedule() + poll(alloc(20, 63), work=0)
WOKEN = step(StepKind.WAKEUP_RX, done=1)


def test_a_refill_that_is_made_up_for_in_time_holds() -> None:
    for settings, wakeup in ((SETTINGS, WOKEN), (UNASKED, [])):
        trace = recovering(wakeup, later(2400), REFILL, settings=settings)
        assert outcome("refill-recovers", trace).outcome == "hold"


def test_a_refill_that_nobody_makes_up_for_violates() -> None:
    for settings, wakeup in ((SETTINGS, WOKEN), (UNASKED, [])):
        for nothing in ([], schedule() + poll(alloc(0, 63), work=0)):
            trace = recovering(wakeup, nothing, later(2600), event(Kind.FLUSH), settings=settings)
            result = outcome("refill-recovers", trace)
            assert (result.outcome, result.observed, len(result.events)) == ("violated", 1, 1)
    forgotten = recovering(later(2600), REFILL, wanted=False)
    assert outcome("refill-recovers", forgotten).outcome == "violated"


def test_a_refill_that_need_not_be_made_up_for_is_not_judged() -> None:
    late = later(2600) + event(Kind.FLUSH)
    brings = step(StepKind.HOST, number=7)
    for trace in (
        recovering(late),  # asked for, and nobody woke it
        recovering(WOKEN, later(5), event(Kind.FLUSH)),
        recovering(WOKEN, brings, REFILL, late, bursts=[(7, 1)]),
        recovering(WOKEN, step(StepKind.RINGS), late),
        socket(starved(63, 63, wanted=True), filled(*range(20)), WOKEN, late),
        socket(
            starved(0, 63, wanted=True), filled(*range(8)), WOKEN, late, settings={**SETTINGS, "rx_ring": 9}
        ),
        recovering(WOKEN, late, settings=COPY),
        recovering(WOKEN, late, settings=GENERIC),
    ):
        assert outcome("refill-recovers", trace).outcome == "not-exercised"
