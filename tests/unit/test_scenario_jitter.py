"""Jitter varies times and bursts, and nothing else."""

from __future__ import annotations

import pytest

from testbed.scenario import compile_program, jittered, load
from testbed.scenario.steps import Inject, Sleep
from testbed.scenario.unroll import unroll


def others(name: str, seed: int | None = None) -> list[str]:
    """Return what a scenario does besides sleeping and injecting, in order."""
    scenario = load(name) if seed is None else jittered(load(name), seed)
    return [str(type(w.step)) for w in unroll(scenario) if not isinstance(w.step, (Sleep, Inject))]


@pytest.mark.parametrize("name", ["ring-full", "rx-steady", "tx-only"])
def test_all_frames_still_come_and_all_other_steps_stay_in_order(name: str) -> None:
    for seed in range(20):
        assert compile_program(jittered(load(name), seed)).frames == compile_program(load(name)).frames
        assert others(name, seed) == others(name)


def test_a_seed_gives_one_scenario_and_fifty_seeds_fifty() -> None:
    steady = load("rx-steady")
    assert jittered(steady, 7) == jittered(steady, 7)
    assert len({jittered(steady, seed).steps for seed in range(50)}) == 50


def test_some_bursts_come_in_two_parts_with_a_tick_between_them() -> None:
    steps = list(jittered(load("rx-steady"), 1).steps)
    parts = [
        (first, gap, second)
        for first, gap, second in zip(steps, steps[1:], steps[2:], strict=False)
        if isinstance(first, Inject) and isinstance(second, Inject)
    ]
    assert parts
    assert all(isinstance(gap, Sleep) and gap.us >= 1000 for _, gap, _ in parts)
