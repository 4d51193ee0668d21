"""Every scenario of the library on the stock drivers: it passes, or it shows a finding that is written up.

Each NIC is a class, and so a worker's: what one test has seen run, the others of that NIC need not run again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed import nic
from testbed.matrix import read_product
from testbed.rules import all_rules
from testbed.scenario import device_steps, fitted, library, load, required

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
    ("igb", "rx-starved-then-fed"): {
        "ring-full-exit",
        "chunk-single-owner",
        "verdict-conservation",
        "statistics-agree",
    },
    ("igb", "large-frames"): {"chunk-single-owner"},
    ("igb", "counters-persist"): {"statistics-agree"},
    ("igb", "busy-poll-tx"): {"busy-poll-polls"},
    ("stmmac", "busy-poll-rx"): {"busy-poll-polls"},
    ("stmmac", "busy-poll-tx"): {"busy-poll-polls"},
    ("stmmac", "interface-flap"): {"dma-valid"},  # finding 8
    ("stmmac", "tx-stalled"): {"no-spin", "full-poll-justified"},
}
# Finding 9: the guest locks up, and a run of it lasts until the time limit. Finding 8: there is nothing to be judged.
# netpoll asks for a longer moderation than stmmac takes.
APART = {("stmmac", "threaded"), ("stmmac", "fill-starvation"), ("stmmac", "netpoll")}
# The repairs with which all rules hold in the scenarios of a finding.
REPAIRED = {
    ("igb", "ring-full"): "igb/ring-full-exit",
    ("igb", "rebind-under-load"): "igb/ring-full-exit",
    ("igb", "counters-persist"): "igb/counters-kept",
    ("igb", "fill-starved"): "igb/starved-ring-stops",
    ("igb", "rx-starved-then-fed"): "igb/starved-ring-stops",
    ("igb", "recover-after-starvation"): "igb/starved-ring-stops",
    ("igb", "busy-poll-tx"): "igb/queues-paired",
    ("stmmac", "busy-poll-rx"): "stmmac/queue-napi-told",
    ("stmmac", "busy-poll-tx"): "stmmac/queue-napi-told",
}
# The budgets at which off-by-one errors live; the scenario's own is 8.
BUSY_BUDGETS = (1, 64)
# test_determinism.py runs more, three times each.
TWICE = {
    "igb": {"rx-tx-mix", "stack-only", "link-flap", "ring-resize", "two-cores"},
    "e1000e": {"rx-tx-mix", "stack-only"},
    "stmmac": {"tx-only-deferred", "budget-edges", "ring-full"},
}
NEWEST = (99, 0)  # what a NIC can do with any kernel
ELSEWHERE = {
    "virtio-net"
}  # test_virtio_net.py runs a few scenarios on it: the minutes for all are the matrix's
STMMAC_IN_CI = read_product(Path(__file__).parents[2] / ".ci/stmmac.toml").scenarios
CASES = [
    (on, entry.name)
    for on in nic.names()
    if on not in ELSEWHERE
    for entry in library()
    for can in [nic.get(on).capabilities(NEWEST)]
    if required(fitted(load(entry.name), can)) <= can
    if nic.get(on).model or not list(device_steps(load(entry.name)))
    if (on, entry.name) not in APART
    if on != "stmmac" or entry.name not in STMMAC_IN_CI
]
UNTOLD = {
    "mask-before-schedule",
    "unmask-needs-ownership",
    "unmask-after-complete",
    "dma-valid",
    "tx-coalesce-armed",
}
# Rules that no scenario can exercise on a NIC: rule 16 binds the drivers of policy.toml only, and without zero copy
# and native XDP the driver has no part in FILL, TX, a full RX ring and the flush.
# Rules about masks, addresses and what was sent need a device that tells of them, which QEMU's own do not.
CANNOT = {
    "igb": {"tx-work-reported", *UNTOLD},
    "e1000e": {
        *UNTOLD,
        "tx-work-reported",
        "tx-liveness",
        "refill-recovers",
        "rx-need-wakeup",
        "tx-need-wakeup",
        "ring-full-exit",
        "flush-before-complete",
    },
}


class Library:
    """The tests of one NIC."""

    on: str

    def test_the_stock_driver_passes_or_shows_a_known_finding(
        self, seen: Callable[..., Run], name: str
    ) -> None:
        result = seen(name, nic=self.on).result
        violated = {rule.id for rule in result.rules if rule.outcome == "violated"}
        assert result.verdict in {"pass", "fail"}, result.error
        assert violated == FINDINGS.get((self.on, name), set())

    def test_a_second_run_gives_the_same_sequence(
        self, seen: Callable[..., Run], run_scenario: RunScenario, again: str
    ) -> None:
        first, second = seen(again, nic=self.on).result.trace, run_scenario(again, nic=self.on).result.trace
        assert first is not None
        assert second is not None
        assert first.sequence_digest == second.sequence_digest


class WholeLibrary(Library):
    """The tests of a NIC that the library must exercise every rule on, but for those of CANNOT."""

    def test_each_rule_is_exercised_by_some_scenario(self, seen: Callable[..., Run]) -> None:
        results = [seen(name, nic=self.on).result for where, name in CASES if where == self.on]
        exercised = {rule.id for each in results for rule in each.rules if rule.outcome != "not-exercised"}
        assert all_rules().keys() - exercised == CANNOT[self.on]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a NIC's tests have its scenarios, and a few of them twice."""
    able = [name for on, name in CASES if metafunc.cls and on == metafunc.cls.on]
    if "name" in metafunc.fixturenames and metafunc.cls:
        metafunc.parametrize("name", able)
    if "again" in metafunc.fixturenames:
        metafunc.parametrize("again", sorted(TWICE[metafunc.cls.on]))


class TestIgb(WholeLibrary):
    on = "igb"


class TestE1000e(WholeLibrary):
    on = "e1000e"


class TestStmmac(Library):
    on = "stmmac"


def test_every_nic_of_the_registry_has_its_tests() -> None:
    assert {each.on for each in (TestIgb, TestE1000e, TestStmmac)} == set(nic.names()) - ELSEWHERE


@pytest.mark.parametrize("budget", BUSY_BUDGETS)
def test_a_socket_polls_with_other_budgets_too(run_scenario: RunScenario, budget: int) -> None:
    result = run_scenario("busy-poll-rx", nic="igb", set_={"busy_poll": str(budget)}).result
    rule = result.rule("busy-poll-polls")
    assert result.verdict == "pass"
    assert rule
    assert f"with a budget of {budget}" in rule.message


@pytest.mark.parametrize(("on", "name"), REPAIRED)
def test_with_the_repair_of_a_finding_all_rules_hold(run_scenario: RunScenario, on: str, name: str) -> None:
    result = run_scenario(name, REPAIRED[on, name], nic=on).result
    assert result.verdict == "pass", [rule for rule in result.rules if rule.outcome == "violated"]
