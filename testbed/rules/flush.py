"""Flushing redirects: rule 26."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.trace.events import Kind

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace import Trace

__all__ = ["flush_before_complete"]


@rule(
    "flush-before-complete",
    26,
    statement="After a successful redirect a poll calls xdp_do_flush(), before it completes and ends.",
    sources=[
        "Documentation/networking/napi.rst, Driver API",
        "net/core/filter.c, xdp_do_check_flushed(): 'Missing xdp_do_flush() invocation after NAPI by'",
        "2ccce20d51fa and 9caca6ac0e26 (bnxt)",
    ],
    needs="a poll with a successful redirect",
    exceptions=[
        "generic XDP: the core flushes each frame itself",
        "redirects that failed left nothing to flush",
    ],
    unit="polls",
)
def flush_before_complete(trace: Trace) -> Finding:
    """Count the polls whose last successful redirect was flushed too late or not at all."""
    if trace.generic_xdp:
        return not_exercised("generic XDP flushes by itself")
    polls = trace.polls
    redirected = polls.last(trace.rows(Kind.REDIRECT, a=0))
    exercised = redirected >= 0
    if not exercised.any():
        return not_exercised("no redirect succeeded in a poll")
    flushed = _first_after(trace, redirected)
    never = exercised & (flushed < 0)
    late = exercised & (flushed >= 0) & (polls.complete_row >= 0) & (polls.complete_row < flushed)
    bad = never | late
    total = int(exercised.sum())
    if not bad.any():
        return hold(f"{total} polls flushed what they redirected")
    return violated(
        f"of {total} polls that redirected {int(never.sum())} did not flush, "
        f"{int(late.sum())} flushed after completing",
        observed=int(bad.sum()),
        events=np.concatenate([redirected[bad], polls.row[bad]]),
    )


def _first_after(trace: Trace, redirected: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return for each poll its first FLUSH behind the row ``redirected``, or -1."""
    flushes = trace.rows(Kind.FLUSH)
    flushes = flushes[trace.polls.owner[flushes] >= 0]
    return trace.polls.first(flushes[flushes > redirected[trace.polls.owner[flushes]]])
