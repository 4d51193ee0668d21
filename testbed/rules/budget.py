"""The budget of a poll: rules 1, 2 and 4."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule

if TYPE_CHECKING:
    from testbed.trace import Trace

__all__ = ["complete_below_budget", "short_poll_completes", "work_in_budget"]

_NAPI = "Documentation/networking/napi.rst"


@rule(
    "work-in-budget",
    1,
    statement="A poll reports work between 0 and its budget; with a budget of 0 it reports 0.",
    sources=[f"{_NAPI}, Driver API", "net/core/dev.c, __napi_poll(): 'exceeding its budget'"],
    needs="a POLL",
    unit="frames",
)
def work_in_budget(trace: Trace) -> Finding:
    """Judge the poll that is furthest outside; ``limit`` is that poll's budget, 0 where work is negative."""
    polls = trace.polls
    if not len(polls):
        return not_exercised("nothing was polled")
    excess = np.maximum(polls.work - polls.budget, -polls.work)
    bad = excess > 0
    worst = int(np.argmax(excess))
    work, budget = int(polls.work[worst]), int(polls.budget[worst])
    if not bad.any():
        most = int(polls.work.max())
        return hold(f"at most {most} in a poll", observed=most, limit=int(polls.budget.max()))
    return violated(
        f"{int(bad.sum())} polls outside their budget; one reported {work} of {budget}",
        observed=work,
        limit=budget if work > 0 else 0,
        events=polls.row[bad],
    )


@rule(
    "complete-below-budget",
    2,
    statement="A poll that completes returns less than its budget.",
    sources=[
        f"{_NAPI}, Driver API",
        "net/core/dev.c, __napi_poll(): 'Budget exhausted after napi rescheduled'",
    ],
    needs="a COMPLETE by the driver in a poll with a budget above 0",
    exceptions=[
        "a completion by the core after a full poll, when NAPI is disabled or busy polling is preferred",
    ],
    unit="polls",
)
def complete_below_budget(trace: Trace) -> Finding:
    """Count the polls that completed and still returned their whole budget."""
    polls = trace.polls
    completed = (polls.completes > 0) & (polls.budget > 0)
    if not completed.any():
        return not_exercised("no poll completed")
    bad = completed & (polls.work >= polls.budget)
    total = int(completed.sum())
    if not bad.any():
        return hold(f"{total} polls completed below their budget")
    return violated(
        f"{int(bad.sum())} of {total} polls that completed returned their whole budget",
        observed=int(bad.sum()),
        events=np.concatenate([polls.complete_row[bad], polls.row[bad]]),
    )


@rule(
    "short-poll-completes",
    4,
    statement="A poll that returns less than its budget has called napi_complete_done() exactly once.",
    sources=[f"{_NAPI}, Driver API", "net/core/dev.c, napi_poll() and napi_complete_done()"],
    needs="a poll that returned less than its budget, seen from its beginning",
    exceptions=[
        "napi_complete_done() may return false: it was called",
        "polls while the driver takes its rings down (steps that attach, bind, unbind or resize)",
        "the first poll of a CPU when the trace does not hold its beginning",
    ],
    unit="polls",
)
def short_poll_completes(trace: Trace) -> Finding:
    """Count the short polls that never completed, or completed more than once."""
    polls = trace.polls
    short = (polls.work < polls.budget) & (polls.budget > 0) & ~polls.reconfigured & polls.whole
    if not short.any():
        return not_exercised("no poll returned less than its budget")
    never, again = short & (polls.completes == 0), short & (polls.completes > 1)
    bad = never | again
    total = int(short.sum())
    if not bad.any():
        return hold(f"{total} short polls completed once each")
    return violated(
        f"of {total} short polls {int(never.sum())} did not complete, {int(again.sum())} completed again",
        observed=int(bad.sum()),
        events=polls.row[bad],
    )
