"""A run as a test has it: it can be checked in one word, and its failure is all that a reader needs."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.report.assertion import assertion_lines, broken_rules
from testbed.rules import rule_named
from testbed.run import Run

__all__ = ["CheckedRun", "RuleViolated"]


class RuleViolated(AssertionError):
    """A run did not pass; see :func:`testbed.report.assertion.assertion_lines` for its message."""


@dataclass(frozen=True)
class CheckedRun(Run):
    """A run that a test asked for."""

    def check(self, *rules: str) -> None:
        """See that the run passed; with rules, that each of them held or is waived, whatever else the run shows.

        :param rules: ids or numbers.
        :raise RuleViolated: it did not; says rule, observed against limit, the events that prove it, and the command.
        :raise UsageError: there is no such rule.
        """
        __tracebackhide__ = True
        asked = {rule_named(name).id for name in rules}
        verdicts = {"pass", "fail"} if asked else {"pass"}
        unjudged = asked - {rule.id for rule in self.result.rules}
        if self.result.verdict not in verdicts or unjudged or broken_rules(self.result, asked):
            raise RuleViolated("\n".join(assertion_lines(self, asked)))
