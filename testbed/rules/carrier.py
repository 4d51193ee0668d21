"""The link: rule 29."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.deadline import MILLISECOND_NS, Answer, answer, disturbances, wakeup_limit_ns
from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.scenario.program import StepKind
from testbed.trace.events import Kind
from testbed.trace.handover import moved
from testbed.trace.polls import during_reconfiguration
from testbed.trace.pool import free_tx_slots, sendable

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["carrier_quiet"]

_QUIET_NS = 50 * MILLISECOND_NS
_QUIET_REAL_NS = 200 * MILLISECOND_NS  # a guest in real time may stand still for a while
_RESUME_NS = 1000 * MILLISECOND_NS
_FREE_SLOTS = 16
_SENDING = (StepKind.STACK_SEND, StepKind.TX_KICK, StepKind.WAKEUP_TX)


@rule(
    "carrier-quiet",
    29,
    statement="50 ms after the link went down no poll claims that work remains for nothing; after it came up, "
    "what is sent within the first second or later leaves.",
    sources=["6c7273a26675 (ixgbe: carrier down answered 'not done')", "net/core/dev.c, __napi_poll()"],
    needs="the link going down for more than 50 ms, or coming up again and somebody who sends a second later",
    exceptions=[
        "polls that somebody asked for (a wakeup, the driver's own watchdog) and that go idle again",
        "polls in which something moved",
        "the driver taking its rings down, or the link being down because it did",
        "that the carrier file tells the truth is not judged: the trace does not hold the host's link",
    ],
    unit="polls and attempts",
)
def carrier_quiet(trace: Trace) -> Finding:
    """Count the polls that kept going without a link, and the attempts to send that failed with one."""
    quiet, restless = _restless(trace)
    tried, failed = _resumed(trace)
    if not quiet + tried:
        return not_exercised("the link was not down for long, and nobody sent after it came back")
    if not len(restless) + len(failed):
        return hold(f"quiet through {quiet} link losses; {tried} attempts to send after them")
    return violated(
        f"{len(restless)} polls claimed that work remains while the link was down; "
        f"{len(failed)} of {tried} attempts to send after it came up led to nothing",
        observed=len(restless) + len(failed),
        events=[*restless, *failed],
    )


def _restless(trace: Trace) -> tuple[int, Rows]:
    """Return how often the link was down for long, and the POLL rows that then kept their NAPI for nothing."""
    polls = trace.polls
    idle = polls.full & (polls.count(moved(trace)) == 0) & ~polls.reconfigured
    times = trace.events["time_ns"][polls.row].astype(np.int64)
    quiet, restless = 0, [polls.row[:0]]
    for down, up in _losses(trace):
        since_ns = trace.time_ns(down) + (_QUIET_NS if trace.clock == "virtual" else _QUIET_REAL_NS)
        end_ns = trace.time_ns(up) if up < len(trace.events) else trace.end_ns
        if end_ns > since_ns:
            quiet += 1
            restless.append(polls.row[idle & (times > since_ns) & (polls.row > down) & (polls.row < up)])
    return quiet, np.concatenate(restless)


def _losses(trace: Trace) -> list[tuple[int, int]]:
    """Return the rows at which the link went down and came up again; the trace's end where it did not.

    A driver that starts anew says that its link is down too; such losses do not count.
    """
    changes = trace.rows(Kind.CARRIER)
    anew = during_reconfiguration(trace.events)[changes]
    on = trace.events["a"][changes] == 1
    losses, down = [], -1
    for row, up, own in zip(changes.tolist(), on.tolist(), anew.tolist(), strict=True):
        if not up and not own and down < 0:
            down = row
        if down >= 0 and (up or own):
            losses.append((down, row))
            down = -1
    return losses if down < 0 else [*losses, (down, len(trace.events))]


def _resumed(trace: Trace) -> tuple[int, list[int]]:
    """Return how many attempts to send a second after the link came up were decided, and those in vain."""
    ups = np.array([up for _, up in _losses(trace) if up < len(trace.events)], dtype=np.intp)
    begins = trace.rows(Kind.STEP_BEGIN)
    begins = begins[np.isin(trace.events["a"][begins], _SENDING)]
    ends = np.append(trace.rows(Kind.STEP_END), -1)
    woken = trace.events["c"][ends[np.searchsorted(ends[:-1], begins)]] > 0
    begins = begins[woken | (trace.events["a"][begins] != StepKind.WAKEUP_TX)]
    stack = trace.events["a"][begins] == StepKind.STACK_SEND
    zero_copy = trace.zero_copy and not trace.generic_xdp
    able = (sendable(trace, begins) > 0) & (free_tx_slots(trace, begins) >= _FREE_SLOTS)
    begins = begins[stack | (zero_copy & able)]
    taken = trace.rows(Kind.XSK_TX_TAKEN)
    sent = np.union1d(taken[trace.events["a"][taken] > 0], trace.rows(Kind.STACK_TX, b=0))
    disturbing = disturbances(trace)
    limit_ns = wakeup_limit_ns(trace)
    tried, failed = 0, []
    for row in begins.tolist() if limit_ns is not None else ():
        last_up = int(np.searchsorted(ups, row)) - 1
        if last_up < 0 or _down_at(trace, row):
            continue
        said = answer(trace, row, sent, limit_ns or 0, disturbing)
        late = trace.time_ns(row) - trace.time_ns(int(ups[last_up])) >= trace.patience_ns(_RESUME_NS)
        tried += said is Answer.IN_TIME or (late and said is Answer.LATE)
        failed += [row] if late and said is Answer.LATE else []
    return tried, failed


def _down_at(trace: Trace, row: int) -> bool:
    changes = trace.rows(Kind.CARRIER)
    last = int(np.searchsorted(changes, row)) - 1
    return last >= 0 and trace.events["a"][changes[last]] == 0
