"""``testbed run``: one scenario on one kernel and one NIC, and a verdict."""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.changes import KernelOptions
from testbed.cli.manual import manual
from testbed.cli.output import bisect_status, setting_pairs
from testbed.cli.setup import shown_progress
from testbed.errors import UsageError
from testbed.order import Order
from testbed.report import FORMATS, severity
from testbed.run import run
from testbed.run_directory import RunDirectory

if TYPE_CHECKING:
    from testbed.report import RunPrinter
    from testbed.result import Result
    from testbed.run import Request
    from testbed.run_directory import RunFiles

__all__ = ["command"]

UNJUDGED = {3, 4}  # what these statuses stand for is told in one line on stderr


class _Seconds(click.FloatRange):
    """A number within limits; Python's ``nan`` is within all and none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number", param, ctx) if math.isnan(seconds) else seconds


@click.command(
    "run",
    cls=KernelOptions,
    epilog=manual(
        "testbed run ring-full --nic igb",
        "testbed run ./mine.yaml --nic igb --set rx_ring=128 --out result",
        "testbed run rx-steady --nic igb --patch fix.patch --mail",
        "git bisect run testbed run ring-full --nic igb --kernel tree:. --rule 22 --bisect",
        _0="every judged rule holds or is waived",
        _1="a rule is violated",
        _2="wrong usage: an unknown name, a wrong file or value; 128 with --bisect",
        _3="the environment or the run is broken; 125 with --bisect",
        _4="this NIC, driver or kernel cannot run it; 125 with --bisect",
    ),
)
@click.argument("scenario")
@click.option("--nic", required=True, help="The emulated NIC; see `testbed list nics`.")
@click.option(
    "--clock", type=click.Choice(["virtual", "real"]), help="Virtual under TCG, real under KVM by default."
)
@click.option("--runs", type=click.IntRange(1, 1000), default=1, help="How many times.")
@click.option(
    "--set", "set_", multiple=True, metavar="KEY=VALUE", help="Change a setting; see `testbed list settings`."
)
@click.option("--rule", multiple=True, help="Judge by this rule only; repeatable.")
@click.option(
    "--jitter", type=click.IntRange(min=0), metavar="SEED", help="Vary gaps, bursts and phase by a seed."
)
@click.option("--waivers", type=click.Path(path_type=Path), help="A file of more waivers.")
@click.option("--timeout", type=_Seconds(1, 86400), default=60.0, help="Seconds for the scenario itself.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--ktap", "as_ktap", is_flag=True, help="Print KTAP, which the kernel's test tools read.")
@click.option("--mail", "as_mail", is_flag=True, help="Print a short text to paste into a mail.")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), help="The same by name.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep result, trace and logs in this directory.")
@click.option("--pcap", is_flag=True, help="Record the wire in --out, both directions.")
@click.option("--bisect", is_flag=True, help="Exit as `git bisect run` understands it.")
@click.option(
    "--toolchain", type=click.Choice(["root", "host"]), default="root", help="Whose QEMU and compilers."
)
def command(  # noqa: PLR0913 - one parameter for each word of the command line
    *,
    runs: int,
    set_: tuple[str, ...],
    rule: tuple[str, ...],
    waivers: Path | None,
    timeout: float,
    as_json: bool,
    as_ktap: bool,
    as_mail: bool,
    form: str | None,
    out: Path | None,
    pcap: bool,
    bisect: bool,
    **names: Any,
) -> None:
    """Run SCENARIO, a name of the library or a file, and judge the driver by the rules."""
    printer = FORMATS[_format(form, {"json": as_json, "ktap": as_ktap, "mail": as_mail})](runs)
    if pcap and out is None:
        raise UsageError("--pcap records into the directory of --out, and there is none", "add --out DIR")
    order = Order(
        settings=setting_pairs(set_),
        rules=rule,
        waivers=str(waivers or ""),
        timeout_s=timeout,
        **names,
    )
    with ExitStack() as stack:
        directory = stack.enter_context(RunDirectory(out)) if out else None
        with shown_progress() as progress:
            request = order.request(progress)
        results = []
        for number in range(1, runs + 1):
            into = directory.of_run(number, runs) if directory else None
            results.append(_run_one(request, into, printer, pcap=pcap))
    printer.end()
    status = max((result.exit_status() for result in results), key=severity)
    sys.exit(bisect_status(status) if bisect else status)


def _run_one(request: Request, into: RunFiles | None, printer: RunPrinter, *, pcap: bool) -> Result:
    done = run(replace(request, pcap=into.pcap if into and pcap else None))
    if into:
        into.save(done)
    printer.show(done)
    if done.result.exit_status() in UNJUDGED:
        click.echo(f"testbed: {done.result.error}", err=True)
    return done.result


def _format(form: str | None, chosen: dict[str, bool]) -> str:
    """Return the one format that was asked for.

    :raise UsageError: there are two.
    """
    named = {name: f"--{name}" for name, asked in chosen.items() if asked}
    if form and form not in named:
        named[form] = f"--format {form}"
    if len(named) > 1:
        one, other, *_ = named.values()
        raise UsageError(f"{one} and {other} exclude each other", "choose one of them")
    return next(iter(named), "terminal")
