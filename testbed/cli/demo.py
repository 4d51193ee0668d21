"""``testbed demo``: a real kernel bug, its obvious repair and its right one."""

from __future__ import annotations

import sys

import click

from testbed.cli.manual import manual
from testbed.demo import demonstrate, sentence
from testbed.report import comparison, console_for
from testbed.toolchain import open_toolchain

__all__ = ["command"]


@click.command(
    "demo",
    epilog=manual(
        "testbed demo",
        _0="it shows what it should",
        _1="it does not",
    ),
)
def command() -> None:
    """Run ring-full on igb three times: stock, with the obvious repair, with the right one."""
    console = console_for(sys.stdout)
    results = demonstrate(open_toolchain(), click.echo)
    console.print()
    console.print(comparison(results))
    for result in results:
        if result.error:
            console.print(f"{result.reproduce}: {result.error}")
    text, expected = sentence(results)
    console.print(text[0].upper() + text[1:])
    sys.exit(0 if expected else 1)
