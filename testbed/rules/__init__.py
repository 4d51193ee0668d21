"""The rules of the NAPI and AF_XDP contract, each checked over a trace."""

from __future__ import annotations

from testbed.rules.judge import judge
from testbed.rules.outcome import Finding, Outcome, RuleResult
from testbed.rules.policy import binds
from testbed.rules.registry import Rule, all_rules, rule_named
from testbed.rules.waivers import Waiver, load_waivers

__all__ = [
    "Finding",
    "Outcome",
    "Rule",
    "RuleResult",
    "Waiver",
    "all_rules",
    "binds",
    "judge",
    "load_waivers",
    "rule_named",
]
