"""Rule 24 on traces of right and wrong drivers, with and without the agent's own ledger."""

from __future__ import annotations

import pytest
from judging import outcome
from traces import (
    ZERO_COPY,
    completed,
    fill,
    frame,
    frames,
    ledger,
    on,
    owners,
    poll,
    redirect,
    refused,
    ring,
    rx,
    step,
    trace_of,
    tx,
)

from testbed.rules.outcome import MAX_EVENTS
from testbed.scenario.program import StepKind
from testbed.trace.events import Ledger, Ring

RULE = "chunk-single-owner"
#: Two chunks, one of them delivered, posted again and delivered again.
CYCLE = fill(0, 1) + rx(0, 1) + fill(0) + rx(1, 2) + rx(0, 3)


def test_chunks_that_go_round_hold() -> None:
    result = outcome(RULE, trace_of(CYCLE))
    assert (result.outcome, result.observed, result.limit) == ("hold", 0, 0)
    assert "2 chunks" in result.message


def test_chunks_that_are_sent_again_exercise_it_too() -> None:
    trace = trace_of(tx(0, 1), completed(0), tx(0, 2), completed(0))
    assert outcome(RULE, trace).outcome == "hold"


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [fill(0, 1), rx(0, 1), rx(1, 2)],
        [fill(0), rx(0, 1), fill(0)],
        [fill(0), fill(0), rx(0, 1)],
        [tx(0, 1), completed(0), fill(0), rx(0, 1)],
        [fill(0), rx(0, 1), tx(0, 1)],
        [fill(0), rx(0, 1), tx(0, 9), completed(0)],
        [tx(0, 1), completed(0), tx(0, 2)],
    ],
)
def test_chunks_used_once_do_not_exercise_it(parts) -> None:
    assert outcome(RULE, trace_of(*parts)).outcome == "not-exercised"


def test_a_new_umem_has_new_chunks() -> None:
    trace = trace_of(fill(0), rx(0, 1), step(StepKind.UMEM), fill(0), rx(0, 2))
    assert outcome(RULE, trace).outcome == "not-exercised"
    trace = trace_of(fill(0), step(StepKind.UMEM), rx(0, 2))
    assert outcome(RULE, trace).outcome == "violated"


@pytest.mark.parametrize(
    ("parts", "row"),
    [
        ([CYCLE, rx(1, 4)], 6),  # delivered again before it went through FILL
        ([fill(0), rx(7, 1)], 1),  # delivered although never given
        ([fill(0), rx(0, 1), tx(0, 1), rx(0, 2)], 3),  # delivered while it was being sent
        ([tx(0, 1), completed(0), completed(0)], 2),  # completed twice
        ([fill(0), completed(0)], 1),  # completed although given to receive
    ],
)
def test_what_the_kernel_did_not_hold_violates_without_any_ledger(parts, row) -> None:
    result = outcome(RULE, trace_of(*parts))
    assert (result.outcome, result.observed, result.events) == ("violated", 1, [row])
    assert "did not hold: 1" in result.message


@pytest.mark.parametrize("found", list(Ledger))
def test_whatever_the_agents_ledger_found_violates(found) -> None:
    trace = trace_of(CYCLE, ledger(1, found))
    result = outcome(RULE, trace)
    assert (result.outcome, result.observed, result.events) == ("violated", 1, [len(trace.events) - 1])


def test_what_table_and_ledger_both_saw_counts_once() -> None:
    trace = trace_of(CYCLE, ledger(1, Ledger.TWICE), rx(1, 4))
    assert outcome(RULE, trace).observed == 1


def test_a_frame_out_of_order_violates() -> None:
    result = outcome(RULE, trace_of(fill(0, 1, 2), rx(0, 1), rx(1, 5), rx(2, 3)))
    assert (result.outcome, result.observed, result.events) == ("violated", 1, [5])
    assert result.message == "frames out of order: 1"


def test_a_frame_delivered_twice_violates_and_is_not_also_late() -> None:
    result = outcome(RULE, trace_of(fill(0, 1, 2), rx(0, 1), rx(1, 5), rx(2, 1)))
    assert (result.observed, result.message) == (1, "frames delivered twice: 1")


def test_a_gap_in_the_numbers_is_no_disorder() -> None:
    assert outcome(RULE, trace_of(CYCLE, fill(0), rx(0, 900))).outcome == "hold"


def test_foreign_frames_have_no_order() -> None:
    trace = trace_of(CYCLE, fill(0, 1), rx(0, 0, intact=0), rx(1, 0, intact=0))
    assert outcome(RULE, trace).outcome == "hold"


def test_a_damaged_frame_violates() -> None:
    result = outcome(RULE, trace_of(CYCLE, fill(0), rx(0, 9, intact=-1)))
    assert (result.outcome, result.message) == ("violated", "frames damaged: 1")


def test_a_frame_overwritten_while_it_waited_violates() -> None:
    trace = trace_of(fill(0, 1), poll(frames(1, 2), work=2), poll(refused(3), work=1), rx(0, 3), rx(1, 4))
    result = outcome(RULE, trace)
    assert result.outcome == "violated"
    assert "overwritten while they waited in the RX ring: 2" in result.message


def test_a_damaged_frame_is_not_also_another_one() -> None:
    trace = trace_of(fill(0, 1), poll(frames(1, 2), work=2), rx(0, 7, intact=-1), rx(1, 2))
    assert outcome(RULE, trace).message == "frames damaged: 1"


def test_frames_read_as_they_were_redirected_hold() -> None:
    trace = trace_of(
        fill(0, 1),
        poll(frames(1), refused(2), frames(3), work=3),
        rx(0, 1),
        fill(0),
        rx(1, 3),
        poll(frames(4, 5), work=2),
        rx(0, 4),
    )
    assert outcome(RULE, trace).outcome == "hold"


def test_foreign_frames_take_their_place_in_the_ring() -> None:
    trace = trace_of(
        fill(0, 1, 2), poll(frame(1), redirect(), frame(2), work=3), rx(0, 1), rx(1, 0, intact=0), rx(2, 2)
    )
    assert outcome(RULE, trace).outcome == "not-exercised"


def test_a_new_socket_has_an_empty_ring() -> None:
    trace = trace_of(
        fill(0, 1, 2),
        poll(frames(1, 2), work=2),
        rx(0, 1),
        step(StepKind.BIND),
        poll(frame(3), work=1),
        rx(2, 3),
    )
    assert outcome(RULE, trace).outcome == "not-exercised"


def test_frames_of_two_rings_or_two_cpus_are_not_compared() -> None:
    apart = trace_of(fill(0, 1), poll(frame(1), frame(2, queue=1), work=2), rx(0, 2), rx(1, 3))
    assert outcome(RULE, apart).outcome == "not-exercised"
    apart = trace_of(fill(0, 1), poll(frame(1), work=1), on(1, poll(frame(2), work=1)), rx(0, 2), rx(1, 3))
    assert outcome(RULE, apart).outcome == "not-exercised"


def test_a_fill_ring_that_holds_more_than_it_was_given_violates() -> None:
    trace = trace_of(CYCLE, fill(0, 1), ring(Ring.FILL, 5, 2))
    result = outcome(RULE, trace)
    assert (result.outcome, result.events) == ("violated", [len(trace.events) - 1])
    assert "FILL ring with more entries than chunks: 1" in result.message
    assert outcome(RULE, trace_of(CYCLE, fill(0, 1), ring(Ring.FILL, 5, 3))).outcome == "hold"
    assert outcome(RULE, trace_of(CYCLE, fill(0, 1), ring(Ring.RX, 50, 3))).outcome == "hold"


def test_a_chunk_posted_twice_is_still_one() -> None:
    doubled = trace_of(CYCLE, fill(0), fill(0), ring(Ring.FILL, 5, 3))
    assert outcome(RULE, doubled).outcome == "violated"


def test_ring_indices_wrap() -> None:
    assert outcome(RULE, trace_of(CYCLE, fill(0, 1), ring(Ring.FILL, -(2**31), 2**31 - 2))).outcome == "hold"
    assert (
        outcome(RULE, trace_of(CYCLE, fill(0, 1), ring(Ring.FILL, -(2**31), 2**31 - 3))).outcome == "violated"
    )


def test_a_ledger_that_does_not_add_up_violates() -> None:
    settings = {**ZERO_COPY, "umem_chunks": 8}
    good, bad = owners(1, 2, 3, 1, 1), owners(1, 2, 3, 1, 2)
    assert outcome(RULE, trace_of(CYCLE, good, settings=settings)).outcome == "hold"
    assert outcome(RULE, trace_of(CYCLE, good, bad, settings=settings)).outcome == "violated"
    assert outcome(RULE, trace_of(CYCLE, bad)).outcome == "hold"


def test_the_proof_is_capped_and_shows_each_way() -> None:
    late = [line for number in range(200) for line in fill(0) + rx(0, 1000 - number)]
    trace = trace_of(late, ledger(0, Ledger.CHANGED))
    result = outcome(RULE, trace)
    assert len(result.events) <= MAX_EVENTS
    assert len(trace.events) - 1 in result.events
    assert result.observed == 200
