"""The events around each violation, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.errors import UsageError
from testbed.report.terminal import measure
from testbed.trace import event_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    import numpy.typing as npt

    from testbed.result import Result
    from testbed.rules import RuleResult

__all__ = ["evidence_lines"]

_AROUND = 8
_MAX_WINDOWS = 6


def evidence_lines(result: Result, events: npt.NDArray[np.void], rule_id: str | None = None) -> Iterator[str]:
    """Return the lines that show the proof of each violated or waived rule; cited rows are marked with ``>``.

    :param events: the trace that belongs to the result.
    :param rule_id: only this rule, whatever its outcome.
    :raise UsageError: the trace is not the result's, or the result has no such rule.
    """
    if result.trace is None or result.trace.events != len(events):
        expected = "no trace" if result.trace is None else f"a trace of {result.trace.events} events"
        raise UsageError(
            f"the result has {expected}, found {len(events)} events",
            "keep result.json and trace.npy of one run together",
        )
    return _lines(_chosen(result, rule_id), events)


def _chosen(result: Result, rule_id: str | None) -> list[RuleResult]:
    if rule_id is None:
        return [rule for rule in result.rules if rule.outcome in {"violated", "waived"}]
    rule = result.rule(rule_id)
    if rule is None:
        judged = ", ".join(rule.id for rule in result.rules)
        raise UsageError(f"the result has no rule {rule_id}", f"it was judged by {judged or 'none'}")
    return [rule]


def _lines(rules: list[RuleResult], events: npt.NDArray[np.void]) -> Iterator[str]:
    if not rules:
        yield "no rule is violated"
    for rule in rules:
        numbers = f", {measure(rule)}, limit {rule.limit}" if rule.observed is not None else ""
        yield f"{rule.number} {rule.id}: {rule.outcome}{numbers}: {rule.message}"
        windows = _windows([row for row in rule.events if row < len(events)], len(events))
        for begin, end in windows[:_MAX_WINDOWS]:
            yield "   ..." if begin else ""
            for row, line in zip(range(begin, end), event_lines(events, range(begin, end)), strict=True):
                yield f"{'>' if row in rule.events else ' '} {line}"
        if len(windows) > _MAX_WINDOWS:
            yield f"   and {len(windows) - _MAX_WINDOWS} more places like these"
        yield ""


def _windows(rows: Iterable[int], length: int) -> list[tuple[int, int]]:
    """Return the ranges of rows around those given, joined where they touch."""
    windows: list[tuple[int, int]] = []
    for row in sorted(rows):
        begin, end = max(0, row - _AROUND), min(length, row + _AROUND + 1)
        if windows and begin <= windows[-1][1]:
            windows[-1] = (windows[-1][0], end)
        else:
            windows.append((begin, end))
    return windows
