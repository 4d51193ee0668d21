"""Runs as KTAP: what the kernel's own test tools read (Documentation/dev-tools/ktap.rst).

The outermost plan counts runs. Each run is a subtest whose first point is the run itself: it is not ok when the run
is broken. A point for each rule follows. An unsupported run is one skipped point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.report.terminal import measure, title

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.result import Result
    from testbed.rules import RuleResult

__all__ = ["ktap_head", "ktap_lines"]

_VERSION = "KTAP version 1"
_INDENT = "  "


def ktap_head(runs: int) -> list[str]:
    """Return the first lines of a document that says how ``runs`` runs ended."""
    return [_VERSION, f"1..{runs}"]


def ktap_lines(result: Result, number: int = 1) -> Iterator[str]:
    """Yield the lines of one run.

    :param number: of its point in the document, from 1.
    """
    name = _plain(f"{result.scenario} on {result.nic}")
    if result.verdict == "unsupported":
        yield f"ok {number} - {name} # SKIP {_plain(result.error or 'unsupported')}"
        return
    inner = [_VERSION, f"# Subtest: {name}", f"1..{1 + len(result.rules)}", *_run_point(result)]
    for place, rule in enumerate(result.rules, 2):
        inner += _rule_point(rule, place)
    yield from (f"{_INDENT}{line}" for line in inner)
    yield f"{'ok' if result.verdict == 'pass' else 'not ok'} {number} - {name}"


def _run_point(result: Result) -> Iterator[str]:
    yield f"# {_line(title(result).plain)}"
    if result.error:
        yield f"# {_line(result.error)}"
    if result.reproduce:
        yield f"# reproduce: {_line(result.reproduce)}"
    yield f"{'not ok' if result.verdict == 'broken' else 'ok'} 1 - run"


def _rule_point(rule: RuleResult, place: int) -> Iterator[str]:
    name = f"{place} - {rule.id}"
    if rule.outcome == "not-exercised":
        yield f"ok {name} # SKIP {_plain(rule.message)}"
        return
    if rule.outcome in {"violated", "waived"}:
        yield f"# {rule.id}: {_line(rule.message)}"
        yield f"# observed: {measure(rule)}, limit: {rule.limit}"
    if rule.outcome == "waived":
        yield f"ok {name} # waived: {_plain(rule.waiver or '')}"
    else:
        yield f"{'not ok' if rule.outcome == 'violated' else 'ok'} {name}"


def _line(text: str) -> str:
    return " ".join(text.split())


def _plain(text: str) -> str:
    """Return a text for a result's line: one line without ``#``, which would begin a directive."""
    return _line(text).replace("#", "No. ")
