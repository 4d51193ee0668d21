"""The event table: decoding, polls, digest, counters, text."""

from __future__ import annotations

import time

import numpy as np
import pytest
from traces import (
    complete,
    completed,
    event,
    events_of,
    fill,
    flush,
    frame,
    frames,
    interface,
    interleaved,
    irq,
    on,
    poll,
    polled,
    redirect,
    refused,
    ring,
    rx,
    schedule,
    stack_rx,
    statistic,
    step,
    trace_of,
    tx,
    verdict,
)

from testbed.errors import GuestLost, UsageError
from testbed.scenario.program import StepKind, Verdict
from testbed.trace import (
    count,
    decode_events,
    event_lines,
    load_events,
    save_events,
    sequence_digest,
)
from testbed.trace.events import EVENT, Counter, Kind, Ring, XdpStatistics


def test_decoding_returns_the_rows_that_were_encoded() -> None:
    events = events_of(poll(frame(5), work=1))
    assert np.array_equal(decode_events(events.tobytes()), events)


def test_decoded_table_owns_its_memory() -> None:
    buffer = bytearray(events_of(fill(1)).tobytes())
    decoded = decode_events(buffer)
    buffer[:] = bytes(len(buffer))
    assert decoded["kind"][0] == Kind.FILL


def test_a_cut_record_is_refused() -> None:
    with pytest.raises(GuestLost, match="33 bytes"):
        decode_events(bytes(33))


def test_an_unknown_kind_is_refused_with_its_row() -> None:
    events = events_of(fill(1), fill(2))
    events["kind"][1] = 999
    with pytest.raises(GuestLost, match=r"event 1 .* kind 999"):
        decode_events(events.tobytes())


def test_a_saved_table_loads_equal(tmp_path) -> None:
    events = events_of(poll(work=3))
    save_events(tmp_path / "trace.npy", events)
    assert np.array_equal(load_events(tmp_path / "trace.npy"), events)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.npy"]


@pytest.mark.parametrize("content", [b"", b"not numpy", b"\x93NUMPY\x01\x00"])
def test_a_file_that_is_no_table_is_a_usage_error(tmp_path, content) -> None:
    (tmp_path / "trace.npy").write_bytes(content)
    with pytest.raises(UsageError, match="expected an event table"):
        load_events(tmp_path / "trace.npy")


def test_another_array_is_a_usage_error(tmp_path) -> None:
    np.save(tmp_path / "trace.npy", np.arange(3))
    with pytest.raises(UsageError, match="another array"):
        load_events(tmp_path / "trace.npy")


def test_a_missing_table_is_a_usage_error(tmp_path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_events(tmp_path / "trace.npy")


def test_events_belong_to_the_poll_that_ends_after_them() -> None:
    trace = trace_of(poll(frame(1), work=1), poll(frame(2), frame(3), work=2))
    polls = trace.polls
    redirects = trace.rows(Kind.REDIRECT)
    assert polls.count(redirects).tolist() == [1, 2]
    assert polls.members(1)[-1] == polls.row[1]
    assert polls.last(redirects).tolist() == [redirects[0], redirects[2]]
    assert polls.first(redirects).tolist() == [redirects[0], redirects[1]]


def test_polls_of_two_cpus_do_not_mix() -> None:
    trace = trace_of(interleaved(poll(frames(1, 2, 3), work=3), on(1, poll(frames(10, 11), work=2, napi=11))))
    assert sorted(zip(trace.polls.cpu, trace.polls.count(trace.rows(Kind.REDIRECT)), strict=True)) == [
        (0, 3),
        (1, 2),
    ]


def test_the_agents_events_belong_to_no_poll() -> None:
    trace = trace_of(frame(1), rx(0, 1), fill(0), polled(1))
    assert trace.polls.owner.tolist() == [0, 0, -1, -1, 0]


def test_events_after_the_last_poll_belong_to_none() -> None:
    assert trace_of(poll(work=0), frame(1)).polls.owner[-2:].tolist() == [-1, -1]


def test_a_completion_of_another_napi_is_not_the_polls() -> None:
    assert trace_of(complete(napi=99), polled(0)).polls.completes.tolist() == [0]


@pytest.mark.parametrize(
    ("trace", "completes"),
    [
        # disabling NAPI: the core completes after the full poll, then the next poll completes by itself
        (trace_of(step(StepKind.BIND, polled(64), complete(), schedule(), complete(3), polled(3))), [0, 1]),
        (trace_of(step(StepKind.BIND, polled(64), complete(64), schedule(), polled(64))), [0, 0]),
        # busy polling preferred
        (trace_of(polled(8, 8), complete(8), polled(8, 8), settings={"busy_poll": True}), [0, 0]),
        # a short poll that found nothing: its only completion is its own, whatever the settings
        (trace_of(polled(8, 8), complete(), polled(0, 8), settings={"busy_poll": True}), [0, 1]),
        # no cause for the core to complete: the driver did
        (trace_of(polled(64), complete(64), polled(64)), [0, 1]),
        (trace_of(polled(64), complete(), complete(), polled(0)), [0, 2]),
        # frames were handled first: the driver did
        (trace_of(step(StepKind.BIND, polled(64), frame(1), complete(), polled(64))), [0, 1]),
        # the poll before was not full: the driver did
        (trace_of(step(StepKind.BIND, complete(), polled(63), complete(), polled(64))), [1, 1]),
        # of another NAPI: the driver did
        (trace_of(step(StepKind.BIND, polled(64, napi=11), complete(), polled(64))), [0, 1]),
    ],
)
def test_completions_by_the_core_are_told_apart(trace, completes) -> None:
    assert trace.polls.completes.tolist() == completes


def test_a_napi_that_was_enabled_again_in_a_step_is_no_longer_reconfigured() -> None:
    inside = polled(1) + event(Kind.DISABLE, subject=10) + polled(2) + event(Kind.DISABLED, subject=10)
    after = event(Kind.ENABLE, subject=10) + polled(3) + polled(4, napi=11)
    trace = trace_of(polled(0), step(StepKind.BIND, inside, after), polled(5))
    assert trace.polls.reconfigured.tolist() == [False, True, True, False, True, False]
    again = trace_of(step(StepKind.BIND, inside, after), step(StepKind.UNBIND, polled(6)))
    assert again.polls.reconfigured[-1]


def test_the_polls_of_a_hundred_thousand_events_are_found_at_once() -> None:
    one = events_of(poll(frames(*range(10)), work=10))
    trace = trace_of()
    trace = type(trace)(events=np.tile(one, 100_000 // len(one)))
    begin = time.perf_counter()
    assert len(trace.polls) == 100_000 // len(one)
    assert time.perf_counter() - begin < 0.5


def test_equal_sequences_have_equal_digests_whatever_the_clock_and_cpu() -> None:
    one, other = events_of(irq(), poll(frame(1), work=1)), events_of(on(1, irq(), poll(frame(1), work=1)))
    other["time_ns"] += 17
    assert sequence_digest(one) == sequence_digest(other)


def test_the_digest_does_not_depend_on_the_names_of_napi_and_irq() -> None:
    one = events_of(irq(30), schedule(10), polled(1, napi=10), irq(31), polled(2, napi=11))
    other = events_of(irq(40), schedule(70), polled(1, napi=70), irq(38), polled(2, napi=69))
    swapped = events_of(irq(30), schedule(10), polled(1, napi=11), irq(31), polled(2, napi=10))
    assert sequence_digest(one) == sequence_digest(other)
    assert sequence_digest(one) != sequence_digest(swapped)


def test_the_digest_ignores_the_kernel_log() -> None:
    assert sequence_digest(events_of(fill(1))) == sequence_digest(
        events_of(fill(1), event(Kind.LOG, subject=4))
    )


@pytest.mark.parametrize("name", ["subject", "a", "b", "c", "kind"])
def test_any_other_value_gives_another_digest(name) -> None:
    events = events_of(rx(1, 2), rx(3, 4))
    changed = events.copy()
    changed[name][1] += 1
    assert sequence_digest(events) != sequence_digest(changed)


def test_order_and_number_of_events_change_the_digest() -> None:
    digests = {
        sequence_digest(events_of(*parts))
        for parts in ([fill(1), fill(2)], [fill(2), fill(1)], [fill(1)], [])
    }
    assert len(digests) == 4


def test_counters_of_a_ring_that_was_full() -> None:
    trace = trace_of(
        statistic(XdpStatistics.RX_RING_FULL, 2),
        irq(),
        poll(frames(1, 2), refused(3), refused(4), work=4),
        poll(refused(5), verdict(6, Verdict.PASS), verdict(7, Verdict.DROP), verdict(8, Verdict.TX), work=64),
        rx(0, 2),
        rx(1, 1),
        rx(2, 1),
        rx(3, 0, intact=0),
        rx(4, 9, intact=-1),
        statistic(XdpStatistics.RX_RING_FULL, 5),
        injected=10,
    )
    counters = count(trace)
    assert counters.frames_injected == 10
    assert counters.frames_to_driver == 8
    assert counters.frames_to_socket == 2
    assert counters.frames_to_stack == 1
    assert counters.frames_refused == 3
    assert counters.frames_dropped_by_program == 1
    assert counters.frames_lost == 5  # 3, 4, 5 refused; 9 damaged and 10 never seen
    assert (counters.out_of_order, counters.duplicated) == (1, 1)
    assert (counters.polls, counters.polls_full) == (2, 1)
    assert (counters.redirect_errors, counters.max_redirect_errors_in_poll) == (3, 2)
    assert counters.rx_ring_full == 3
    assert (counters.irqs, counters.irqs_per_1000_frames) == (1, 125.0)
    assert counters.virtual_ns == 1000 * (len(trace.events) - 1)


def test_counters_of_sending() -> None:
    trace = trace_of(
        tx(0, 100), tx(1, 101), tx(2, 102), completed(0, 1), wire_sequences=np.array([100, 102, 500])
    )
    counters = count(trace, frames_on_wire=7)
    assert (counters.tx_submitted, counters.tx_sent, counters.tx_completed) == (3, 2, 2)
    assert counters.frames_on_wire == 7
    assert count(trace).frames_on_wire == 3


def test_interrupts_are_counted_per_frame_received_or_completed() -> None:
    trace = trace_of(irq(), irq(), poll(frames(1, 2, 3), work=3), tx(0, 1), completed(0))
    assert count(trace).irqs_per_1000_frames == 500.0


def test_a_budget_of_one_can_be_full_and_one_of_zero_cannot() -> None:
    assert trace_of(polled(1, 1), polled(0, 1), polled(0, 0)).polls.full.tolist() == [True, False, False]


def test_without_a_program_the_interface_says_what_the_stack_got() -> None:
    trace = trace_of(
        interface(Counter.RX_PACKETS, 100), poll(work=5), interface(Counter.RX_PACKETS, 105), injected=7
    )
    counters = count(trace)
    assert (counters.frames_to_stack, counters.frames_to_driver, counters.frames_lost) == (5, 5, 2)


def test_without_a_program_the_drivers_own_frames_say_more_than_the_interface() -> None:
    trace = trace_of(
        interface(Counter.RX_PACKETS, 100),
        poll(stack_rx(1), stack_rx(2), stack_rx(), work=3),
        poll(verdict(3, Verdict.PASS), stack_rx(3), verdict(4, Verdict.DROP), work=2),
        interface(Counter.RX_PACKETS, 105),
        injected=7,
    )
    counters = count(trace)
    assert (counters.frames_to_stack, counters.frames_to_driver, counters.frames_lost) == (3, 4, 3)


def test_a_frame_without_a_socket_goes_to_the_stack() -> None:
    counters = count(trace_of(poll(verdict(1), verdict(2), redirect(), work=2), injected=2))
    assert (counters.frames_to_stack, counters.frames_lost) == (1, 1)


def test_a_refused_frame_that_is_retried_is_refused_once_and_not_lost() -> None:
    counters = count(
        trace_of(
            poll(refused(1), work=1), poll(refused(1), work=1), poll(frame(1), work=1), rx(0, 1), injected=1
        )
    )
    assert (counters.frames_refused, counters.redirect_errors, counters.frames_lost) == (1, 2, 0)


def test_one_frame_is_enough_to_know_that_there_is_a_program() -> None:
    assert count(trace_of(poll(verdict(1, Verdict.DROP), work=1))).frames_to_driver == 1


def test_a_redirect_to_another_device_is_not_lost() -> None:
    for map_type in (14, 16, 25):  # DEVMAP, CPUMAP, DEVMAP_HASH
        trace = trace_of(poll(verdict(1), redirect(map_type=map_type), work=1), injected=1)
        assert count(trace).frames_lost == 0
    assert count(trace_of(poll(verdict(1), redirect(), work=1), injected=1)).frames_lost == 1


def test_counters_of_nothing_are_zero() -> None:
    counters = count(trace_of())
    assert all(getattr(counters, name) == 0 for name in counters.__struct_fields__)


def test_a_single_reading_of_a_statistic_is_its_growth() -> None:
    assert count(trace_of(statistic(XdpStatistics.RX_RING_FULL, 4))).rx_ring_full == 4


def test_text_names_every_number() -> None:
    lines = list(
        event_lines(
            events_of(
                refused(7),
                polled(3),
                ring(Ring.FILL, 9, 4),
                step(StepKind.SLEEP),
                event(Kind.XDP_EXCEPTION, a=1),
            )
        )
    )
    assert "0.000 us cpu0 VERDICT" in lines[0]
    assert "action=REDIRECT sequence=7" in lines[0]
    assert "1.000 us" in lines[1]
    assert "queue=0 result=-ENOBUFS map_type=17" in lines[1]
    assert "POLL" in lines[2]
    assert "napi=10 work=3 budget=64" in lines[2]
    assert "ring=FILL producer=9 consumer=4 entries=64 need_wakeup=0" in lines[3]
    assert "kind=SLEEP" in lines[4]
    assert "action=DROP" in lines[6]


def test_text_survives_numbers_it_does_not_know() -> None:
    events = events_of(event(Kind.STEP_BEGIN, a=999), redirect(error=4095))
    assert "kind=999" in next(event_lines(events))
    assert "result=-4095" in next(event_lines(events, [1]))
    events["kind"][0] = 777
    assert "kind-777 " in next(event_lines(events))


def test_every_kind_has_its_text() -> None:
    events = np.zeros(len(Kind), dtype=EVENT)
    events["kind"] = list(Kind)
    assert all(kind.name in line for kind, line in zip(Kind, event_lines(events), strict=True))


def test_flush_outside_polls_is_nobodys() -> None:
    assert trace_of(flush()).polls.owner.tolist() == [-1]
