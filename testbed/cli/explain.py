"""``testbed explain RULE``: what a rule demands, and why."""

from __future__ import annotations

import click

from testbed.cli.manual import manual
from testbed.report import explanation_lines
from testbed.rules import rule_named

__all__ = ["command"]


@click.command(
    "explain",
    epilog=manual(
        "testbed explain ring-full-exit",
        "testbed explain 22",
        _0="done",
    ),
)
@click.argument("rule")
def command(rule: str) -> None:
    """Say what RULE (its id or number) demands, where that is written, and what it excepts."""
    for line in explanation_lines(rule_named(rule)):
        click.echo(line)
