"""``testbed replay RESULT``: run again what a result recorded, and compare the sequences of events."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from testbed.cli.manual import manual
from testbed.errors import UsageError
from testbed.replay import replay
from testbed.report import console_for, run_report
from testbed.result import encode_result, load_result
from testbed.toolchain import open_toolchain

__all__ = ["command"]


@click.command(
    "replay",
    epilog=manual(
        "testbed replay result",
        "testbed replay result/result.json --json",
        _0="the sequence of events is the same",
        _1="it is another one",
        _4="this NIC, driver or kernel cannot run the scenario",
    ),
)
@click.argument("result", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the new run as one JSON document.")
@click.option(
    "--toolchain", type=click.Choice(["root", "host"]), default="root", help="Whose QEMU and compilers."
)
def command(*, result: Path, as_json: bool, toolchain: str) -> None:
    """Run again what RESULT (an --out directory or its result.json) recorded.

    Exits with 0 when the sequence of events is the same, with 1 when it is another.
    """
    recorded = load_result(result)
    if recorded.trace is None:
        raise UsageError(f"{result} recorded no trace: its run was {recorded.verdict}", "replay another one")
    done = replay(recorded, open_toolchain(toolchain), lambda line: click.echo(f"testbed: {line}", err=True))
    if as_json:
        click.echo(encode_result(done.result), nl=False)
    else:
        console_for(sys.stdout).print(run_report(done.result), crop=False)
    if done.result.trace is None:
        sys.exit(done.result.exit_status())
    equal = done.result.trace.sequence_digest == recorded.trace.sequence_digest
    click.echo(f"testbed: the sequence of events is {'the same' if equal else 'another one'}", err=True)
    sys.exit(0 if equal else 1)
