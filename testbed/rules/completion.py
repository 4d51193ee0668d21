"""How often and when a poll completes: rules 3 and 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.trace.events import Kind

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from testbed.trace import Trace

__all__ = ["full_poll_not_released", "single_complete"]

_CORES = "a completion by the core after a full poll, when NAPI is disabled or busy polling is preferred"


@rule(
    "full-poll-not-released",
    3,
    statement="A poll that returns its whole budget has not called napi_complete_done(): it keeps its NAPI.",
    sources=[
        "Documentation/networking/napi.rst, Driver API",
        (
            "net/core/dev.c, __napi_poll(): 'Drivers must not modify the NAPI state if they consume the entire "
            "weight'"
        ),
        "407e0efdf8ba (idpf)",
    ],
    needs="a poll that returned its whole budget",
    exceptions=[_CORES, "what a driver does to its interrupt mask is not seen"],
    unit="polls",
)
def full_poll_not_released(trace: Trace) -> Finding:
    """Count the full polls that completed."""
    polls = trace.polls
    full = polls.full & (polls.work == polls.budget)
    if not full.any():
        return not_exercised("no poll returned just its whole budget")
    bad = full & (polls.completes > 0)
    total = int(full.sum())
    if not bad.any():
        return hold(f"{total} full polls kept their NAPI")
    return violated(
        f"{int(bad.sum())} of {total} full polls had completed",
        observed=int(bad.sum()),
        events=[*polls.complete_row[bad], *polls.row[bad]],
    )


@rule(
    "single-complete",
    5,
    statement="A poll calls napi_complete_done() at most once: after the first call the NAPI may be another's.",
    sources=[
        "Documentation/networking/napi.rst, Driver API",
        "net/core/dev.c, napi_complete_done(): WARN_ON_ONCE(!(val & NAPIF_STATE_SCHED))",
    ],
    needs="a poll that completed",
    exceptions=[_CORES],
    unit="polls",
)
def single_complete(trace: Trace) -> Finding:
    """Count the polls that completed more than once."""
    polls = trace.polls
    completed = polls.completes > 0
    if not completed.any():
        return not_exercised("no poll completed")
    bad = polls.completes > 1
    total = int(completed.sum())
    if not bad.any():
        return hold(f"{total} polls completed once")
    return violated(
        f"{int(bad.sum())} of {total} polls that completed did so up to {int(polls.completes.max())} times",
        observed=int(bad.sum()),
        events=[*_completes(trace, bad), *polls.row[bad]],
    )


def _completes(trace: Trace, polls: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    rows = trace.rows(Kind.COMPLETE)
    owner = trace.polls.owner[rows]
    rows = rows[(owner >= 0) & polls[owner]]
    own: npt.NDArray[np.intp] = rows[
        trace.events["subject"][rows] == trace.polls.napi[trace.polls.owner[rows]]
    ]
    return own
