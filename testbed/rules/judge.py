"""Judging: every rule over one trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.rules.outcome import RuleResult
from testbed.rules.registry import all_rules, rule_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from testbed.rules.registry import Rule
    from testbed.rules.waivers import Waiver
    from testbed.trace import Trace

__all__ = ["judge"]


def judge(
    trace: Trace, only: Iterable[str] | None = None, waivers: Sequence[Waiver] = ()
) -> list[RuleResult]:
    """Return what the rules say of a trace, ordered by their number.

    :param only: ids of the rules to judge by; all by default.
    :param waivers: what is waived; the first that covers a violation is named in it.
    :raise UsageError: ``only`` names a rule that does not exist.
    """
    rules = (
        all_rules().values()
        if only is None
        else {rule_named(name).id: rule_named(name) for name in only}.values()
    )
    return [_result(rule, trace, waivers) for rule in sorted(rules, key=lambda rule: rule.number)]


def _result(rule: Rule, trace: Trace, waivers: Sequence[Waiver]) -> RuleResult:
    finding = rule.check(trace)
    waiver = None
    if finding.outcome == "violated":
        covering = (
            str(candidate)
            for candidate in waivers
            if candidate.covers(driver=trace.driver, rule_id=rule.id, kernel=trace.kernel)
        )
        waiver = next(covering, None)
    return RuleResult(
        id=rule.id,
        number=rule.number,
        outcome="waived" if waiver else finding.outcome,
        observed=finding.observed,
        limit=finding.limit,
        unit=rule.unit,
        message=finding.message,
        events=list(finding.events),
        waiver=waiver,
    )
