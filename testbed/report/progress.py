"""How far a matrix is: its grid while it runs on a terminal, a line for each run elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from testbed.report.grid import matrix_table, verdict_of

if TYPE_CHECKING:
    from types import TracebackType

    from testbed.matrix import Done

__all__ = ["MatrixProgress", "done_line", "left_line"]


def done_line(done: Done) -> str:
    """Return what is told of a run that has ended: its verdict, its command, and what was wrong."""
    what = done.order.command().removeprefix("testbed run ")
    rules = [rule.id for rule in done.result.rules if rule.outcome == "violated"] if done.result else []
    why = ", ".join(rules) or done.error
    return f"{verdict_of(done)} {what}{': ' if why else ''}{why}{' (kept)' if done.again else ''}"


def left_line(total: int, ended: int, kept: int, at_once: int | None, elapsed_s: float) -> str:
    """Return how many runs are done, running and left, and about how long that takes.

    :param kept: those of the ended that were there already, which cost no time.
    :param at_once: how many run at once; None where others decide that.
    """
    left = total - ended
    running = None if at_once is None else min(at_once, left)
    told = [f"{ended} of {total} done"]
    told += [f"{left} left"] if running is None else [f"{running} running", f"{left - running} left"]
    if left and ended > kept:
        seconds = round(elapsed_s / (ended - kept) * left)
        told.append(f"about {seconds} s to go" if seconds < 120 else f"about {round(seconds / 60)} min to go")
    return ", ".join(told)


class MatrixProgress:
    """Shows runs as they end, on stderr; a context.

    :param at_once: as for :func:`left_line`.
    """

    def __init__(self, console: Console, total: int, at_once: int | None) -> None:
        self._console, self._total, self._at_once = console, total, at_once
        self._done: list[Done] = []
        self._begun_s = time.monotonic()
        self._live = Live(console=console, get_renderable=self._grid, transient=True, refresh_per_second=1)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, done: Done) -> None:
        """Tell of a run that has ended."""
        self._done.append(done)
        if not self._console.is_terminal:
            line = f"{len(self._done)}/{self._total} {done_line(done)}"
            self._console.print(line, soft_wrap=True, markup=False, highlight=False)

    def _grid(self) -> Group:
        """Return what is shown now; a terminal that is too low cuts the grid, not the line."""
        kept = sum(done.again for done in self._done)
        elapsed_s = time.monotonic() - self._begun_s
        line = left_line(self._total, len(self._done), kept, self._at_once, elapsed_s)
        return Group(Text(line), *([matrix_table(self._done)] if self._done else []))
