"""A kernel whose igb has no zero copy: what needs it is unsupported, the rest runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from testbed.pytest_plugin import RunScenario

OLDER = "debian:trixie"  # 6.12


def test_zero_copy_is_unsupported_before_6_14(run_scenario: RunScenario) -> None:
    result = run_scenario("ring-full", kernel=OLDER).result
    assert (result.verdict, result.exit_status()) == ("unsupported", 4)
    assert result.error
    assert "igb has zero_copy from kernel 6.14 on" in result.error
    assert "\n" not in result.error
    assert result.timings.boot_s == 0


@pytest.mark.parametrize("kernel", [OLDER, ""])
def test_copy_mode_brings_every_frame_on_any_kernel(run_scenario: RunScenario, kernel: str) -> None:
    result = run_scenario("rx-steady", kernel=kernel, set_={"mode": "copy"}).result
    assert (result.verdict, result.error) == ("pass", None)
    assert result.counters
    assert result.counters.frames_to_socket == result.counters.frames_injected > 0
    ring_full = result.rule("ring-full-exit")
    assert ring_full
    assert ring_full.outcome == "not-exercised"  # the rule is for zero copy
