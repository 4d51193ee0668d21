"""Every scenario of the library on the stock drivers: it passes, or it shows a finding that is written up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed import nic
from testbed.rules import all_rules
from testbed.scenario import fitted, library, load, required

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.pytest_plugin import RunScenario
    from testbed.run import Run

# What docs/findings.md says of the stock driver: (nic, scenario) to the rules it violates there.
FINDINGS = {
    ("igb", "ring-full"): {"ring-full-exit"},
    ("igb", "rebind-under-load"): {"ring-full-exit"},
    ("igb", "fill-starved"): {
        "ring-full-exit",
        "chunk-single-owner",
        "verdict-conservation",
        "statistics-agree",
    },
    ("igb", "recover-after-starvation"): {
        "ring-full-exit",
        "refused-frame-fate",
        "chunk-single-owner",
        "verdict-conservation",
    },
    ("igb", "large-frames"): {"chunk-single-owner"},
}
# The repairs with which all rules hold in the scenarios of a finding.
REPAIRED = {
    "ring-full": ("igb/ring-full-exit",),
    "rebind-under-load": ("igb/ring-full-exit",),
    "fill-starved": ("igb/starved-ring-stops",),
    "recover-after-starvation": ("igb/starved-ring-stops",),
}
NEWEST = (99, 0)  # what a NIC can do with any kernel
ELSEWHERE = {
    "virtio-net"
}  # test_virtio_net.py runs a few scenarios on it: the minutes for all are the matrix's
CASES = [
    (on, entry.name)
    for on in nic.names()
    if on not in ELSEWHERE
    for entry in library()
    for can in [nic.get(on).capabilities(NEWEST)]
    if required(fitted(load(entry.name), can)) <= can
]
# Rules that no scenario can exercise on a NIC: rule 16 binds the drivers of policy.toml only, and without zero copy
# and native XDP the driver has no part in FILL, TX, a full RX ring and the flush.
CANNOT = {
    "igb": {"tx-work-reported"},
    "e1000e": {
        "tx-work-reported",
        "tx-liveness",
        "rx-need-wakeup",
        "tx-need-wakeup",
        "ring-full-exit",
        "flush-before-complete",
    },
}


@pytest.mark.parametrize(("on", "name"), CASES, ids=["-".join(case) for case in CASES])
def test_the_stock_driver_passes_or_shows_a_known_finding(
    seen: Callable[..., Run], on: str, name: str
) -> None:
    result = seen(name, nic=on).result
    violated = {rule.id for rule in result.rules if rule.outcome == "violated"}
    assert result.verdict in {"pass", "fail"}, result.error
    assert violated == FINDINGS.get((on, name), set())


@pytest.mark.parametrize(("on", "name"), CASES, ids=["-".join(case) for case in CASES])
def test_a_second_run_gives_the_same_sequence(
    seen: Callable[..., Run], run_scenario: RunScenario, on: str, name: str
) -> None:
    first, second = seen(name, nic=on).result.trace, run_scenario(name, nic=on).result.trace
    assert first is not None
    assert second is not None
    assert first.sequence_digest == second.sequence_digest


@pytest.mark.parametrize("name", REPAIRED)
def test_with_the_repair_of_a_finding_all_rules_hold(seen: Callable[..., Run], name: str) -> None:
    result = seen(name, *REPAIRED[name], nic="igb").result
    assert result.verdict == "pass", [rule for rule in result.rules if rule.outcome == "violated"]


@pytest.mark.parametrize("on", CANNOT)
def test_each_rule_is_exercised_by_some_scenario(seen: Callable[..., Run], on: str) -> None:
    results = [seen(name, nic=on).result for where, name in CASES if where == on]
    exercised = {rule.id for each in results for rule in each.rules if rule.outcome != "not-exercised"}
    assert all_rules().keys() - exercised == CANNOT[on]
