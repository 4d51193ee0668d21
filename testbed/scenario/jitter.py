"""Variations of a scenario: the same events, at other times and in other bursts.

A scenario always meets a driver in the same phase. With a seed, sleeps become a little shorter or longer, bursts come
in two parts, and the whole starts at another phase against the kernel's timers. Equal seeds give equal scenarios.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from testbed.scenario.steps import Inject, Sleep, Step
from testbed.scenario.unroll import unroll

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.scenario.model import Scenario

__all__ = ["jittered"]

PHASE_US = 4000  # a tick of CONFIG_HZ=250
SLEEP_SPREAD = 0.3
SPLITS = 0.3  # the share of bursts that come in two parts
SPLIT_GAP_US = 1000  # QEMU's tick: below it both parts would enter together


def jittered(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with its repeats written out and its times and bursts varied by ``seed``."""
    dice = random.Random(seed)  # noqa: S311 - nothing secret
    steps: list[Step] = [Sleep(us=dice.randint(1, PHASE_US))]
    for written in unroll(scenario):
        steps += _varied(written.step, dice)
    return msgspec.structs.replace(scenario, steps=tuple(steps))


def _varied(step: Step, dice: random.Random) -> Iterator[Step]:
    if isinstance(step, Sleep):
        yield Sleep(us=max(1, round(step.us * dice.uniform(1 - SLEEP_SPREAD, 1 + SLEEP_SPREAD))))
    elif isinstance(step, Inject) and step.total > 1 and dice.random() < SPLITS:
        first = dice.randint(1, step.total - 1)
        own = [frame.hex() for frame in step.own()]
        yield msgspec.structs.replace(step, count=first, hex=tuple(own[:first]) or None)
        yield Sleep(us=SPLIT_GAP_US + dice.randint(0, 500))
        yield msgspec.structs.replace(step, count=step.total - first, hex=tuple(own[first:]) or None)
    else:
        yield step
