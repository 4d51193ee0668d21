"""``testbed show RESULT [RULE]``: the events around each violation, as text."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from testbed.cli.manual import manual
from testbed.report import console_for, evidence_lines, run_report
from testbed.result import load_result, trace_path
from testbed.rules import rule_named
from testbed.trace import load_events

__all__ = ["command"]


@click.command(
    "show",
    epilog=manual(
        "testbed show result",
        "testbed show result ring-full-exit",
        _0="done",
    ),
)
@click.argument("result", type=click.Path(path_type=Path))
@click.argument("rule", required=False)
def command(result: Path, rule: str | None) -> None:
    """Show the run in RESULT (an --out directory or its result.json) and the events around each violation.

    With RULE, its id or number, show the events which that rule cites, and nothing else.
    """
    loaded = load_result(result)
    rule_id = None if rule is None else rule_named(rule).id
    if rule_id is None:
        console_for(sys.stdout).print(run_report(loaded), crop=False)
        click.echo()
    if rule_id is None and loaded.trace is None:
        return
    for line in evidence_lines(loaded, load_events(trace_path(result)), rule_id):
        click.echo(line)
