"""One rule over one trace, for tests of rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.rules import RuleResult, judge

if TYPE_CHECKING:
    from testbed.trace import Trace


def outcome(rule: str, trace: Trace) -> RuleResult:
    """Return what a rule says; a violation cites rows that exist, nothing else cites any."""
    (result,) = judge(trace, only=[rule])
    assert result.id == rule
    assert bool(result.events) == (result.outcome == "violated")
    assert all(0 <= row < len(trace.events) for row in result.events)
    return result
