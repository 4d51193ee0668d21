"""Fuzzing: counters that guide libFuzzer, features of traces, shrinking, promoting, and what a corpus holds."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from testbed.cli.fuzz import command
from testbed.errors import UsageError
from testbed.fuzzing.campaign import plant
from testbed.fuzzing.features import FEATURES, features_of
from testbed.fuzzing.findings import all_findings
from testbed.fuzzing.input_model import decode, nearest
from testbed.fuzzing.promote import promote
from testbed.fuzzing.shrink import shrink
from testbed.scenario import Scenario, load
from testbed.scenario.steps import Inject, RxDrain, Sleep, Tx, TxKick
from testbed.trace.events import EVENT, Kind

ROOT = Path(__file__).parents[2]

# An input of three steps that only counters of our own can lead to, one byte after the other.
NEEDLE = """
import os, sys
import atheris, numpy as np
from testbed.fuzzing.counters import Counters, register
from testbed.fuzzing.mutator import cross, mutate

counters, tried = Counters(64), 0

def one(data):
    global tried
    tried += 1
    same = 0
    for ours, needle in zip(data, bytes((2, 0, 63, 0, 1, 0))):
        if ours != needle:
            break
        same += 1
        counters.values[same] = 1
    if same == 6 or tried == 60000:
        os._exit(0 if same == 6 else 3)

options = ["-max_len=145", "-len_control=0", "-use_counters=0", "-seed=1"]
atheris.Setup(["x", *options], one, custom_mutator=mutate, custom_crossover=cross, enable_python_coverage=False)
if sys.argv[1] == "guided":
    register(counters, np.arange(1, 65, dtype=np.uint64))
atheris.Fuzz()
"""


@pytest.mark.parametrize(("how", "status"), [("guided", 0), ("blind", 3)])
def test_libfuzzer_takes_our_counters_and_our_mutators(tmp_path: Path, how: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NEEDLE, how], cwd=tmp_path, capture_output=True, timeout=50, check=False
    )
    assert done.returncode == status, done.stderr.decode()[-2000:]
    assert b"LLVMFuzzerCustomMutator" in done.stderr


def events(*rows: tuple[Kind, int, int]) -> np.ndarray:
    table = np.zeros(len(rows), dtype=EVENT)
    for at, (kind, a, b) in enumerate(rows):
        table[at]["kind"], table[at]["a"], table[at]["b"] = kind, a, b
    return table


def test_features_tell_work_values_apart_and_repeat() -> None:
    one = features_of(events((Kind.POLL, 63, 64)), [])
    assert np.array_equal(one, features_of(events((Kind.POLL, 63, 64)), []))
    assert set(one) != set(features_of(events((Kind.POLL, 64, 64)), []))
    assert one.min() >= 0
    assert one.max() < FEATURES


def test_features_see_the_order_of_events_and_not_their_times() -> None:
    forth = events((Kind.SCHEDULE, 0, 0), (Kind.WATCHDOG, 0, 0))
    back = events((Kind.WATCHDOG, 0, 0), (Kind.SCHEDULE, 0, 0))
    assert set(features_of(forth, [])) != set(features_of(back, []))
    later = forth.copy()
    later["time_ns"] = 5
    assert set(features_of(later, [])) == set(features_of(forth, []))


def test_features_of_nothing_are_none() -> None:
    assert not len(features_of(events(), []))


def scenario_of(*steps: object) -> Scenario:
    return Scenario(name="large", steps=steps)  # type: ignore[arg-type]


def test_shrinking_leaves_what_the_rule_needs() -> None:
    noise = (Sleep(us=5000), TxKick(), RxDrain(), Tx(count=9))
    large = scenario_of(*noise, Inject(count=200), *noise, Sleep(us=9000), *noise, Tx(count=40), *noise)
    asked = []

    def violates(scenario: Scenario) -> bool:
        asked.append(scenario)
        injected = sum(step.count for step in scenario.steps if isinstance(step, Inject))
        sent = [step.count for step in scenario.steps if isinstance(step, Tx)]
        return injected >= 65 and max(sent, default=0) >= 17

    small = shrink(large, violates)
    assert small.steps == (Inject(count=65), Tx(count=17))
    assert len(asked) == len({repr(scenario) for scenario in asked})
    assert len(asked) < 150


def test_a_promoted_finding_is_a_scenario_and_a_test_of_it(tmp_path: Path) -> None:
    scenario = Scenario(name="ring-full-exit-1234", steps=(Inject(count=65),))
    file, test = promote(scenario, "ring-full-exit", "igb", tmp_path)
    found = load(file, {"ring-full-exit"})
    assert (found.steps, found.must_exercise) == (scenario.steps, ("ring-full-exit",))
    compile(test.read_text(), str(test), "exec")
    assert "def test_ring_full_exit_1234(run_scenario)" in test.read_text()
    with pytest.raises(UsageError, match="is there already"):
        promote(scenario, "ring-full-exit", "igb", tmp_path)


def test_planted_seeds_are_named_by_their_content(tmp_path: Path) -> None:
    assert plant(tmp_path, str(ROOT / "fuzz/seeds/minimal")) == 2
    assert plant(tmp_path, str(ROOT / "fuzz/seeds/minimal")) == 2
    for file in (tmp_path / "inputs").iterdir():
        assert hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest() == file.name
    assert {decode(file.read_bytes()) for file in (tmp_path / "inputs").iterdir()} == {
        nearest(load(ROOT / f"fuzz/seeds/minimal/{name}.yaml")) for name in ("receive-one", "send-one")
    }
    with pytest.raises(UsageError, match="seen none"):
        plant(tmp_path, str(tmp_path))


def test_a_finding_that_was_half_written_is_none(tmp_path: Path) -> None:
    (tmp_path / ".ring-full-exit-1.77").mkdir()
    (tmp_path / ".ring-full-exit-1.77" / "finding.json").write_text("{")
    assert all_findings(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nic", "igb", "--time", "0"], "above 0"),
        (["--nic", "igb", "--time", "soon"], "above 0"),
        ([], "--nic"),
    ],
)
def test_wrong_usage_is_told_in_one_line(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code
    assert said in f"{done.output}{done.exception}"


def test_more_workers_than_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.cli.fuzz._MIB_PER_JOB", 1 << 20)
    with pytest.raises(UsageError, match="workers need"):
        CliRunner().invoke(command, ["--nic", "igb", "--jobs", "2"], catch_exceptions=False)
