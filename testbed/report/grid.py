"""A matrix of runs as a grid of verdicts, as KTAP, and as JUnit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from rich.text import Text

from testbed.report.ktap import ktap_head, ktap_lines
from testbed.report.terminal import plain_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from testbed.matrix import Done

__all__ = ["matrix_junit", "matrix_ktap", "matrix_table", "verdict_of"]

_STYLE = {"pass": "green", "fail": "bold red", "broken": "bold magenta", "unsupported": "dim"}


def verdict_of(done: Done) -> str:
    """Return the verdict; what never came to a run is broken, or unsupported where it cannot be one."""
    if done.result:
        return done.result.verdict
    return "unsupported" if done.status == 4 else "broken"


def matrix_table(done: Sequence[Done]) -> Table:
    """Return the grid: a row for each kernel and scenario, a column for each NIC and clock.

    Runs that differ in their seed only share a place, which counts them.
    """
    columns = list(dict.fromkeys(_column(each) for each in done))
    rows = list(dict.fromkeys(_row(each) for each in done))
    table = plain_table("kernel", "scenario", *columns)
    for kernel, scenario in rows:
        here = [each for each in done if _row(each) == (kernel, scenario)]
        places = [[each for each in here if _column(each) == column] for column in columns]
        table.add_row(kernel or "newest", scenario, *(_place(place) for place in places))
    return table


def _row(done: Done) -> tuple[str, str]:
    return done.order.kernel, done.order.scenario


def _column(done: Done) -> str:
    return " ".join(word for word in (done.order.nic, done.order.clock) if word)


def _place(done: Sequence[Done]) -> Text:
    counts = Counter(verdict_of(each) for each in done)
    text = Text()
    for verdict in (name for name in _STYLE if counts[name]):
        text.append(", " if text else "")
        text.append(verdict if len(done) == 1 else f"{counts[verdict]} {verdict}", style=_STYLE[verdict])
    violated = dict.fromkeys(rule for each in done for rule in _violated(each))
    if violated:
        text.append("\n" + "\n".join(violated))
    return text


def _violated(done: Done) -> list[str]:
    rules = done.result.rules if done.result else []
    return [rule.id for rule in rules if rule.outcome == "violated"]


def matrix_ktap(done: Sequence[Done]) -> Iterator[str]:
    """Yield the lines of a KTAP document with a subtest for each run."""
    yield from ktap_head(len(done))
    for number, each in enumerate(done, 1):
        if each.result:
            yield from ktap_lines(each.result, number)
        else:
            able = verdict_of(each) != "unsupported"
            yield f"# {' '.join(each.error.split())}"
            yield (
                f"{'not ok' if able else 'ok'} {number} - {each.order.scenario} on {each.order.nic}"
                f"{'' if able else ' # SKIP unsupported'}"
            )


def matrix_junit(done: Sequence[Done]) -> str:
    """Return a JUnit document: a test case for each run, with what was violated as its failure."""
    suite = ET.Element("testsuite", name="testbed", tests=str(len(done)))
    for each in done:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=f"testbed.{each.order.nic}",
            name=each.order.command().removeprefix("testbed run "),
            time=f"{each.result.timings.total_s if each.result else 0:.3f}",
        )
        verdict = verdict_of(each)
        if verdict == "unsupported":
            ET.SubElement(case, "skipped", message=each.error)
        elif verdict == "broken":
            ET.SubElement(case, "error", message=each.error)
        elif verdict == "fail" and each.result:
            failure = ET.SubElement(case, "failure", message=", ".join(_violated(each)))
            broken = (rule for rule in each.result.rules if rule.outcome == "violated")
            failure.text = "\n".join(f"{rule.id}: {rule.message}" for rule in broken)
    suite.set("failures", str(len(suite.findall("*/failure"))))
    suite.set("errors", str(len(suite.findall("*/error"))))
    suite.set("skipped", str(len(suite.findall("*/skipped"))))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)
