"""One HTML file that needs nothing else: a run, two runs above each other, or the grid of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING

from bokeh.resources import Resources
from jinja2 import Environment, FunctionLoader
from markupsafe import Markup

from testbed.report.evidence import evidence_lines
from testbed.report.lanes import times_us
from testbed.report.strip import Strip
from testbed.report.terminal import measure
from testbed.report.timeline import timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.diff import Parting
    from testbed.recorded import Recorded
    from testbed.result import Result
    from testbed.rules import RuleResult

__all__ = ["filled", "matrix_page", "pair_page", "run_page"]

#: A matrix' file holds as many timelines as come to this; failing runs' first.
TIMELINES_BYTES = 11_000_000
_ORDER = {"fail": 0, "broken": 1, "pass": 2, "unsupported": 3}


@dataclass(frozen=True)
class _Violation:
    """A violated rule, and the span of time in which its proof lies (nothing when there is no trace)."""

    rule: RuleResult
    measured: str
    begin_us: float
    end_us: float
    evidence: str


@dataclass(frozen=True)
class _Section:
    """What the page says of one run."""

    key: str
    name: str
    result: Result
    title: str
    violations: list[_Violation]
    place: str = ""
    timeline: str = ""


def run_page(run: Recorded) -> str:
    """Return the page of one run: what was judged, and its timeline."""
    strips = [Strip(run.result, run.trace)] if run.trace else []
    return filled(
        "page.html",
        _title(run.result),
        sections=[_section(run, "run")],
        timeline=timeline(strips) if strips else "",
    )


def pair_page(a: Recorded, b: Recorded, parting: Parting | None) -> str:
    """Return the page of two runs that left traces: their timelines above each other, and where they part.

    :param parting: as :func:`testbed.diff.parting` found it.
    """
    sides = (parting.a.row, parting.b.row) if parting else (None, None)
    strips = [
        Strip(run.result, run.trace, name, side)
        for run, name, side in zip((a, b), "AB", sides, strict=True)
        if run.trace
    ]
    return filled(
        "page.html",
        f"{_title(a.result)} | {_title(b.result)}",
        sections=[_section(a, "a", "A"), _section(b, "b", "B")],
        timeline=timeline(strips),
        compared=True,
        parting=parting,
    )


def matrix_page(runs: Sequence[Recorded]) -> str:
    """Return the page of many runs: the grid of verdicts, each a link to what the page says of the run."""
    sections: dict[str, _Section] = {}
    room = TIMELINES_BYTES
    for run in sorted(runs, key=lambda run: _ORDER[run.result.verdict]):
        drawn = timeline([Strip(run.result, run.trace)]) if run.trace and room > 0 else ""
        drawn = drawn if len(drawn) <= room else ""
        room -= len(drawn)
        sections[run.place] = _section(run, run.place, timeline=drawn)
    shown = [sections[run.place] for run in runs]
    columns = list(dict.fromkeys(_column(each.result) for each in shown))
    grid = {
        row: [[each for each in shown if (_row(each.result), _column(each.result)) == (row, column)]
              for column in columns]
        for row in dict.fromkeys(_row(each.result) for each in shown)
    }  # fmt: skip
    return filled("page.html", f"{len(runs)} runs", sections=shown, columns=columns, grid=grid)


def _row(result: Result) -> tuple[str, str]:
    return result.kernel.asked or result.kernel.package or "newest", result.scenario


def _column(result: Result) -> str:
    return f"{result.nic} {result.clock}"


def _title(result: Result) -> str:
    changes = "".join(f" + {change}" for change in (*result.kernel.variants, *result.kernel.patches))
    return f"{result.scenario} on {result.nic}, {result.kernel.release or result.kernel.name}{changes}"


def _section(run: Recorded, key: str, name: str = "", timeline: str = "") -> _Section:
    return _Section(
        key,
        name,
        run.result,
        _title(run.result),
        _violations(run),
        place=run.place,
        timeline=_inert(timeline),
    )


def _violations(run: Recorded) -> list[_Violation]:
    found = []
    for rule in run.result.rules:
        if rule.outcome != "violated":
            continue
        if run.trace is None or not rule.events:
            found.append(_Violation(rule, _measured(rule), 0, 0, ""))
            continue
        at = times_us(run.trace)[[row for row in rule.events if row < len(run.trace.events)]]
        proof = "\n".join(evidence_lines(run.result, run.trace.events, rule.id))
        found.append(_Violation(rule, _measured(rule), float(at.min()), float(at.max()), proof))
    return found


def _measured(rule: RuleResult) -> str:
    return "" if rule.observed is None else f"{measure(rule)}, limit {rule.limit}"


def _inert(json: str) -> Markup:
    """Return JSON that no HTML parser takes for the end of the script it stands in."""
    return Markup(json.replace("<", "\\u003c"))  # noqa: S704 - nothing in it can end the element


def filled(template: str, title: str, *, timeline: str = "", **parts: object) -> str:
    """Return a page made of one of the templates in web/.

    :param timeline: what Bokeh is to draw, as JSON; empty where there is nothing.
    """
    folder = files("testbed.report") / "web"
    environment = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text()),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    bokeh = Resources(mode="inline", components=["bokeh"]).js_raw
    return environment.get_template(template).render(
        title=title,
        version=version("testbed"),
        style=Markup((folder / "page.css").read_text()),  # noqa: S704 - our own
        script=Markup((folder / "page.js").read_text()),  # noqa: S704 - our own
        bokeh=Markup("\n".join(bokeh)),  # noqa: S704 - Bokeh's own, made for this
        timeline=_inert(timeline),
        **parts,
    )
