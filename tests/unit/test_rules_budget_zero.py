"""Rule 14 on traces that hold it, violate it, and do not exercise it."""

from __future__ import annotations

import pytest
from judging import outcome
from traces import (
    alloc,
    complete,
    event,
    frame,
    frames,
    on,
    poll,
    polled,
    reaped,
    refused,
    stack_rx,
    step,
    trace_of,
    tx_done,
    tx_taken,
    verdict,
)

from testbed.scenario.program import StepKind, Verdict
from testbed.trace.events import Kind

RULE = "budget-zero-discipline"
ZERO = polled(0, 0)
REFUSED = complete(returned=False)


def masked(before: int, after: int) -> list[dict[str, int]]:
    return event(Kind.MASK, a=before, b=after)


@pytest.mark.parametrize(
    "inside",
    [[], reaped(0), REFUSED, tx_done(0), tx_taken(0), alloc(0, 9)],
    ids=["nothing", "an skb reaped", "a completion refused", "none sent", "none taken", "no buffer"],
)
def test_cleaning_up_what_the_stack_sent_holds(inside) -> None:
    result = outcome(RULE, trace_of(poll(work=1), inside + ZERO))
    assert (result.outcome, result.observed) == ("hold", 0)


@pytest.mark.parametrize(
    "inside",
    [
        stack_rx(7),
        stack_rx(),
        verdict(7, Verdict.DROP),
        frame(7),
        refused(7),
        event(Kind.XDP_EXCEPTION, a=4),
        tx_done(1),
        tx_taken(1),
        alloc(1, 9),
        complete(),
        masked(0, 1),
    ],
    ids=[
        "a frame to the stack",
        "a foreign frame to the stack",
        "a verdict",
        "a redirect",
        "a refused redirect",
        "an XDP exception",
        "AF_XDP frames reported sent",
        "AF_XDP descriptors taken",
        "buffers taken",
        "a completion",
        "an unmask",
    ],
)
def test_whatever_else_is_done_violates(inside) -> None:
    result = outcome(RULE, trace_of(poll(work=1), reaped(0) + inside + ZERO, ZERO))
    assert (result.outcome, result.observed) == ("violated", 1)
    assert 1 < len(result.events) < 5


def test_several_wrongs_of_a_poll_are_one_poll() -> None:
    assert outcome(RULE, trace_of(frames(1, 2) + tx_done(3) + complete() + ZERO)).observed == 1


def test_the_same_with_a_budget_is_no_matter() -> None:
    assert outcome(RULE, trace_of(poll(frames(1), tx_done(3), work=1), ZERO)).outcome == "hold"


def test_generic_xdp_is_not_the_drivers() -> None:
    trace = trace_of(frame(7) + ZERO, settings={"xdp_mode": "generic"})
    assert outcome(RULE, trace).outcome == "hold"


def test_polls_of_other_cpus_are_told_apart() -> None:
    assert outcome(RULE, trace_of(frame(7), on(1, ZERO), poll(work=1))).outcome == "hold"


@pytest.mark.parametrize("facts", [{"settings": {"vcpus": 2}}, {"clock": "real"}])
def test_an_unmask_is_not_attributed_with_several_cpus_or_in_real_time(facts) -> None:
    assert outcome(RULE, trace_of(masked(0, 1), ZERO, **facts)).outcome == "hold"


def test_an_unmask_of_a_poll_with_a_budget_is_no_matter() -> None:
    assert outcome(RULE, trace_of(masked(0, 1), poll(work=1), masked(1, 0), ZERO)).outcome == "hold"


def test_what_a_bind_does_is_no_polls() -> None:
    assert outcome(RULE, trace_of(step(StepKind.BIND, alloc(9)), ZERO)).outcome == "hold"


def test_without_a_budget_of_zero_nothing_is_exercised() -> None:
    assert outcome(RULE, trace_of(poll(work=1))).outcome == "not-exercised"
