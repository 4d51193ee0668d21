"""Two runs and where they part, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from testbed.report.terminal import OUTCOME_STYLE, VERDICT_STYLE, plain_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from testbed.diff import Difference, Parting

__all__ = ["difference_report"]

_STYLES = {"A": "red", "B": "green"}


def difference_report(difference: Difference) -> Iterator[RenderableType]:
    """Yield what rich prints: the two runs, where they part, then figures and rules."""
    for name, result in (("A", difference.a), ("B", difference.b)):
        yield Text.assemble(
            (f"{name}  ", _STYLES[name]),
            f"{result.kernel.asked}, Linux {result.kernel.release}: ",
            (result.verdict, VERDICT_STYLE[result.verdict]),
            f" {result.error}" if result.error else "",
        )
    if difference.parting:
        yield from _parted(difference.parting)
    else:
        events = difference.a.trace.events if difference.a.trace else 0
        yield Text(f"The sequences of events are equal: {events} events.")
    yield _figures(difference)


def _parted(parting: Parting) -> Iterator[Text]:
    yield Text()
    if parting.stream == "timing":
        yield Text("Driver and user space do the same in the same order. Only when differs, first here:")
    elif parting.last:
        yield Text(f"What the {parting.stream} does is the same for {parting.common} events, and parts after")
        yield _line(" ", parting.last, "bold")
    else:
        yield Text(f"What the {parting.stream} does is another from its first event on:")
    for name, side in (("A", parting.a), ("B", parting.b)):
        yield Text(f"{name}:" if side.after else f"{name}, which ends here:", style=_STYLES[name])
        yield from (_line(" ", line, "dim") for line in side.before)
        yield from (_line(name, line, _STYLES[name]) for line in side.after)


def _line(mark: str, text: str, style: str) -> Text:
    return Text(f"{mark} {text}", style=style, no_wrap=True, overflow="ignore")


def _figures(difference: Difference) -> RenderableType:
    table = plain_table("", "A", "B")
    table.columns[0].no_wrap = True
    for line in difference.summary:
        if line.a or line.b:
            style = "" if line.a == line.b else "bold"
            table.add_row(Text(line.name, style=style), _number(line.a), _number(line.b))
    table.add_section()
    for rule, *outcomes in difference.rules:
        table.add_row(
            Text(rule, style="bold"), *(Text(each, style=OUTCOME_STYLE.get(each, "")) for each in outcomes)
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}" if value == int(value) else f"{value:.1f}"
