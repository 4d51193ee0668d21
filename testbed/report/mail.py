"""A short report in plain text of at most 72 columns, to be pasted into a mail about a patch."""

from __future__ import annotations

import shlex
import textwrap
from importlib.metadata import version
from typing import TYPE_CHECKING

from testbed.report.comparison import COUNTERS
from testbed.report.terminal import measure
from testbed.trace import event_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from testbed.result import Result
    from testbed.rules import RuleResult

__all__ = ["mail_lines"]

_WIDTH = 72
_LEAST_EVENTS, _MOST_EVENTS = 3, 10
_VERDICTS = {"pass": "PASS", "fail": "FAIL", "broken": "could not be judged", "unsupported": "unsupported"}


def mail_lines(
    result: Result, events: npt.NDArray[np.void] | None = None, runs: Sequence[Result] = ()
) -> Iterator[str]:
    """Yield the lines of the report on a run.

    :param events: the run's trace, from which the proving events are shown.
    :param runs: all results when there were several runs; ``result`` is the worst of them.
    """
    yield f"testbed {version('testbed')}: {result.scenario} on {result.nic}: {_VERDICTS[result.verdict]}"
    if result.error:
        yield from _text(result.error, "  ")
    yield ""
    for name, text in _what_ran(result, runs):
        yield from _text(text, f"  {name:<10}", " " * 12)
    for rule in result.rules:
        if rule.outcome in {"violated", "waived"}:
            yield ""
            yield from _rule(rule, events)
    yield ""
    yield from _others(result.rules)
    yield from _counters(result)
    if result.reproduce:
        yield "To reproduce:"
        yield ""
        yield from _command(result.reproduce)


def _what_ran(result: Result, runs: Sequence[Result]) -> Iterator[tuple[str, str]]:
    kernel = result.kernel
    yield "kernel", kernel.release or kernel.name
    if kernel.package:
        yield "package", kernel.package
    if kernel.variants:
        yield "variants", ", ".join(kernel.variants)
    if kernel.patches:
        yield "patches", ", ".join(kernel.patches)
    yield "NIC", f"{result.nic}, driver {result.driver}"
    yield "scenario", f"{result.scenario}, {result.clock} time, QEMU with {result.accelerator}"
    if len(runs) > 1:
        verdicts = [run.verdict for run in runs]
        counted = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts))
        digests = {run.trace.sequence_digest for run in runs if run.trace}
        sequences = (
            "; the same events in each" if len(digests) == 1 else f"; {len(digests)} sequences of events"
        )
        yield "runs", f"{len(runs)}: {counted}{sequences if digests else ''}"


def _rule(rule: RuleResult, events: npt.NDArray[np.void] | None) -> Iterator[str]:
    state = "Violated" if rule.outcome == "violated" else "Waived"
    yield f"{state}: {rule.id} (rule {rule.number}), observed {measure(rule)}, limit {rule.limit}"
    yield from _text(rule.message, "  ")
    if rule.waiver:
        yield from _text(f"waived: {rule.waiver}", "  ")
    cited = rule.events[:_MOST_EVENTS]
    if rule.outcome == "violated" and events is not None and cited and max(cited) < len(events):
        yield ""
        yield "    time in us  event"
        yield from _proof(cited, events)
        if len(rule.events) > len(cited):
            yield "    [...]"


def _proof(cited: list[int], events: npt.NDArray[np.void]) -> Iterator[str]:
    """Yield the cited events; few of them together with what happened around the first, and marked."""
    rows = list(cited)
    if len(cited) < _LEAST_EVENTS:
        around = range(max(0, cited[0] - 2), min(len(events), cited[0] + _LEAST_EVENTS))
        rows = sorted({*cited, *around})
    for row, line in zip(rows, event_lines(events, rows), strict=True):
        _row, time_us, _us, cpu, kind, *fields = line.split()
        mark = ">" if row in cited and len(rows) > len(cited) else " "
        yield from _text(f"{cpu} {kind:<10} {' '.join(fields)}", f"  {mark}{time_us:>12} ", " " * 20)


def _others(rules: Sequence[RuleResult]) -> Iterator[str]:
    for outcome, name in (("hold", "Hold"), ("not-exercised", "Not exercised")):
        named = [rule.id for rule in rules if rule.outcome == outcome]
        if named:
            yield from _text(f"{name}: {', '.join(named)}", "", "  ")
            yield ""


def _counters(result: Result) -> Iterator[str]:
    if result.counters is None:
        return
    told = [(name, value(result.counters)) for name, value in COUNTERS]
    yield from _text(
        "Counters: " + (", ".join(f"{name} {number}" for name, number in told if number)), "", "  "
    )
    yield ""


def _command(command: str) -> Iterator[str]:
    """Yield a command that can be pasted into a shell, broken between words only."""
    line = " "
    for word in map(shlex.quote, shlex.split(command)):
        if line.strip() and len(line) + len(word) + 3 > _WIDTH:
            yield f"{line} \\"
            line = "   "
        line += f" {word}"
    yield line


def _text(text: str, indent: str, hanging: str | None = None) -> list[str]:
    """Return a text as lines of the mail; words longer than a line stay whole."""
    return textwrap.wrap(
        " ".join(text.split()) if indent.strip() == "" else text,
        width=_WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
