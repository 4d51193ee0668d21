"""``testbed mutate``: put known bugs back into a driver and see that the rules find them."""

from __future__ import annotations

import os
import sys

import click
import msgspec
from rich.text import Text

from testbed.cli.manual import manual
from testbed.errors import UsageError
from testbed.kernel import check_names
from testbed.mutate import Catch, catch_all, tasks
from testbed.report import console_for
from testbed.report.terminal import plain_table

__all__ = ["command"]

STYLE = {
    "caught": "green",
    "survived": "bold red",
    "out of sight": "yellow",
    "not judged": "yellow",
    "does not apply": "yellow",
}


@click.command(
    "mutate",
    epilog=manual(
        "testbed mutate --named --nic igb",
        _0="every judged variant is caught",
        _1="one survives",
    ),
)
@click.option("--nic", required=True, help="The emulated NIC; see `testbed list nics`.")
@click.option("--named", is_flag=True, help="The named variants of images/variants.")
@click.option("--kernel", default="", help="The newest distribution kernel by default.")
@click.option("--jobs", type=click.IntRange(1, 64), help="Guests at once; TESTBED_GUESTS or 2 by default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(*, nic: str, named: bool, kernel: str, jobs: int | None, as_json: bool) -> None:
    """Build each variant of the NIC's driver, run the library, and say which rule catches it where.

    Exits with 0 when every judged variant is caught by every rule named for it, with 1 when one survives.
    """
    if not named:
        raise UsageError("mutate knows only the named variants yet", "add --named")
    check_names(kernel)
    work = tasks(kernel, nic)
    at_once = jobs or int(os.environ.get("TESTBED_GUESTS", "2"))
    finished = 0

    def tell(catches: list[Catch]) -> None:
        nonlocal finished
        finished += 1
        fates = ", ".join(f"{each.rule} {each.fate}" for each in catches)
        click.echo(f"{finished}/{len(work)} {catches[0].variant}: {fates}", err=True)

    catches = catch_all(work, at_once, tell)
    if as_json:
        click.echo(msgspec.json.encode({"schema_version": 1, "nic": nic, "catches": catches}))
    else:
        _print(catches)
    sys.exit(1 if any(each.fate == "survived" for each in catches) else 0)


def _print(catches: list[Catch]) -> None:
    table = plain_table("variant", "rule", "fate", "scenario", "observed", "control", "observed there")
    for each in catches:
        table.add_row(
            each.variant,
            each.rule,
            Text(each.fate, style=STYLE[each.fate]),
            each.scenario or each.why,
            "" if each.observed is None else str(each.observed),
            each.control,
            "" if each.control_observed is None else str(each.control_observed),
        )
    console_for(sys.stdout).print(table)
