"""Rule 17 on traces that hold it, violate it, and do not exercise it."""

from __future__ import annotations

import pytest
from judging import outcome
from traces import (
    DEFAULT_NAPI,
    ZERO_COPY,
    bound,
    carrier,
    complete,
    event,
    filled,
    polled,
    schedule,
    step,
    times,
    trace_of,
    tx,
    tx_done,
    tx_taken,
)

from testbed.scenario.program import StepKind
from testbed.trace.events import Flag, Kind

RULE = "busy-poll-polls"
SETTINGS = {**ZERO_COPY, "busy_poll": 8, "tx_ring": 64, "completion_entries": 64}
ANEW = pytest.mark.parametrize("anew", [StepKind.BIND, StepKind.MTU], ids=lambda kind: kind.name.lower())


def busy(*inside, budget=8):
    """A poll that a call makes: the core refuses its completion."""
    lines = [line for part in inside for line in part] + complete(returned=False)
    return lines + event(Kind.POLL, subject=DEFAULT_NAPI, a=0, b=budget, flags=Flag.BUSY)


def receive(*inside):
    return step(StepKind.WAKEUP_RX, *inside, done=1)


def send(*inside, kind=StepKind.WAKEUP_TX):
    return step(kind, *inside, done=1)


def knows(napi=DEFAULT_NAPI):
    return event(Kind.NAPI_ID, subject=napi)


def entries(count=2):
    """Entries in the TX ring."""
    return step(StepKind.TX, *(tx(chunk, chunk) for chunk in range(count)), done=count)


def judged(*parts, **settings):
    return outcome(RULE, trace_of(bound(), *parts, settings={**SETTINGS, **settings}))


def test_calls_that_poll_with_the_budget_of_the_socket_hold() -> None:
    result = judged(times(3, receive(busy())), knows())
    assert (result.outcome, result.observed) == ("hold", 0)
    assert "3 calls made 3 polls of their own" in result.message


def test_what_is_sent_in_the_first_poll_or_the_third_holds() -> None:
    sent = send(busy(tx_taken(2), tx_done(2)))
    assert judged(entries(), sent, times(2, send(busy()))).outcome == "hold"
    assert judged(entries(), times(2, send(busy())), sent).outcome == "hold"


def test_softirq_may_have_the_napi_twice_in_a_row() -> None:
    taken = receive()
    assert judged(times(2, taken + taken + receive(busy()))).outcome == "hold"


def test_the_third_call_without_a_poll_violates() -> None:
    result = judged(times(2, receive(busy())), times(3, receive()), receive(busy()))
    assert (result.outcome, result.observed, len(result.events)) == ("violated", 1, 1)
    assert judged(times(6, receive())).observed == 2


def test_a_poll_in_softirq_is_no_poll_of_the_call() -> None:
    softirq = schedule() + complete() + polled(0, 8)
    assert judged(times(3, receive(softirq))).outcome == "violated"


def test_polls_with_another_budget_violate() -> None:
    assert judged(times(3, receive(busy())), receive(busy(budget=64))).observed == 1


def test_a_socket_that_knows_no_napi_violates() -> None:
    result = judged(times(3, receive(busy())), knows(0))
    assert (result.outcome, result.observed) == ("violated", 1)
    assert (
        judged(times(2, receive()), knows(0), receive(busy())).outcome == "hold"
    )  # older kernels take a frame


@pytest.mark.parametrize("kind", [StepKind.WAKEUP_TX, StepKind.TX_KICK], ids=lambda kind: kind.name.lower())
def test_the_third_send_that_sends_nothing_violates(kind) -> None:
    result = judged(entries(), times(3, send(busy(), kind=kind)))
    assert (result.outcome, result.observed) == ("violated", 1)
    assert "1 the third that sent nothing" in result.message


def test_sends_with_nothing_to_send_or_no_link_hold() -> None:
    assert judged(times(3, send(busy()))).outcome == "hold"
    assert judged(entries(), carrier(on=False), times(3, send(busy()))).outcome == "hold"


def test_copy_mode_sends_without_the_napi() -> None:
    assert judged(entries(), times(3, send(busy())), mode="copy").outcome == "hold"
    assert judged(entries(), times(3, send()), mode="copy").outcome == "violated"


@ANEW
def test_calls_count_anew_after_a_new_set_up(anew) -> None:
    assert judged(times(2, receive()), step(anew), times(2, receive()), receive(busy())).outcome == "hold"


def test_without_busy_polling_or_calls_nothing_is_judged() -> None:
    assert judged(times(3, receive()), busy_poll=0).outcome == "not-exercised"
    assert judged(times(2, receive(busy()))).outcome == "not-exercised"
    assert judged(filled(1), times(3, step(StepKind.WAKEUP_RX))).outcome == "not-exercised"  # no flag asked
