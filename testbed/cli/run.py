"""``testbed run``: one scenario on one kernel and one NIC, and a verdict."""

from __future__ import annotations

import math
import shlex
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed import nic as nics
from testbed.cli.changes import KernelOptions, resolve_aloud
from testbed.cli.output import bisect_status, setting_pairs
from testbed.errors import Unsupported, UsageError
from testbed.kernel import parse
from testbed.report import FORMATS, severity
from testbed.rules import all_rules, load_waivers, rule_named
from testbed.run import Request, check_commands, run
from testbed.run_directory import RunDirectory
from testbed.scenario import apply_settings, jittered, load
from testbed.toolchain import open_toolchain

if TYPE_CHECKING:
    from testbed.report import RunPrinter
    from testbed.result import Result

__all__ = ["command", "reproduce_command"]

UNJUDGED = {3, 4}  # what these statuses stand for is told in one line on stderr


class _Seconds(click.FloatRange):
    """A number within limits; Python's ``nan`` is within all and none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number", param, ctx) if math.isnan(seconds) else seconds


@dataclass(frozen=True)
class _Options:
    """What stands on the command line, by the names of its options."""

    scenario: str
    nic: str
    kernel: str
    clock: Any
    runs: int
    set_: tuple[str, ...]
    rule: tuple[str, ...]
    jitter: int | None
    waivers: Path | None
    timeout: float
    out: Path | None
    pcap: bool
    toolchain: str

    def request(self) -> Request:
        """Resolve every name.

        :raise UsageError: one of them is unknown, before anything is built or booted.
        """
        nic = nics.get(self.nic)
        rules = [rule_named(name).id for name in self.rule]
        scenario = apply_settings(load(self.scenario, set(all_rules())), setting_pairs(self.set_))
        with suppress(Unsupported):  # that is a result, not a wrong name
            check_commands(nic, scenario)
        if self.jitter is not None:
            scenario = jittered(scenario, self.jitter)
        waivers = load_waivers() + (
            load_waivers(self.waivers, drivers=nics.drivers()) if self.waivers else []
        )
        spec = parse(self.kernel)
        toolchain = open_toolchain(self.toolchain)
        kernel = resolve_aloud(spec, toolchain)
        return Request(
            toolchain=toolchain,
            kernel=kernel,
            nic=nic,
            scenario=scenario,
            clock=self.clock,
            rules=rules,
            waivers=waivers,
            timeout_s=self.timeout,
            reproduce=reproduce_command(self),
        )


def reproduce_command(options: _Options) -> str:
    """Return the command line that asks for one such run."""
    words = ["testbed", "run", options.scenario, "--nic", options.nic]
    words += ["--kernel", options.kernel] if options.kernel else []
    words += ["--clock", options.clock] if options.clock else []
    for setting in options.set_:
        words += ["--set", setting]
    for name in options.rule:
        words += ["--rule", name]
    words += ["--jitter", str(options.jitter)] if options.jitter is not None else []
    words += ["--waivers", str(options.waivers)] if options.waivers else []
    words += ["--toolchain", options.toolchain] if options.toolchain != "root" else []
    return shlex.join(words)


@click.command("run", cls=KernelOptions)
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
@click.option("--out", type=click.Path(path_type=Path), help="Keep result, trace and logs in this directory.")
@click.option("--pcap", is_flag=True, help="Record the wire in --out, both directions.")
@click.option("--bisect", is_flag=True, help="Exit as `git bisect run` understands it.")
@click.option(
    "--toolchain", type=click.Choice(["root", "host"]), default="root", help="Whose QEMU and compilers."
)
def command(*, as_json: bool, as_ktap: bool, as_mail: bool, bisect: bool, **options: Any) -> None:
    """Run SCENARIO, a name of the library or a file, and judge the driver by the rules."""
    chosen = _Options(**options)
    printer = FORMATS[_format({"json": as_json, "ktap": as_ktap, "mail": as_mail})](chosen.runs)
    if chosen.pcap and chosen.out is None:
        raise UsageError("--pcap records into the directory of --out, and there is none", "add --out DIR")
    with ExitStack() as stack:
        directory = stack.enter_context(RunDirectory(chosen.out)) if chosen.out else None
        results = _run_all(chosen, directory, printer)
    status = max((result.exit_status() for result in results), key=severity)
    sys.exit(bisect_status(status) if bisect else status)


def _format(chosen: dict[str, bool]) -> str:
    """Return the one format that was asked for.

    :raise UsageError: there are two.
    """
    named = [name for name, asked in chosen.items() if asked]
    if len(named) > 1:
        raise UsageError(f"--{named[0]} and --{named[1]} exclude each other", "choose one of them")
    return named[0] if named else "terminal"


def _run_all(options: _Options, directory: RunDirectory | None, printer: RunPrinter) -> list[Result]:
    request = options.request()
    results = []
    for number in range(1, options.runs + 1):
        into = directory.of_run(number, options.runs) if directory else None
        done = run(replace(request, pcap=into.pcap if into and options.pcap else None))
        if into:
            into.save(done)
        printer.show(done)
        if done.result.exit_status() in UNJUDGED:
            click.echo(f"testbed: {done.result.error}", err=True)
        results.append(done.result)
    printer.end()
    return results
