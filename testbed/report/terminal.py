"""One run on a terminal: headline, a line for each rule, counters, timings, and how to repeat it."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from testbed.result import Result
    from testbed.rules import RuleResult
    from testbed.trace import Counters

__all__ = ["OUTCOME_STYLE", "VERDICT_STYLE", "console_for", "measure", "plain_table", "run_report", "title"]

OUTCOME_STYLE = {"hold": "green", "violated": "bold red", "waived": "yellow", "not-exercised": "dim"}
VERDICT_STYLE = {
    "pass": "bold green",
    "fail": "bold red",
    "broken": "bold magenta",
    "unsupported": "bold yellow",
}
_PLAIN_WIDTH = 100


def console_for(stream: IO[str]) -> Console:
    """Return a console on ``stream``: coloured and as wide as the terminal, or plain and 100 columns wide."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    return console


def run_report(result: Result) -> RenderableType:
    """Return one run as something rich prints."""
    parts: list[RenderableType] = [title(result)]
    if result.error:
        parts.append(Text(result.error, style=VERDICT_STYLE[result.verdict]))
    if result.rules:
        parts.append(_rules([rule for rule in result.rules if rule.outcome != "not-exercised"]))
        parts += _not_exercised(result.rules)
    if result.counters:
        parts.append(Text(_counted(result.counters)))
    if result.trace:
        lost = f", {result.trace.lost} lost" if result.trace.lost else ""
        parts.append(
            Text(f"trace: {result.trace.events} events{lost}, digest {result.trace.sequence_digest[:16]}")
        )
    parts.append(Text(_timed(result), style="dim"))
    if result.reproduce:
        parts.append(Text(f"again: {result.reproduce}", no_wrap=True, overflow="ignore"))
    return Group(*parts)


def title(result: Result) -> Text:
    """Return a run's verdict and what ran, in one line."""
    kernel = result.kernel.release or result.kernel.name
    changes = "".join(f" + {change}" for change in (*result.kernel.variants, *result.kernel.patches))
    driver = f" ({result.driver})" if result.driver and result.driver != result.nic else ""
    return Text.assemble(
        (result.verdict, VERDICT_STYLE[result.verdict]),
        f"  {result.scenario} on {result.nic}{driver}, Linux {kernel}{changes}, "
        f"{result.clock} time, {result.accelerator}",
    )


def measure(rule: RuleResult) -> str:
    """Return what a rule observed, with its unit; empty when it was not exercised."""
    return "" if rule.observed is None else f"{rule.observed} {rule.unit}"


def plain_table(*columns: str) -> Table:
    """Return an empty table with these headings, as every table of ours looks."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _rules(rules: list[RuleResult]) -> Table:
    table = plain_table("#", "rule", "outcome", "observed", "limit", "what was seen")
    table.columns[0].justify = table.columns[4].justify = "right"
    for column in table.columns[:5]:
        column.no_wrap = True
    for rule in rules:
        message = f"{rule.message}; waived: {rule.waiver}" if rule.waiver else rule.message
        table.add_row(
            str(rule.number),
            rule.id,
            Text(rule.outcome, style=OUTCOME_STYLE[rule.outcome]),
            measure(rule),
            "" if rule.limit is None else str(rule.limit),
            message,
        )
    return table


def _not_exercised(rules: list[RuleResult]) -> list[RenderableType]:
    """Return one line for the rules that the run says nothing of; why, the result's JSON has for each."""
    names = [rule.id for rule in rules if rule.outcome == "not-exercised"]
    style = OUTCOME_STYLE["not-exercised"]
    return [Text(f"not exercised: {', '.join(names)}", style=style)] if names else []


def _counted(counters: Counters) -> str:
    """Return the counters that say something of this run, in one sentence."""
    received = (
        (counters.frames_injected, "injected"),
        (counters.frames_to_socket, "to the socket"),
        (counters.frames_to_stack, "to the stack"),
        (counters.frames_dropped_by_program, "dropped by the program"),
        (counters.frames_lost, "lost"),
        (counters.out_of_order, "out of order"),
        (counters.duplicated, "twice"),
        (counters.tx_submitted, "submitted"),
        (counters.tx_sent, "sent"),
        (counters.tx_completed, "completed"),
    )
    frames = ", ".join(f"{number} {what}" for number, what in received if number)
    return (
        f"frames: {frames or 'none'}; {counters.polls} polls ({counters.polls_full} full), "
        f"{counters.irqs} interrupts, "
        f"up to {counters.max_redirect_errors_in_poll} failed redirects in a poll; "
        f"{counters.virtual_ns / 1e6:.3f} ms of guest time"
    )


def _timed(result: Result) -> str:
    timings = result.timings
    parts = (
        ("boot", timings.boot_s),
        ("restore", timings.restore_s),
        ("run", timings.run_s),
        ("total", timings.total_s),
    )
    return "took: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in parts if seconds)
