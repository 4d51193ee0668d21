"""``testbed diff SCENARIO A B``: run a scenario on two kernels, and show what differs."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from testbed.cli.manual import manual
from testbed.cli.output import setting_pairs
from testbed.cli.setup import shown_progress
from testbed.diff import CONTEXT, compare
from testbed.kernel import check_names
from testbed.order import Order
from testbed.report import console_for, difference_report
from testbed.result import SCHEMA_VERSION
from testbed.run import run
from testbed.run_directory import RunDirectory, RunFiles

__all__ = ["command"]


@click.command(
    "diff",
    epilog=manual(
        "testbed diff ring-full '' @variant=igb/ring-full-exit --nic igb",
        "testbed diff rx-steady debian:trixie tree:linux --nic e1000e --out both",
        _0="the sequences of events are equal",
        _1="they are not",
        _4="a NIC, driver or kernel cannot run this scenario",
    ),
)
@click.argument("scenario")
@click.argument("a")
@click.argument("b")
@click.option("--nic", required=True, help="The emulated NIC; see `testbed list nics`.")
@click.option(
    "--set", "set_", multiple=True, metavar="KEY=VALUE", help="Change a setting; see `testbed list settings`."
)
@click.option("--context", type=click.IntRange(0, 1000), default=CONTEXT, help="Events to show on each side.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep both runs in this directory, as a and b.")
def command(  # noqa: PLR0913 - one parameter for each word of the command line
    *,
    scenario: str,
    a: str,
    b: str,
    nic: str,
    set_: tuple[str, ...],
    context: int,
    as_json: bool,
    out: Path | None,
) -> None:
    """Run SCENARIO on the kernels A and B in virtual time, and show where their sequences of events part.

    A and B are KERNELs, as after --kernel of `testbed run`; an empty one is the default kernel. Exits with 0 when
    the sequences are equal, with 1 when they are not.
    """
    for kernel in (a, b):  # neither is built before both are known
        check_names(kernel)
    settings = setting_pairs(set_)
    orders = [
        Order(scenario=scenario, nic=nic, kernel=kernel, clock="virtual", settings=settings)
        for kernel in (a, b)
    ]
    with shown_progress() as progress:
        requests = [order.request(progress) for order in orders]
    runs = [run(request) for request in requests]
    if out:
        with RunDirectory(out):
            for name, done in zip("ab", runs, strict=True):
                (out / name).mkdir(exist_ok=True)
                RunFiles(out / name).save(done)
    difference = compare(runs[0], runs[1], context)
    if as_json:
        document = difference or {"a": runs[0].result, "b": runs[1].result}
        click.echo(msgspec.json.encode({"schema_version": SCHEMA_VERSION, **msgspec.to_builtins(document)}))
    if difference is None:
        failed = next(done.result for done in runs if done.trace is None)
        click.echo(f"testbed: {failed.kernel.asked}: {failed.error}", err=True)
        sys.exit(failed.exit_status())
    if not as_json:
        console = console_for(sys.stdout)
        for part in difference_report(difference):
            console.print(part, crop=False)
    sys.exit(1 if difference.parting else 0)
