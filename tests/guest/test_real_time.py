"""Scenarios in real time, where stops and frames come when the host has time for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.pytest_plugin import RunScenario


def test_bursts_that_no_socket_buffer_holds_enter_at_once(run_scenario: RunScenario) -> None:
    result = run_scenario("rx-burst-edges", nic="igb", clock="real").result
    assert result.verdict == "pass", result.error
    assert result.counters is not None
    assert (result.counters.frames_to_socket, result.counters.frames_lost) == (2484, 0)
    assert result.counters.polls_full >= 4 * 4  # 300 frames that come together fill 4 polls, and that 4 times
