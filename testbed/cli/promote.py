"""``testbed promote FINDING``: a scenario and a test of it, in the user's own tree."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from testbed.cli.manual import manual
from testbed.cli.shrink import SHRUNK, violated_rule
from testbed.fuzzing.promote import promote
from testbed.result import load_result
from testbed.scenario import from_json, load

__all__ = ["command"]


@click.command(
    "promote",
    epilog=manual(
        "testbed promote fuzz-igb/findings/ring-full-exit-1 --into tests", _0="both files are written"
    ),
)
@click.argument("finding", type=click.Path(path_type=Path))
@click.option(
    "--into", type=click.Path(path_type=Path), default=Path("tests"), help="The directory; tests by default."
)
@click.option("--rule", help="The rule to test; the first violated one by default.")
def command(*, finding: Path, into: Path, rule: str | None) -> None:
    """Write NAME.yaml and test_NAME.py for FINDING, shrunk if `testbed shrink` was there.

    The test uses testbed's pytest plugin, and passes once the driver keeps the rule.
    """
    recorded = load_result(finding)
    name = violated_rule(recorded, finding, rule)
    directory = finding if finding.is_dir() else finding.parent
    shrunk = directory / SHRUNK
    scenario = (
        load(shrunk) if shrunk.exists() else from_json(msgspec.json.encode(recorded.program), str(finding))
    )
    for file in promote(scenario, name, recorded.nic, into):
        click.echo(file)
