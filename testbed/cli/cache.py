"""``testbed cache``: what lies in the cache, and the removal of what is not needed any more."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from testbed.cache import cache_dir
from testbed.cli.manual import manual
from testbed.inventory import DAYS, examine, prune
from testbed.report import console_for
from testbed.report.terminal import plain_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.inventory import Entry

__all__ = ["command"]

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@click.command(
    "cache",
    epilog=manual(
        "testbed cache",
        "testbed cache --prune --days 3",
        _0="done",
    ),
)
@click.option(
    "--prune", "prune_it", is_flag=True, help="Remove what is stale or was left by a killed testbed."
)
@click.option(
    "--days",
    type=click.FloatRange(0),
    default=DAYS,
    show_default=True,
    help="Stale after so long without use.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(*, prune_it: bool, days: float, as_json: bool) -> None:
    """Show what the cache holds and why; with --prune, remove what nothing current refers to.

    What a running testbed uses is never removed.
    """
    removed = prune(days) if prune_it else []
    kept = examine(days)
    if as_json:
        click.echo(msgspec.json.encode(_document(kept, removed)))
        return
    console = console_for(sys.stdout)
    for entry in removed:
        console.print(f"removed {entry.kind}/{entry.name} ({_size(entry.bytes)}): {entry.why}")
    table = plain_table("entry", "what", "size", "age", "state")
    table.columns[0].no_wrap = True
    table.columns[2].justify = table.columns[3].justify = "right"
    for entry in kept:
        name = f"{entry.kind}/{entry.name}".rstrip("/")
        state = f"{entry.state}: {entry.why}" if entry.why else entry.state
        age = _age(time.time() - entry.last_used)
        table.add_row(name, entry.about, _size(entry.bytes), age, state)
    console.print(table)
    console.print(f"{_size(_total(kept))} in {cache_dir()}")
    if removed:
        console.print(f"{_size(_total(removed))} freed")


def _document(kept: Sequence[Entry], removed: Sequence[Entry]) -> dict[str, object]:
    return {
        "schema_version": 1,
        "path": str(cache_dir()),
        "bytes": _total(kept),
        "entries": kept,
        "freed_bytes": _total(removed),
        "removed": removed,
    }


def _total(entries: Sequence[Entry]) -> int:
    return sum(entry.bytes for entry in entries)


def _size(number: int) -> str:
    return f"{number / 1e6:.1f} MB"


def _age(seconds: float) -> str:
    """Return how long ago that was, in the largest unit that has a whole one."""
    for length, name in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {name}"
    return "now"
