"""Rules 28, 29, 31 and 33: each on traces that hold it, violate it, and do not exercise it."""

from __future__ import annotations

import errno

import pytest
from judging import outcome
from traces import (
    ZERO_COPY,
    bound,
    carrier,
    complete,
    event,
    frames,
    interface,
    later,
    napi_disabled,
    on,
    poll,
    polled,
    redirect,
    refused,
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
)

from testbed.scenario.program import StepKind
from testbed.trace.events import Counter, Kind, XdpStatistics

FULL, RX_PACKETS = XdpStatistics.RX_RING_FULL, Counter.RX_PACKETS

# statistics-agree


def reading(value, *before):
    """A snapshot; ``before`` happens while it is under way."""
    return step(StepKind.SNAPSHOT_RINGS, *before, statistic(FULL, value))


def agree(*parts):
    return outcome("statistics-agree", trace_of(*parts))


def test_a_counter_that_grows_with_the_refusals_holds() -> None:
    result = agree(reading(3), poll(refused(1), frames(2), refused(3), work=3), reading(5), reading(5))
    assert (result.outcome, result.observed) == ("hold", 0)


@pytest.mark.parametrize("value", [3, 4, 6, 7])
def test_a_counter_that_does_not_agree_violates(value) -> None:
    result = agree(reading(3), poll(refused(1), refused(2), work=2), reading(value))
    assert (result.outcome, result.observed, result.events) == ("violated", 1, [1, 11])


def test_refusals_while_it_is_read_may_be_in_it_or_not() -> None:
    for value in (3, 4, 5):
        assert agree(reading(3), poll(refused(1), work=1), reading(value, refused(2))).outcome == (
            "violated" if value == 3 else "hold"
        )
        assert agree(reading(3, refused(2)), poll(refused(1), work=1), reading(value)).outcome == (
            "violated" if value == 3 else "hold"
        )


@pytest.mark.parametrize("other", [redirect(22), redirect(errno.ENOBUFS, map_type=14), frames(1)])
def test_other_failures_are_not_counted_by_the_socket(other) -> None:
    assert agree(reading(0), poll(other, work=1), reading(0)).outcome == "hold"


@pytest.mark.parametrize("between", [step(StepKind.UMEM), step(StepKind.UNBIND), bound()])
def test_a_new_socket_counts_from_zero(between) -> None:
    assert agree(reading(7), between, reading(0)).outcome == "not-exercised"
    assert agree(reading(7), between, reading(0), reading(1)).outcome == "violated"


def test_no_counter_goes_back() -> None:
    assert (
        agree(interface(RX_PACKETS, 5), interface(RX_PACKETS, 5), interface(RX_PACKETS, 9)).outcome == "hold"
    )
    result = agree(interface(RX_PACKETS, 5), bound(), interface(RX_PACKETS, 4))
    assert (result.outcome, result.message) == ("violated", "rx_packets went back")
    result = agree(statistic(XdpStatistics.RX_DROPPED, 2), statistic(XdpStatistics.RX_DROPPED, 1))
    assert result.message == "rx_dropped went back"


def test_counters_are_compared_with_themselves_only() -> None:
    assert agree(interface(RX_PACKETS, 5), interface(Counter.TX_PACKETS, 4)).outcome == "not-exercised"
    assert agree(statistic(XdpStatistics.RX_DROPPED, 5), interface(RX_PACKETS, 4)).outcome == "not-exercised"
    assert agree(reading(3), poll(refused(1), work=1)).outcome == "not-exercised"


def counted(*parts, **facts):
    return outcome("statistics-agree", trace_of(*parts, settings={"mode": "none"}, **facts))


def packets(value):
    return step(StepKind.SNAPSHOT_RINGS, interface(RX_PACKETS, value))


def received(first, count):
    return poll(*(stack_rx(n) for n in range(first, first + count)), work=count)


def test_packets_that_nobody_sent_violate() -> None:
    for value, said in ((8, "hold"), (7, "hold"), (9, "violated")):
        result = counted(packets(0), received(0, 8), packets(value), injected=8)
        assert result.outcome == said
    assert result.message == "rx_packets grew by more than the frames that came 1 times"


def test_what_was_counted_before_does_not_come_again() -> None:
    late = [packets(0), received(0, 8), packets(8), received(8, 2)]
    assert counted(*late, packets(10), injected=10).outcome == "hold"
    assert counted(*late, packets(11), injected=10).outcome == "violated"


def test_frames_come_when_they_are_injected() -> None:
    def grown(value):
        first, second = step(StepKind.HOST, number=1), step(StepKind.HOST, number=2)
        return counted(
            packets(0), first, received(0, 3), packets(value), second, injected=6, bursts=[(1, 3), (2, 3)]
        )

    assert (grown(3).outcome, grown(4).outcome) == ("hold", "violated")


def test_frames_without_a_number_may_be_more_than_known() -> None:
    assert counted(packets(0), poll(stack_rx(), work=1), packets(9), injected=8).outcome == "hold"
    assert counted(packets(0), packets(9)).outcome == "hold"


# carrier-quiet

SPIN = polled(64)
SETTINGS = {**ZERO_COPY, "tx_ring": 64, "completion_entries": 64}


def quiet(*parts, settings=SETTINGS, **facts):
    return outcome("carrier-quiet", trace_of(step(StepKind.SLEEP), *parts, settings=settings, **facts))


def down(*parts, ms=60):
    return [line for part in (carrier(on=False), later(ms), *parts) for line in part]


def test_silence_without_a_link_holds() -> None:
    result = quiet(down(), carrier(on=True), times(9, SPIN))
    assert (result.outcome, result.observed) == ("hold", 0)
    assert quiet(down(), step(StepKind.SLEEP)).outcome == "hold"


@pytest.mark.parametrize("end", [carrier(on=True), []])
def test_polls_that_go_on_without_a_link_violate(end) -> None:
    result = quiet(down(times(3, SPIN)), end)
    assert (result.outcome, result.observed, len(result.events)) == ("violated", 3, 3)


def test_fifty_milliseconds_are_free() -> None:
    assert quiet(down(times(3, SPIN), ms=49), later(9), step(StepKind.SLEEP)).outcome == "hold"
    assert quiet(down(times(3, SPIN), ms=51)).outcome == "violated"
    assert quiet(down(ms=30), carrier(on=True), times(3, SPIN)).outcome == "not-exercised"


@pytest.mark.parametrize(
    "polls",
    [
        schedule() + poll(work=0),
        stack_rx() + SPIN,
        tx_done(1) + SPIN,
        event(Kind.DISABLE, subject=10) + SPIN,
        polled(0, 0),
    ],
)
def test_polls_that_end_or_move_something_are_no_unrest(polls) -> None:
    assert quiet(down(polls), step(StepKind.SLEEP)).outcome == "hold"


def test_a_link_that_a_driver_drops_itself_does_not_count() -> None:
    anew = step(StepKind.RINGS, down(SPIN), carrier(on=True))
    assert quiet(anew).outcome == "not-exercised"
    assert quiet(anew, down(SPIN)).outcome == "violated"


def test_real_time_has_more_patience() -> None:
    assert quiet(down(SPIN, ms=190), later(50), step(StepKind.SLEEP), clock="real").outcome == "hold"
    assert quiet(down(SPIN, ms=210), clock="real").outcome == "violated"
    assert quiet(down(ms=190), carrier(on=True), clock="real").outcome == "not-exercised"


def up_again(*parts, ms=1001):
    return [line for part in (down(carrier(on=True)), later(ms), *parts) for line in part]


def attempt(*inside):
    return step(StepKind.STACK_SEND, *inside) + later(20) + step(StepKind.SLEEP)


def submitted(count):
    return step(StepKind.TX, [line for n in range(count) for line in tx(n, n)])


def test_what_is_sent_after_the_link_came_back_leaves() -> None:
    assert "1 attempts" in quiet(up_again(attempt(stack_tx()))).message
    assert "1 attempts" in quiet(bound(), submitted(4), up_again(step(StepKind.TX_KICK), tx_taken(4))).message
    assert "1 attempts" in quiet(up_again(attempt(stack_tx()), ms=3)).message


@pytest.mark.parametrize("vain", [attempt(), attempt(stack_tx(1)), attempt(tx_taken(0))])
def test_what_does_not_leave_a_second_later_violates(vain) -> None:
    result = quiet(up_again(vain))
    assert (result.outcome, result.observed, len(result.events)) == ("violated", 1, 1)


def test_a_kick_with_entries_to_send_is_an_attempt() -> None:
    kick = step(StepKind.TX_KICK) + later(20) + step(StepKind.SLEEP)
    assert quiet(bound(), submitted(4), up_again(kick)).outcome == "violated"
    assert "0 attempts" in quiet(bound(), up_again(kick)).message
    for done, said in ((0, "hold"), (1, "violated")):
        woken = step(StepKind.WAKEUP_TX, done=done) + later(20) + step(StepKind.SLEEP)
        assert quiet(bound(), submitted(4), up_again(woken)).outcome == said


@pytest.mark.parametrize(
    "lines",
    [
        up_again(attempt(), ms=900),
        up_again(down(), attempt()),
        up_again(step(StepKind.STACK_SEND), later(5), step(StepKind.RINGS), later(20), step(StepKind.SLEEP)),
        up_again(step(StepKind.STACK_SEND)),
        attempt(),
    ],
    ids=["within the second", "down again", "starting anew", "the trace ends", "never down"],
)
def test_an_attempt_may_fail_for_a_reason(lines) -> None:
    assert quiet(lines).outcome in {"hold", "not-exercised"}


# pool-switch-quiet


def switch(*parts):
    return outcome("pool-switch-quiet", trace_of(*parts))


def test_a_disabled_napi_that_is_not_polled_holds() -> None:
    result = switch(poll(work=3), napi_disabled(), poll(work=1), napi_disabled(poll(work=2, napi=11)))
    assert (result.outcome, result.message) == ("hold", "not polled while disabled, 2 times")


@pytest.mark.parametrize("what", [polled(64), poll(work=0), polled(0, 0), stack_rx() + poll(work=1)])
def test_a_disabled_napi_that_is_polled_violates(what) -> None:
    result = switch(napi_disabled(what))
    assert (result.outcome, result.observed) == ("violated", 1)
    assert 1 in result.events


def test_polls_before_it_is_disabled_for_good_are_fine() -> None:
    assert switch(event(Kind.DISABLE, subject=10), poll(work=3), napi_disabled()).outcome == "hold"


def test_a_poll_of_another_cpu_may_be_recorded_late() -> None:
    tail = on(1, complete(0), polled(0))
    assert switch(napi_disabled(tail)).outcome == "hold"
    assert switch(napi_disabled(tail, tail)).outcome == "violated"
    assert switch(napi_disabled(on(1, stack_rx(), polled(1)))).outcome == "violated"
    assert switch(napi_disabled(on(1, schedule(), polled(0)))).outcome == "violated"


def test_a_napi_that_is_never_enabled_again_must_stay_quiet() -> None:
    disabled = napi_disabled()[:-1]
    assert switch(disabled).outcome == "not-exercised"
    assert switch(disabled, poll(work=0)).outcome == "violated"
    assert switch(disabled, poll(work=0, napi=11)).outcome == "not-exercised"


# disable-terminates


def disabling(*parts, **facts):
    return outcome("disable-terminates", trace_of(*parts, **facts))


def call(ms, napi=10):
    return event(Kind.DISABLE, subject=napi) + later(ms) + event(Kind.DISABLED, subject=napi)


def test_calls_that_return_within_a_second_hold() -> None:
    result = disabling(call(1), call(999, napi=11))
    assert (result.outcome, result.observed, result.limit) == ("hold", 999, 1000)


def test_a_call_that_takes_longer_violates() -> None:
    result = disabling(call(1), call(1001))
    assert (result.outcome, result.observed, result.events) == ("violated", 1001, [2])


def test_a_call_that_never_returns_violates_after_a_second() -> None:
    hanging = event(Kind.DISABLE, subject=10) + call(1, napi=11)
    assert disabling(hanging, later(1001), polled(64)).outcome == "violated"
    assert disabling(hanging, later(900), polled(64)).outcome == "hold"
    assert disabling(hanging[:1], later(900), polled(64)).outcome == "not-exercised"


def test_a_guest_that_died_in_it_violates() -> None:
    assert disabling(event(Kind.DISABLE, subject=10), polled(64), alive=False).outcome == "violated"
    assert disabling(call(1), alive=False).outcome == "hold"


def test_lines_of_the_log_are_no_clock() -> None:
    late = event(Kind.DISABLE, subject=10) + later(2000) + event(Kind.LOG, subject=0)
    assert disabling(late).outcome == "not-exercised"


def test_in_real_time_it_may_take_longer() -> None:
    assert disabling(call(5000), clock="real").outcome == "hold"
    assert disabling(call(21_000), clock="real").outcome == "violated"
