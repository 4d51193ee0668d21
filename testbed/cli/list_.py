"""``testbed list``: what there is to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.table import Table

from testbed import nic, rules, scenario
from testbed.cli.manual import manual
from testbed.kernel import default_kernel, known_kernels, known_variants
from testbed.kernel.debian import cached

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["command"]

Row = dict[str, str]


def _nics() -> list[Row]:
    found = [nic.get(name) for name in nic.names()]
    return [
        {
            "name": each.name,
            "driver": each.driver,
            "can": ", ".join(_since(what, first) for what, first in sorted(each.since.items())),
            "about": each.about,
        }
        for each in found
    ]


def _since(capability: str, first: tuple[int, int]) -> str:
    return f"{capability} ({first[0]}.{first[1]} on)" if any(first) else capability


def _kernels() -> list[Row]:
    rows = []
    for name, about in known_kernels().items():
        kernel = cached(name) if name.startswith("debian:") else None
        note = " (default)" if name == default_kernel() else ""
        rows.append({"name": name, "release": kernel.release if kernel else "", "about": about + note})
    return rows


def _scenarios() -> list[Row]:
    return [{"name": entry.name, "about": entry.about} for entry in scenario.library()]


def _variants() -> list[Row]:
    return [{"name": each.name, "driver": each.driver, "about": each.about} for each in known_variants()]


def _rules() -> list[Row]:
    return [
        {"id": each.id, "number": str(each.number), "statement": each.statement}
        for each in rules.all_rules().values()
    ]


def _settings() -> list[Row]:
    return [row._asdict() for row in scenario.settings_table()]


_LISTS: dict[str, Callable[[], list[Row]]] = {
    "nics": _nics,
    "kernels": _kernels,
    "scenarios": _scenarios,
    "variants": _variants,
    "rules": _rules,
    "settings": _settings,
}


@click.command(
    "list",
    epilog=manual(
        "testbed list scenarios",
        "testbed list rules --json",
        _0="done",
    ),
)
@click.argument("what", type=click.Choice(list(_LISTS)))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(what: str, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """List NICs, kernels, scenarios, variants, rules or settings."""
    rows = _LISTS[what]()
    if as_json:
        click.echo(msgspec.json.encode({"schema_version": 1, what: rows}))
        return
    table = Table(*(rows[0] if rows else ()), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row.values())
    Console(markup=False).print(table)
