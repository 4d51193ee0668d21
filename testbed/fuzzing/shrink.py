"""Making a scenario small while it violates the same rule: fewer steps, then smaller numbers.

Runs are exact in virtual time, so one run answers each question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from testbed.scenario import canonical_json
from testbed.scenario.unroll import unroll

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.scenario import Scenario
    from testbed.scenario.steps import AnyStep, Step

__all__ = ["shrink"]

_LEAST = {"count": 1, "us": 1000}


def shrink(scenario: Scenario, violates: Callable[[Scenario], bool]) -> Scenario:
    """Return a scenario with no step to spare, and numbers no larger than they must be.

    :param violates: whether a scenario still violates the rule; asked once for each.
    """
    asked: dict[bytes, bool] = {}

    def holds_on(steps: list[Step]) -> bool:
        if not steps:
            return False
        smaller = _with(scenario, steps)
        key = canonical_json(smaller)
        if key not in asked:
            asked[key] = violates(smaller)
        return asked[key]

    steps: list[Step] = [written.step for written in unroll(scenario)]
    before = None
    while steps != before:  # a smaller number may make a step needless
        before = steps
        steps = _smaller_numbers(_fewer(steps, holds_on), holds_on)
    return _with(scenario, steps)


def _with(scenario: Scenario, steps: list[Step]) -> Scenario:
    whole: tuple[AnyStep, ...] = tuple(steps)  # type: ignore[arg-type] # they come from a scenario
    return msgspec.structs.replace(scenario, steps=whole)


def _fewer(steps: list[Step], holds_on: Callable[[list[Step]], bool]) -> list[Step]:
    """Leave out halves, quarters and so on down to single steps, from the end, as long as that goes."""
    size = len(steps)
    while size := size // 2:
        end = len(steps)
        while end > 0:
            start = max(0, end - size)
            rest = steps[:start] + steps[end:]
            if holds_on(rest):
                steps = rest
            end = start
    return steps


def _smaller_numbers(steps: list[Step], holds_on: Callable[[list[Step]], bool]) -> list[Step]:
    for at in range(len(steps)):
        for name, least in _LEAST.items():
            value = getattr(steps[at], name, None)
            if isinstance(value, int):
                steps = _smallest(steps, at, name, least, holds_on)
    return steps


def _smallest(
    steps: list[Step], at: int, name: str, least: int, holds_on: Callable[[list[Step]], bool]
) -> list[Step]:
    """Return the steps with one number as small as it may be, found by halving what lies between."""

    def changed(value: int) -> list[Step]:
        return [*steps[:at], msgspec.structs.replace(steps[at], **{name: value}), *steps[at + 1 :]]

    enough, value = getattr(steps[at], name), least
    while value < enough:
        if holds_on(changed(value)):
            enough = value
        else:
            least = value + 1
        value = (least + enough) // 2
    return changed(enough)
