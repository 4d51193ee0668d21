"""The formats in which a series of runs is printed: for a terminal, as JSON, as KTAP, as text for a mail."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

import click

from testbed.report.ktap import ktap_head, ktap_lines
from testbed.report.mail import mail_lines
from testbed.report.terminal import console_for, run_report
from testbed.result import encode_result, encode_results

if TYPE_CHECKING:
    from testbed.result import Result
    from testbed.run import Run

__all__ = ["FORMATS", "RunPrinter", "severity"]


def severity(status: int) -> int:
    """Return how bad an exit status is: a violation is proven whatever else happened, then what was not judged."""
    return [0, 4, 2, 3, 1].index(status)


class RunPrinter(Protocol):
    """What prints a series of ``runs`` runs on stdout."""

    def __init__(self, runs: int) -> None: ...

    def show(self, run: Run) -> None:
        """Take a run that has just ended."""

    def end(self) -> None:
        """Print what can only be said when all have ended."""


class _Terminal:
    def __init__(self, runs: int) -> None:
        del runs

    def show(self, run: Run) -> None:
        if run.trace:
            console_for(sys.stdout).print(run_report(run.result), crop=False)

    def end(self) -> None:
        return


class _Json:
    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._results: list[Result] = []

    def show(self, run: Run) -> None:
        self._results.append(run.result)

    def end(self) -> None:
        results = self._results
        click.echo(encode_result(results[0]) if self._runs == 1 else encode_results(results), nl=False)


class _Ktap:
    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._shown = 0

    def show(self, run: Run) -> None:
        head = [] if self._shown else ktap_head(self._runs)
        self._shown += 1
        click.echo("\n".join([*head, *ktap_lines(run.result, self._shown)]))

    def end(self) -> None:
        return


class _Mail:
    """Shows the worst run, the first of several equally bad ones."""

    def __init__(self, runs: int) -> None:
        del runs
        self._results: list[Result] = []
        self._worst: Run | None = None

    def show(self, run: Run) -> None:
        self._results.append(run.result)
        if self._worst is None or _badness(run) > _badness(self._worst):
            self._worst = run

    def end(self) -> None:
        if self._worst:
            events = self._worst.trace.events if self._worst.trace else None
            click.echo("\n".join(mail_lines(self._worst.result, events, self._results)))


def _badness(run: Run) -> int:
    return severity(run.result.exit_status())


FORMATS: dict[str, type[RunPrinter]] = {"terminal": _Terminal, "json": _Json, "ktap": _Ktap, "mail": _Mail}
