"""Findings: what an input violated, run again from the start until it is known to repeat, and kept.

Layout below the corpus::

    findings/RULE-SHAPE/finding.json     what was found, and how often it repeated
    findings/RULE-SHAPE/scenario.yaml    the scenario that does it from a fresh guest
    findings/RULE-SHAPE/result.json      the last run of it, with trace.npy and console.log

SHAPE stands for driver and kinds of the proving events, so that one bug is one directory however many inputs show it.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from testbed.cache import content_key
from testbed.order import Order
from testbed.run import run
from testbed.run_directory import RunFiles

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.rules.outcome import RuleResult
    from testbed.run import Request, Run
    from testbed.scenario import Scenario
    from testbed.trace import Trace

__all__ = ["REPEATS", "Finding", "all_findings", "keep", "name_of"]

REPEATS = 3
FILE = "finding.json"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding.

    :param name: its directory. :param message: what the rule said of the live guest.
    :param repeated: in how many of :data:`REPEATS` fresh guests the rule was violated again.
    :param inputs: how many inputs the scenario is made of; more than one where the last alone does not do it.
    :param data: the input at which it was seen, in hexadecimal.
    """

    name: str
    rule: str
    message: str
    repeated: int
    inputs: int
    first_seen: str
    nic: str
    driver: str
    kernel: str
    data: str

    @property
    def confirmed(self) -> bool:
        """Whether it repeated every time."""
        return self.repeated == REPEATS


def name_of(rule: RuleResult, trace: Trace) -> str:
    """Return the name of what violates a rule in this way."""
    rows = [row for row in rule.events if row < len(trace.events)]
    kinds = sorted({int(kind) for kind in trace.events["kind"][rows]})
    return f"{rule.id}-{content_key(trace.driver, *(str(kind) for kind in kinds))[:8]}"


def keep(
    directory: Path,
    request: Request,
    rule: RuleResult,
    name: str,
    tries: list[tuple[Scenario, int]],
    data: bytes,
    home: Path,
) -> Finding:
    """Run the scenarios until one repeats every time, and write the finding; whole, or not at all.

    :param tries: scenarios and of how many inputs each is made, the likeliest first; the last one is kept when none
        repeats.
    :param home: the directory in which it will lie in the end, which may be on another machine.
    """
    kernel = request.kernel.asked
    order = Order(scenario=str(home / name / "scenario.yaml"), nic=request.nic.name, kernel=kernel)
    done, repeated, used = _repeat(replace(request, reproduce=order.command()), rule.id, tries)
    finding = Finding(
        name=name,
        rule=rule.id,
        message=rule.message,
        repeated=repeated,
        inputs=used,
        first_seen=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        nic=done.result.nic,
        driver=done.result.driver,
        kernel=kernel,
        data=data.hex(),
    )
    partial = directory / f".{name}.{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    RunFiles(partial).save(done)
    (partial / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(finding), indent=2) + b"\n")
    try:
        partial.rename(directory / name)
    except OSError:  # another worker was first
        shutil.rmtree(partial)
    return finding


def _repeat(request: Request, rule: str, tries: list[tuple[Scenario, int]]) -> tuple[Run, int, int]:
    """Return the last run, how often the rule was violated, and how many inputs the scenario is made of."""
    for scenario, inputs in tries[:-1]:
        runs: list[Run] = []
        while len(runs) < REPEATS and all(_violates(each, rule) for each in runs):
            runs.append(run(replace(request, scenario=scenario)))
        if all(_violates(each, rule) for each in runs):
            return runs[-1], REPEATS, inputs
    scenario, inputs = tries[-1]
    runs = [run(replace(request, scenario=scenario)) for _ in range(REPEATS)]
    return runs[-1], sum(_violates(each, rule) for each in runs), inputs


def _violates(done: Run, rule: str) -> bool:
    result = done.result.rule(rule)
    return result is not None and result.outcome == "violated"


def all_findings(directory: Path) -> list[Finding]:
    """Return what was found so far, those that repeat first; what is not whole is not there."""
    files = sorted(directory.glob(f"[!.]*/{FILE}"))
    found = [msgspec.json.decode(file.read_bytes(), type=Finding) for file in files]
    return sorted(found, key=lambda finding: (-finding.repeated, finding.name))
