"""A NIC and a driver unlike Intel's: interrupts named otherwise, one NAPI for Tx and one for Rx."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.pytest_plugin import RunScenario
    from testbed.run import Run

NIC = "virtio-net"


def test_both_directions_keep_the_contract_and_go_the_same_way_each_time(run_scenario: RunScenario) -> None:
    runs = [run_scenario("rx-tx-mix", nic=NIC).result for _ in range(2)]
    assert [(result.verdict, result.error) for result in runs] == [("pass", None)] * 2
    assert runs[0].trace
    assert runs[0].trace == runs[1].trace
    assert runs[0].counters
    assert runs[0].counters.irqs > 0


def test_a_full_ring_is_waived_by_name(seen: Callable[..., Run]) -> None:
    rule = seen("ring-full", nic=NIC).result.rule("ring-full-exit")
    assert rule
    assert (rule.outcome, rule.observed) == ("waived", 36)


def test_what_the_program_sends_back_from_a_zero_copy_queue_is_lost(seen: Callable[..., Run]) -> None:
    rule = seen("xdp-verdicts", nic=NIC).result.rule("verdict-conservation")  # docs/findings.md, 4
    assert rule
    assert rule.outcome == "violated"
    assert "frames to be sent back that never left: 400" in rule.message


def test_a_socket_that_polls_busily_receives_and_does_not_send(seen: Callable[..., Run]) -> None:
    receiving, sending = (
        seen(name, nic=NIC).result.rule("busy-poll-polls") for name in ("busy-poll-rx", "busy-poll-tx")
    )
    assert receiving
    assert sending
    assert receiving.outcome == "hold"
    assert (sending.outcome, sending.observed) == ("violated", 10)  # docs/findings.md, 11


def test_moderation_that_the_driver_has_not_is_unsupported(run_scenario: RunScenario) -> None:
    result = run_scenario("coalesce", nic=NIC).result
    assert (result.verdict, result.exit_status()) == ("unsupported", 4)
