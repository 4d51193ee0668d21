"""Several runs side by side: what a variant changed, in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from testbed.report.terminal import OUTCOME_STYLE, VERDICT_STYLE, plain_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from testbed.result import Result
    from testbed.trace import Counters

__all__ = ["COUNTERS", "comparison"]

#: Counters worth a row when they differ from 0 in any run, and how a person says them.
COUNTERS: tuple[tuple[str, Callable[[Counters], int]], ...] = (
    ("frames injected", lambda counters: counters.frames_injected),
    ("frames to the socket", lambda counters: counters.frames_to_socket),
    ("failed redirects per poll", lambda counters: counters.max_redirect_errors_in_poll),
    ("frames lost", lambda counters: counters.frames_lost),
    ("frames out of order", lambda counters: counters.out_of_order),
    ("frames delivered twice", lambda counters: counters.duplicated),
    ("polls", lambda counters: counters.polls),
    ("interrupts", lambda counters: counters.irqs),
    ("frames completed", lambda counters: counters.tx_completed),
)


def comparison(results: Sequence[Result], names: Sequence[str] | None = None) -> Table:
    """Return a table with a column for each run and a row for each rule exercised in any, then for counters.

    :param names: the columns' headings; by default the variants and patches of each run, or "stock".
    """
    names = [_changes(result) for result in results] if names is None else names
    table = plain_table("", *names)
    table.columns[0].no_wrap = True
    table.add_row(
        "verdict", *(Text(result.verdict, style=VERDICT_STYLE[result.verdict]) for result in results)
    )
    exercised = {
        rule.id: rule.number for result in results for rule in result.rules if rule.outcome != "not-exercised"
    }
    for rule_id in sorted(exercised, key=exercised.__getitem__):
        table.add_row(rule_id, *(_outcome(result, rule_id) for result in results))
    table.add_section()
    for name, value in COUNTERS:
        values = [None if result.counters is None else value(result.counters) for result in results]
        if any(values):
            table.add_row(name, *("-" if number is None else str(number) for number in values))
    return table


def _changes(result: Result) -> str:
    return " + ".join((*result.kernel.variants, *result.kernel.patches)) or "stock"


def _outcome(result: Result, rule_id: str) -> Text:
    rule = result.rule(rule_id)
    if rule is None:
        return Text("not judged", style="dim")
    against = rule.outcome in {"violated", "waived"} and rule.observed is not None and rule.limit is not None
    numbers = f" ({rule.observed}, limit {rule.limit})" if against else ""
    return Text(rule.outcome + numbers, style=OUTCOME_STYLE[rule.outcome])
