"""``testbed shrink FINDING``: the smallest scenario that still violates the same rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.cli.manual import manual
from testbed.errors import UsageError
from testbed.fuzzing.shrink import shrink
from testbed.replay import recorded_request
from testbed.result import load_result
from testbed.run import run
from testbed.scenario import save
from testbed.toolchain import open_toolchain

if TYPE_CHECKING:
    from testbed.result import Result
    from testbed.scenario import Scenario

__all__ = ["command", "violated_rule"]

SHRUNK = "shrunk.yaml"


@click.command(
    "shrink",
    epilog=manual(
        "testbed shrink fuzz-igb/findings/ring-full-exit-1",
        "testbed shrink result --rule ring-full-exit",
        _0="a smallest scenario is kept",
    ),
)
@click.argument("finding", type=click.Path(path_type=Path))
@click.option("--rule", help="The rule that is to stay violated; the first violated one by default.")
def command(*, finding: Path, rule: str | None) -> None:
    """Leave out steps of FINDING and make its numbers smaller, while its rule stays violated.

    FINDING is a directory of `testbed fuzz`, or of `testbed run --out`. The scenario is printed, and kept in it as
    shrunk.yaml.
    """
    recorded = load_result(finding)
    name = violated_rule(recorded, finding, rule)
    request = recorded_request(
        recorded, open_toolchain(), lambda line: click.echo(f"testbed: {line}", err=True)
    )
    tries = 0

    def violates(scenario: Scenario) -> bool:
        nonlocal tries
        tries += 1
        judged = run(replace(request, scenario=scenario, rules=[name])).result.rule(name)
        still = judged is not None and judged.outcome == "violated"
        click.echo(f"{tries}: {len(scenario.steps)} steps: {'violated' if still else 'no'}", err=True)
        return still

    if not violates(request.scenario):
        raise UsageError(f"{finding} does not violate {name} any more", "see `testbed replay`")
    small = shrink(request.scenario, violates)
    text = save(small)
    directory = finding if finding.is_dir() else finding.parent
    (directory / SHRUNK).write_text(text)
    click.echo(text, nl=False)
    click.echo(f"testbed: {len(small.steps)} steps after {tries} runs, in {directory / SHRUNK}", err=True)


def violated_rule(recorded: Result, finding: Path, asked: str | None) -> str:
    """Return the rule that a result violates: the one asked for, the one its directory is named by, or the first.

    :raise UsageError: it violates none, or not that one.
    """
    violated = [rule.id for rule in recorded.rules if rule.outcome == "violated"]
    named = [rule for rule in violated if finding.resolve().name.startswith(rule)]
    if not violated or (asked and asked not in violated):
        seen = ", ".join(violated) or "none"
        raise UsageError(
            f"expected a result that violates {asked or 'a rule'}, {finding} violates {seen}", "name another"
        )
    return asked or (named or violated)[0]
