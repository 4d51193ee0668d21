"""The ring-full contract on the newest kernel's igb: stock, with each repair, and broken on purpose."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import numpy as np
import pytest

from testbed.trace.events import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.result import Result
    from testbed.rules import RuleResult
    from testbed.run import Run

    Seen = Callable[..., Run]

DOZENS = 24
NAIVE, REPAIRED, IGNORED = "igb/ring-full-exit-naive", "igb/ring-full-exit", "igb/ring-full-ignored"


def judged(result: Result, rule_id: str) -> RuleResult:
    rule = result.rule(rule_id)
    assert rule, f"{rule_id} was not judged: {result.verdict}, {result.error}"
    return rule


def assert_goes_on_polling(run: Run) -> None:
    """See the bug: polls that met a full ring redirected dozens of frames more into it."""
    result = run.result
    rule = judged(result, "ring-full-exit")
    assert (result.verdict, rule.outcome, rule.limit) == ("fail", "violated", 1), rule.message
    assert rule.observed
    assert rule.observed >= DOZENS
    assert result.counters
    assert result.counters.max_redirect_errors_in_poll == rule.observed
    assert judged(result, "chunk-single-owner").outcome == "hold"


def test_stock_igb_goes_on_polling_into_a_full_ring(seen: Seen) -> None:
    run = seen("ring-full")
    stock = judged(run.result, "ring-full-exit")
    if stock.outcome == "hold":
        # A newer kernel has repaired it: then it keeps every rule, as the repaired variant does.
        assert (run.result.verdict, stock.observed) == ("pass", 1)
        return
    assert_goes_on_polling(run)
    assert [rule.id for rule in run.result.rules if rule.outcome == "violated"] == ["ring-full-exit"]


def test_the_proof_of_the_stock_bug_are_refused_redirects_of_the_trace(seen: Seen) -> None:
    run = seen("ring-full", IGNORED)
    assert run.trace
    rows = judged(run.result, "ring-full-exit").events
    assert len(rows) > 1
    proof = run.trace.events[np.array(rows)]
    refused = proof[proof["kind"] == Kind.REDIRECT]
    assert len(refused) > 1
    assert (refused["a"] == -errno.ENOBUFS).all()


def test_igb_that_ignores_a_full_ring_goes_on_polling(seen: Seen) -> None:
    assert_goes_on_polling(seen("ring-full", IGNORED))


def test_the_obvious_repair_keeps_the_exit_rule_and_corrupts_data(seen: Seen) -> None:
    result = seen("ring-full", NAIVE).result
    exit_rule = judged(result, "ring-full-exit")
    assert (exit_rule.outcome, exit_rule.observed) == ("hold", 1)
    assert judged(result, "chunk-single-owner").outcome == "violated"
    assert result.verdict == "fail"
    assert result.counters
    assert result.counters.out_of_order > 0
    assert result.counters.duplicated > 0


def test_the_right_repair_keeps_every_rule(seen: Seen) -> None:
    result = seen("ring-full", REPAIRED).result
    exit_rule = judged(result, "ring-full-exit")
    assert (exit_rule.outcome, exit_rule.observed) == ("hold", 1)
    assert judged(result, "chunk-single-owner").outcome == "hold"
    assert (result.verdict, result.error) == ("pass", None)
    assert result.counters
    assert (result.counters.out_of_order, result.counters.duplicated) == (0, 0)


def test_the_right_repair_saves_frames_that_the_ignoring_driver_loses(seen: Seen) -> None:
    ignored, repaired = (seen("ring-full", name).result.counters for name in (IGNORED, REPAIRED))
    assert ignored
    assert repaired
    assert ignored.frames_injected == repaired.frames_injected
    assert 0 < repaired.frames_lost < ignored.frames_lost / DOZENS * 2


@pytest.mark.parametrize("scenario", ["rx-steady", "tx-only"])
def test_stock_igb_keeps_every_rule_where_the_socket_keeps_up(seen: Seen, scenario: str) -> None:
    result = seen(scenario).result
    assert (result.verdict, result.error) == ("pass", None)
    assert result.counters
    assert result.counters.frames_lost == 0
    assert result.trace
    assert result.trace.lost == 0


def test_rx_steady_brings_every_frame_to_the_socket(seen: Seen) -> None:
    counters = seen("rx-steady").result.counters
    assert counters
    assert counters.frames_injected > 0
    assert counters.frames_to_driver == counters.frames_to_socket == counters.frames_injected
    assert counters.polls_full > 0


def test_tx_only_sends_and_completes_every_frame(seen: Seen) -> None:
    counters = seen("tx-only").result.counters
    assert counters
    assert counters.tx_submitted > 0
    assert counters.tx_sent == counters.tx_completed == counters.tx_submitted
    assert counters.frames_on_wire == counters.tx_submitted
