"""Rules that need to see the device: 6, 7, 30, 35 and 39."""

from __future__ import annotations

import pytest
from judging import outcome
from traces import ZERO_COPY, complete, event, irq, later, polled, schedule, trace_of

from testbed.trace.events import Kind

RIE = 0x40
MASKED, OPEN = 0xD081, 0xD0C1


def mask(before: int, now: int) -> list[dict[str, int]]:
    return event(Kind.MASK, cpu=255, a=before, b=now)


def sent(address: int = 0x1000, size: int = 64) -> list[dict[str, int]]:
    return event(Kind.TX_DONE, cpu=255, b=size, c=address)


def reaped(count: int) -> list[dict[str, int]]:
    return event(Kind.XSK_TX_DONE, a=count)


@pytest.mark.parametrize("rule", ["unmask-needs-ownership", "unmask-after-complete"])
def test_masking_is_not_exercised_without_a_device_that_tells(rule: str) -> None:
    assert outcome(rule, trace_of(complete(), polled(0))).outcome == "not-exercised"


def test_unmasking_after_a_true_completion_holds_both() -> None:
    trace = trace_of(mask(OPEN, MASKED), complete(), mask(MASKED, OPEN), polled(0))
    assert outcome("unmask-after-complete", trace).outcome == "hold"
    assert outcome("unmask-needs-ownership", trace).outcome == "not-exercised"


@pytest.mark.parametrize("rule", ["unmask-needs-ownership", "unmask-after-complete", "mask-before-schedule"])
def test_masks_that_are_told_late_as_in_real_time_prove_nothing(rule: str) -> None:
    late = irq() + schedule() + mask(OPEN, MASKED) + complete() + polled(0) + mask(MASKED, OPEN)
    assert outcome(rule, trace_of(late, clock="real")).outcome == "not-exercised"


def test_writing_an_open_mask_again_is_an_unmask() -> None:
    trace = trace_of(mask(OPEN, OPEN), complete(), mask(OPEN, OPEN), polled(0))
    assert outcome("unmask-after-complete", trace).outcome == "hold"


@pytest.mark.parametrize("late", [[], polled(0, napi=11) + mask(MASKED, OPEN)])
def test_a_poll_that_leaves_its_interrupt_masked_is_told(late: list[dict[str, int]]) -> None:
    trace = trace_of(mask(OPEN, MASKED), complete(), polled(0), late)
    found = outcome("unmask-after-complete", trace)
    assert (found.outcome, found.observed, found.events) == ("violated", 1, [1, 2])


def test_unmasking_although_the_core_said_no_is_told() -> None:
    told_no = complete(5, returned=False)
    good = trace_of(mask(OPEN, MASKED), told_no, polled(5))
    bad = trace_of(mask(OPEN, MASKED), told_no, mask(MASKED, OPEN), polled(5))
    unchanged = trace_of(mask(OPEN, OPEN), told_no, mask(OPEN, OPEN), polled(5))
    assert outcome("unmask-needs-ownership", good).outcome == "hold"
    assert outcome("unmask-needs-ownership", unchanged).outcome == "hold"
    found = outcome("unmask-needs-ownership", bad)
    assert (found.outcome, found.events) == ("violated", [1, 2])


def test_masking_before_scheduling_holds() -> None:
    both = irq() + mask(OPEN, MASKED) + schedule() + mask(OPEN, MASKED) + schedule(napi=11)
    assert outcome("mask-before-schedule", trace_of(both, complete(), polled(0))).outcome == "hold"


def test_masking_behind_the_schedule_is_told() -> None:
    trace = trace_of(irq(), schedule(), mask(OPEN, MASKED), complete(), mask(MASKED, OPEN), polled(0))
    found = outcome("mask-before-schedule", trace)
    assert (found.outcome, found.observed, found.events) == ("violated", 1, [2])
    last = outcome("mask-before-schedule", trace_of(irq(), schedule(), mask(OPEN, MASKED)))
    assert last.outcome == "violated"


def test_a_schedule_without_a_mask_and_a_mask_without_a_schedule_say_nothing() -> None:
    wakeup = schedule() + complete() + mask(OPEN, OPEN) + polled(0)
    for trace in (trace_of(wakeup), trace_of(mask(OPEN, 0), polled(0)), trace_of(schedule())):
        assert outcome("mask-before-schedule", trace).outcome == "not-exercised"


def test_data_at_address_0_is_told() -> None:
    assert outcome("dma-valid", trace_of(polled(0))).outcome == "not-exercised"
    assert outcome("dma-valid", trace_of(sent(), sent(0, size=0))).outcome == "hold"
    found = outcome("dma-valid", trace_of(sent(), sent(0)))
    assert (found.outcome, found.observed, found.events) == ("violated", 1, [1])


def test_what_is_sent_must_be_reaped_in_time() -> None:
    def after(*milliseconds: int) -> str:
        parts = [part for ms in milliseconds for part in (later(ms), reaped(1))]
        return outcome(
            "tx-coalesce-armed", trace_of(sent(), sent(), *parts, polled(0), settings=ZERO_COPY)
        ).outcome

    assert outcome("tx-coalesce-armed", trace_of(polled(0))).outcome == "not-exercised"
    assert after(4, 10) == "hold"
    assert after(4, 12) == "violated"


def test_what_is_never_reaped_counts_until_the_end() -> None:
    trace = trace_of(sent(), later(40), polled(0), settings=ZERO_COPY)
    found = outcome("tx-coalesce-armed", trace)
    assert (found.outcome, found.observed) == ("violated", 40)
