"""Virtual time: equal inputs give equal sequences of events, and any other input another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from testbed.scenario import from_json, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.pytest_plugin import RunScenario
    from testbed.run import Run
    from testbed.scenario import Scenario

INPUTS = [
    ("ring-full",),
    ("ring-full", "igb/ring-full-exit-naive"),
    ("ring-full", "igb/ring-full-exit"),
    ("rx-steady",),
    ("tx-only",),
]
TIMES = 3


def digest(run: Run) -> str:
    assert run.result.trace, run.result.error
    return run.result.trace.sequence_digest


def written_out(name: str, frames_more: int) -> Scenario:
    """Return a scenario of the library, the first round of its repeat written out, its first injection enlarged."""
    document = msgspec.to_builtins(load(name))
    steps = list(document["steps"])
    at = next(number for number, step in enumerate(steps) if step["step"] == "repeat")
    repeat = steps[at]
    first = [dict(step) for step in repeat["steps"]]
    next(step for step in first if step["step"] == "inject")["count"] += frames_more
    steps[at : at + 1] = [*first, {**repeat, "times": repeat["times"] - 1}]
    return from_json(msgspec.json.encode({**document, "steps": steps}))


@pytest.mark.parametrize("inputs", INPUTS, ids=" ".join)
def test_equal_inputs_give_equal_sequences(
    seen: Callable[..., Run], run_scenario: RunScenario, inputs: tuple[str, ...]
) -> None:
    runs = [seen(*inputs), *(run_scenario(*inputs) for _ in range(TIMES - 1))]
    assert [digest(run) for run in runs] == [digest(runs[0])] * TIMES


def test_every_other_scenario_and_variant_gives_another_sequence(seen: Callable[..., Run]) -> None:
    digests = [digest(seen(*inputs)) for inputs in INPUTS]
    assert len(set(digests)) == len(INPUTS)


@pytest.mark.parametrize("name", ["ring-full", "rx-steady"])
def test_one_frame_more_gives_another_sequence_and_another_spelling_does_not(
    seen: Callable[..., Run], run_scenario: RunScenario, name: str
) -> None:
    recorded, same, more = seen(name), run_scenario(written_out(name, 0)), run_scenario(written_out(name, 1))
    counters = [run.result.counters for run in (recorded, same, more)]
    assert all(counters)
    frames = [each.frames_injected for each in counters if each]
    assert frames == [frames[0], frames[0], frames[0] + 1]
    assert digest(same) == digest(recorded)
    assert digest(more) != digest(recorded)
