"""Deferred interrupts (napi_defer_hard_irqs, gro_flush_timeout): rules 15 and 16."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.policy import policy_of
from testbed.rules.registry import rule
from testbed.scenario.program import Setting
from testbed.trace.events import Kind
from testbed.trace.handover import moved, unseen_sends
from testbed.trace.knobs import knob_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from testbed.trace import Trace

    Bools = npt.NDArray[np.bool_]

__all__ = ["deferral_drains", "tx_work_reported"]


class _Drain(NamedTuple):
    """Polls that only the timer asked for and that moved nothing, one behind the other."""

    polls: tuple[int, ...]
    deferral: int
    ended: bool  # the last one completed, and the core let the driver unmask


@rule(
    "deferral-drains",
    15,
    statement="With napi_defer_hard_irqs = D, after the last poll with real work at most D + 1 polls by the "
    "timer follow before napi_complete_done() returns true.",
    sources=[
        "Documentation/networking/napi.rst, Software IRQ coalescing",
        "net/core/dev.c, napi_complete_done(): defer_hard_irqs_count",
    ],
    needs="set steps of both knobs above 0 in a known program, and a poll by the timer in which nothing moved "
    "that completed, or D + 2 of them in a row",
    exceptions=[
        (
            "polls that something else than the timer asked for begin the count anew: busy polling reloads the "
            "deferral by itself"
        ),
        "work that a driver may have done unseen (cleaning up what XDP_TX sent) counts as real",
        "that the driver then unmasks its interrupt is not seen",
    ],
    unit="polls",
)
def deferral_drains(trace: Trace) -> Finding:
    """Take the longest row of idle polls by the timer; ``limit`` is D + 1 at its time."""
    drains = [drain for napi in np.unique(trace.polls.napi) for drain in _drains(trace, int(napi))]
    over = [drain for drain in drains if len(drain.polls) > drain.deferral + 1]
    if over:
        worst = max(over, key=lambda drain: len(drain.polls) - drain.deferral)
        return violated(
            f"the timer polled {len(worst.polls)} times in a row for nothing with napi_defer_hard_irqs "
            f"{worst.deferral}",
            observed=len(worst.polls),
            limit=worst.deferral + 1,
            events=trace.polls.row[list(worst.polls)],
        )
    ended = [drain for drain in drains if drain.ended]
    if not ended:
        return not_exercised("no deferral was seen to drain")
    most = max(ended, key=lambda drain: len(drain.polls) - drain.deferral)
    return hold(
        f"{len(ended)} deferrals drained, one after {len(most.polls)} polls by the timer",
        observed=len(most.polls),
        limit=most.deferral + 1,
    )


def _drains(trace: Trace, napi: int) -> Iterator[_Drain]:
    polls = trace.polls
    own = np.flatnonzero(polls.napi == napi)
    rows = polls.row[own]
    fired = trace.rows(Kind.WATCHDOG, subject=napi)
    timer = np.diff(np.searchsorted(fired, rows), prepend=0) > 0
    idle = timer & ~_worked(trace)[own] & ~polls.reconfigured[own]
    deferral = knob_at(trace, Setting.NAPI_DEFER_HARD_IRQS, rows)
    deferral[knob_at(trace, Setting.GRO_FLUSH_TIMEOUT, rows) <= 0] = 0
    completed = polls.complete_row[own]
    let_go = (completed >= 0) & (trace.events["b"][completed] == 1)
    streak: list[int] = []
    for index, poll in enumerate(own.tolist()):
        counted = idle[index] and deferral[index] > 0
        if streak and not (counted and deferral[index] == deferral[index - 1]):
            yield _Drain(tuple(streak), int(deferral[index - 1]), ended=False)
            streak = []
        if not counted:
            continue
        streak.append(poll)
        if let_go[index]:
            yield _Drain(tuple(streak), int(deferral[index]), ended=True)
            streak = []
    if streak:
        yield _Drain(tuple(streak), int(deferral[-1]), ended=False)


def _worked(trace: Trace) -> Bools:
    """Say for each poll whether it did something real, or may have."""
    polls = trace.polls
    unseen = np.searchsorted(unseen_sends(trace), polls.row) > 0
    worked: Bools = (polls.count(moved(trace)) > 0) | (unseen & (polls.work > 0))
    return worked


@rule(
    "tx-work-reported",
    16,
    statement="A poll that reaped AF_XDP Tx completions passes work above 0 to napi_complete_done(), so that "
    "the deferral of interrupts engages under Tx alone.",
    sources=[
        "81d0885d68ec (stmmac)",
        "Documentation/networking/napi.rst, Software IRQ coalescing",
        "testbed/rules/policy.toml: whom it binds",
    ],
    needs="a poll that completed, reaped AF_XDP Tx completions and received nothing, by a driver that it binds",
    exceptions=["drivers that it does not bind: the contract leaves Tx out of the budget; see the message"],
    unit="polls",
)
def tx_work_reported(trace: Trace) -> Finding:
    """Count the polls that reaped and completed with no work."""
    polls = trace.polls
    done = trace.rows(Kind.XSK_TX_DONE)
    reaped = polls.count(done[trace.events["a"][done] > 0]) > 0
    judged = reaped & (polls.complete_row >= 0) & (polls.budget > 0) & ~polls.reconfigured
    if not judged.any():
        return not_exercised("no poll that completed had reaped AF_XDP Tx completions")
    silent = judged & (trace.events["a"][polls.complete_row] <= 0)
    told = f"{int(silent.sum())} of {int(judged.sum())} polls that reaped Tx completions reported no work"
    if trace.driver not in policy_of("tx-work-reported").required:
        return not_exercised(f"{told}; {trace.driver or 'this driver'} need not")
    if not silent.any():
        return hold(f"{int(judged.sum())} polls that reaped Tx completions reported work")
    return violated(
        told,
        observed=int(silent.sum()),
        events=[*polls.complete_row[silent], *polls.row[silent]],
    )
