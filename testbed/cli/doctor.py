"""``testbed doctor``: what works on this machine."""

from __future__ import annotations

import sys

import click
import msgspec
from rich.console import Console
from rich.table import Table

from testbed.cli.manual import manual
from testbed.doctor import examine, usable
from testbed.errors import HostError

__all__ = ["command"]

_MARKS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "bad": "[red]bad[/]"}


@click.command(
    "doctor",
    epilog=manual(
        "testbed doctor",
        "testbed doctor --json",
        _0="scenarios can be run here",
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Say what works on this machine, by trying it, and what to do about what does not."""
    checks = examine()
    if as_json:
        document = {"schema_version": 1, "usable": usable(checks), "checks": checks}
        click.echo(msgspec.json.encode(document))
    else:
        table = Table("check", "", "seen", "remedy", box=None, pad_edge=False)
        for check in checks:
            table.add_row(check.name, _MARKS[check.outcome], check.seen, check.remedy)
        Console().print(table)
    if not usable(checks):
        sys.exit(HostError.exit_status)
