"""``testbed bench``: how long things take here, and whether runs repeat exactly."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from testbed.bench import FULL, QUICK, bench
from testbed.cli.manual import manual
from testbed.report import console_for
from testbed.report.terminal import plain_table
from testbed.toolchain import open_toolchain

if TYPE_CHECKING:
    from rich.table import Table

    from testbed.bench import Bench

__all__ = ["command"]


@click.command(
    "bench",
    epilog=manual(
        "testbed bench",
        "testbed bench --quick --json >here.json",
        _0="all targets are met",
        _1="a target is missed",
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--quick", is_flag=True, help="Measure each thing less often: 3 repetitions instead of 20.")
def command(*, as_json: bool, quick: bool) -> None:
    """Measure boot, restore and runs on this machine beside a plain QEMU boot, and compare repeated runs.

    Exits with 1 when a target is missed.
    """
    done = bench(
        open_toolchain(), QUICK if quick else FULL, lambda line: click.echo(f"bench: {line}", err=True)
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(done), indent=2))
    else:
        _print(done)
    sys.exit(1 if done.missed else 0)


def _print(done: Bench) -> None:
    machine = done.machine
    console = console_for(sys.stdout)
    console.print(f"{done.started}, load average {machine.load:g}")
    console.print(f"host: {machine.cpu}, {machine.cores} cores, {machine.memory_mib} MiB, {machine.kernel}")
    console.print(f"QEMU {machine.qemu}, Python {machine.python}, accelerator {machine.accelerator}")
    console.print(f"guest: Linux {done.guest_kernel}, igb")
    console.print()
    console.print(_timings(done))
    for each in done.timings:
        console.print(f"{each.name}: {each.what}")
    console.print()
    console.print(_repetitions(done))
    console.print()
    model = done.model
    console.print(
        f"{model.nic}, real time: a register is read in {model.median_us:g} us (target {model.target_us:g}); "
        f"when idle its model takes {model.idle_cpu_percent:g} % of a core (target {model.target_percent:g})"
    )
    console.print()
    for line in done.missed or ["all targets met"]:
        console.print(f"missed: {line}" if done.missed else line)


def _timings(done: Bench) -> Table:
    table = plain_table("", "median s", "min", "max", "times", "ratio", "target s")
    for column in table.columns[1:]:
        column.justify = "right"
    for each in done.timings:
        table.add_row(
            each.name,
            f"{each.median_s:.2f}",
            f"{min(each.seconds):.2f}",
            f"{max(each.seconds):.2f}",
            str(len(each.seconds)),
            f"{each.ratio:.2f}",
            "" if each.target_s is None else f"{each.target_s:g}",
        )
    return table


def _repetitions(done: Bench) -> Table:
    table = plain_table("repeated", "runs", "digests", "target", "broken")
    for column in table.columns[1:]:
        column.justify = "right"
    for each in done.repetitions:
        table.add_row(each.what, str(each.runs), str(each.digests), str(each.target), str(each.broken))
    return table
