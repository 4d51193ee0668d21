"""The registry, judging and waivers."""

from __future__ import annotations

import numpy as np
import pytest
from traces import ZERO_COPY, poll, polled, refused, trace_of

from testbed.errors import UsageError
from testbed.rules import all_rules, judge, load_waivers, rule_named
from testbed.rules.policy import binds, policy_of
from testbed.rules.registry import rule
from testbed.scenario.program import STEP
from testbed.trace import Trace
from testbed.trace.events import EVENT, Kind

WAIVER = """
# a comment
[[waiver]]
driver = "igb"
rule = "ring-full-exit"
since = "6.14"
until = "7.3"
reason = "the exit is dead code"
reference = "docs/findings.md, 1"
control = "igb/ring-full-exit"
"""
FULL_RING = poll(refused(1), refused(2), work=2)


def written(tmp_path, text):
    path = tmp_path / "waivers.toml"
    path.write_text(text)
    return path


NUMBERS = {
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
    15,
    16,
    19,
    20,
    21,
    22,
    23,
    24,
    25,
    26,
    27,
    28,
    29,
    30,
    31,
    32,
    33,
    35,
    36,
    37,
    38,
    39,
}


def test_the_rules_are_registered_in_order() -> None:
    numbers = [declared.number for declared in all_rules().values()]
    assert numbers == sorted(numbers)
    assert set(numbers) >= NUMBERS


@pytest.mark.parametrize("seed", range(40))
def test_every_rule_survives_any_table(seed) -> None:
    """A guest gone wild may leave any sequence of events, a fuzzer tries many."""
    random = np.random.default_rng(seed)
    events = np.zeros(int(random.integers(1, 200)), dtype=EVENT)
    events["kind"] = random.choice(list(Kind), len(events))
    events["time_ns"] = np.cumsum(random.integers(0, 20_000_000, len(events)))
    for name, most in (("cpu", 2), ("subject", 6), ("c", 24)):
        events[name] = random.integers(0, most, len(events))
    events["a"] = random.choice([*range(-1, 24), 64, -105], len(events))
    events["b"] = random.choice([-1, 0, 1, 8, 17, 64], len(events))
    for kernel, mode, clock in (((6, 1), "copy", "real"), ((7, 3), "zerocopy", "virtual")):
        steps = np.zeros(6, dtype=STEP)
        trace = Trace(
            events=events,
            steps=steps,
            settings={
                "mode": mode,
                "need_wakeup": True,
                "rx_ring": 64,
                "tx_ring": 64,
                "completion_entries": 64,
            },
            kernel=kernel,
            clock=clock,
            injected=20,
            bursts=[(1, 10), (2, 10)],
            links=[(3, False)],
            wire_sequences=np.arange(3),
        )
        for result in judge(trace):
            assert bool(result.events) == (result.outcome == "violated"), result
            assert all(0 <= row < len(events) for row in result.events)


def test_every_policy_is_of_a_rule_and_names_drivers() -> None:
    for name in ("tx-work-reported", "refused-frame-fate"):
        assert rule_named(name)
        assert policy_of(name).required


def test_every_rule_declares_itself() -> None:
    for declared in all_rules().values():
        assert declared.statement.endswith(".")
        assert declared.sources
        assert declared.needs
        assert declared.unit


def test_what_needs_virtual_time_says_so() -> None:
    virtual_only = {name for name, declared in all_rules().items() if declared.virtual_only}
    assert virtual_only == {"full-when-backlogged", "irq-rate"}


def test_every_rule_judges_an_empty_trace_without_a_violation() -> None:
    results = judge(trace_of())
    assert [result.outcome for result in results] == ["not-exercised"] * len(all_rules())


def test_a_rule_is_found_by_id_and_number() -> None:
    assert rule_named("no-spin") is rule_named("12")


def test_an_unknown_rule_is_a_usage_error_with_a_guess() -> None:
    with pytest.raises(UsageError, match=r"no rule ring-full-exi.*did you mean ring-full-exit"):
        judge(trace_of(), only=["ring-full-exi"])


def test_two_rules_cannot_share_a_name_or_number() -> None:
    for name, number in (("no-spin", 9999), ("no-such", 12)):
        with pytest.raises(ValueError, match="twice"):
            rule(name, number, statement="", sources=[], needs="", unit="")(lambda _: None)


def test_only_judges_what_it_names_once_and_in_order() -> None:
    results = judge(trace_of(polled(1)), only=["ring-full-exit", "work-in-budget", "1"])
    assert [result.id for result in results] == ["work-in-budget", "ring-full-exit"]


@pytest.mark.parametrize(
    ("driver", "kernel", "outcome"),
    [
        ("igb", (6, 14), "waived"),
        ("igb", (7, 3), "waived"),
        ("igb", (6, 13), "violated"),
        ("igb", (7, 4), "violated"),
        ("stmmac", (7, 3), "violated"),
    ],
)
def test_a_waiver_covers_its_driver_and_kernels_only(tmp_path, driver, kernel, outcome) -> None:
    trace = trace_of(FULL_RING, settings=ZERO_COPY, driver=driver, kernel=kernel)
    (result,) = judge(trace, only=["ring-full-exit"], waivers=load_waivers(written(tmp_path, WAIVER)))
    assert result.outcome == outcome
    if outcome == "waived":
        assert result.waiver == "the exit is dead code (docs/findings.md, 1; control: igb/ring-full-exit)"
        assert result.observed == 2
    else:
        assert result.waiver is None


def test_a_rule_that_holds_is_not_waived(tmp_path) -> None:
    trace = trace_of(poll(refused(1), work=1), settings=ZERO_COPY, driver="igb", kernel=(7, 3))
    (result,) = judge(trace, only=["ring-full-exit"], waivers=load_waivers(written(tmp_path, WAIVER)))
    assert (result.outcome, result.waiver) == ("hold", None)


def test_the_waivers_that_come_along_are_sound() -> None:
    load_waivers()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("ring-full-exit", "ring-fool"), ":3: there is no rule ring-fool"),
        (('"6.14"', '"newest"'), ":3: expected since as MAJOR.MINOR"),
        (('"6.14"', "6.14"), ":3: .*str"),
        (("since", "sinse"), ":3: .*sinse"),
        (('control = "igb/ring-full-exit"', ""), ":3: .*control"),
        (('"docs/findings.md, 1"', '" "'), ":3: reference is empty"),
        (("[[waiver]]", "[[waver]]"), "found waver"),
        (("[[waiver]]", "[[waiver"), "waivers.toml: expected"),
        (("[[waiver]]", "waiver = 3\n[x]"), "waivers.toml: expected"),
        (('driver = "igb"', 'driver = "ibg"'), ":3: there is no driver ibg.*known are e1000e, igb"),
    ],
)
def test_a_wrong_waiver_is_a_usage_error_with_its_line(tmp_path, change, message) -> None:
    path = written(tmp_path, WAIVER.replace(*change, 1))
    with pytest.raises(UsageError, match=message):
        load_waivers(path, drivers={"igb", "e1000e"})


def test_a_missing_waiver_file_is_a_usage_error(tmp_path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_waivers(tmp_path / "none.toml")


def test_a_rule_that_says_nothing_of_other_drivers_binds_its_own_alone() -> None:
    assert binds("tx-work-reported", "stmmac")
    assert not binds("tx-work-reported", "igb")
    assert binds("refused-frame-fate", "igb")
    assert binds("ring-full-exit", "igb")
