"""``testbed fuzz``: what an input of the fuzzer means."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.fuzzing.explain import explain, read_input
from testbed.fuzzing.input_model import decode

__all__ = ["command"]


@click.command("fuzz")
@click.option(
    "--explain",
    "explained",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Print the scenario that an input means; any bytes mean one.",
)
def command(*, explained: Path) -> None:
    """Look at the inputs of fuzzing."""
    click.echo(explain(decode(read_input(explained)), "explained"), nl=False)
