"""A rule in words."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.rules import Rule

__all__ = ["explanation_lines"]

_WIDTH = 100


def explanation_lines(rule: Rule) -> Iterator[str]:
    """Yield what a rule demands, where that is written, what it needs to see, and what it excepts."""
    yield f"{rule.number} {rule.id}"
    yield from _wrapped(rule.statement, "  ")
    yield ""
    yield from _wrapped(f"exercised by: {rule.needs}", "  ")
    yield f"  counted in: {rule.unit}"
    for name, texts in (("exceptions", rule.exceptions), ("sources", rule.sources)):
        if texts:
            yield f"  {name}:"
            for text in texts:
                yield from _wrapped(f"- {text}", "    ", hanging="      ")


def _wrapped(text: str, indent: str, hanging: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        width=_WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
