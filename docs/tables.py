#!/usr/bin/env python3
"""Write the tables of docs/reference.md from the code, or say with ``--check`` that they are out of date.

Usage, in the root of the repository: ``.venv/bin/python docs/tables.py [--check]``
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from testbed import nic, rules, scenario
from testbed.kernel import known_kernels, known_variants
from testbed.scenario.fields import fields_of
from testbed.scenario.steps import STEPS
from testbed.trace.counters import Counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

REFERENCE = Path(__file__).with_name("reference.md")
_PART = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

Rows: TypeAlias = "list[Sequence[str]]"


def _settings() -> Rows:
    rows = [(f"`{row.name}`", row.range, f"`{row.default}`", row.about) for row in scenario.settings_table()]
    return [("setting", "values", "default", "meaning"), *rows]


def _steps() -> Rows:
    rows: Rows = [("step", "fields", "what it does")]
    for word, step in STEPS.items():
        fields = fields_of(step).values()
        told = [f"`{each.name}`{'*' if each.name == step.bare else ''}: {_field(each)}" for each in fields]
        rows.append((f"`{word}`", "; ".join(told), _first_line(step)))
    return rows


def _field(field: object) -> str:
    range_, default = getattr(field, "range", ""), getattr(field, "default", "")
    return ", ".join(part for part in (range_, f"default {default}" if default else "") if part) or "steps"


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def _rules() -> Rows:
    found = rules.all_rules().values()
    return [
        ("#", "rule", "statement", "exercised by"),
        *((str(each.number), f"`{each.id}`", each.statement, each.needs) for each in found),
    ]


def _counters() -> Rows:
    text = (inspect.getdoc(Counters) or "").split("\n- ")[1:]
    told = (" ".join(each.split()).partition(": ") for each in text)
    return [("counter", "definition"), *((f"`{name}`", about) for name, _, about in told)]


def _nics() -> Rows:
    found = [nic.get(name) for name in nic.names()]
    return [("NIC", "driver", "what it is"), *((f"`{each.name}`", each.driver, each.about) for each in found)]


def _kernels() -> Rows:
    return [("BASE", "what it is"), *((f"`{name}`", about) for name, about in known_kernels().items())]


def _variants() -> Rows:
    return [("variant", "what it is"), *((f"`{each.name}`", each.about) for each in known_variants())]


def _scenarios() -> Rows:
    return [
        ("scenario", "what it is for"),
        *((f"`{entry.name}`", entry.about) for entry in scenario.library()),
    ]


_TABLES: dict[str, Callable[[], Rows]] = {
    "settings": _settings,
    "steps": _steps,
    "rules": _rules,
    "counters": _counters,
    "nics": _nics,
    "kernels": _kernels,
    "variants": _variants,
    "scenarios": _scenarios,
}


def _markdown(rows: Rows) -> str:
    head, *body = rows
    lines: Iterable[Sequence[str]] = (head, ["---"] * len(head), *body)
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def main() -> int:
    """Rewrite the tables and return 0; with ``--check`` return 1 when that would change something."""
    old = REFERENCE.read_text()
    new = _PART.sub(lambda found: found[1] + _markdown(_TABLES[found[2]]()) + found[3], old)
    if "--check" in sys.argv:
        if new != old:
            sys.stderr.write(f"{REFERENCE} is out of date: run {sys.argv[0]}\n")
        return int(new != old)
    REFERENCE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
