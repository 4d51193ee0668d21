"""A run that did not pass, as the failure of a test reads: rule, observed against limit, proof, how to repeat it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from testbed.report.evidence import evidence_lines
from testbed.report.terminal import measure, title

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from testbed.result import Result
    from testbed.rules import RuleResult
    from testbed.run import Run

__all__ = ["assertion_lines", "broken_rules"]

_PROOF_LINES = 24


def broken_rules(result: Result, rules: Collection[str] = ()) -> list[RuleResult]:
    """Return the rules that were violated; of those that are named, also the ones that were not judged to hold.

    :param rules: ids; all that were judged when it is empty.
    """
    if not rules:
        return [rule for rule in result.rules if rule.outcome == "violated"]
    return [
        rule for rule in result.rules if rule.id in rules and rule.outcome in {"violated", "not-exercised"}
    ]


def assertion_lines(run: Run, rules: Collection[str] = ()) -> Iterator[str]:
    """Yield the lines.

    :param rules: ids of those that the test asked for; all when it is empty.
    """
    result = run.result
    yield " ".join(title(result).plain.split())
    if result.error:
        yield result.error
    for rule in broken_rules(result, rules):
        against = "" if rule.observed is None else f"observed {measure(rule)}, limit {rule.limit}: "
        yield f"{rule.number} {rule.id} {rule.outcome}: {against}{rule.message}"
        if run.trace is not None and rule.events:
            proof = islice(
                evidence_lines(result, run.trace.events, rule.id), 1, None
            )  # the first says the same
            yield from (f"    {line}" for line in islice((line for line in proof if line), _PROOF_LINES))
    if result.reproduce:
        yield f"again: {result.reproduce}"
