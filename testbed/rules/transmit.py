"""Sending from an AF_XDP socket: rules 19 and 21."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.deadline import Answer, answer, disturbances, wakeup_limit_ns, wakeups
from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.scenario.program import StepKind
from testbed.trace.events import Kind, Ring
from testbed.trace.pool import free_tx_slots, outstanding, sendable
from testbed.trace.wakeups import need_wakeup_at

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["could_send", "entries_taken", "tx_liveness", "tx_need_wakeup"]

_AF_XDP = "Documentation/networking/af_xdp.rst, XDP_USE_NEED_WAKEUP bind flag"
_FREE_SLOTS = 16


@rule(
    "tx-liveness",
    19,
    statement="While entries of the TX ring can be sent, a wakeup makes the driver take some within 10 ms of "
    "its return, and no poll completes leaving some without need_wakeup set, unless an interrupt of frames under way "
    "lets the driver take some within 10 ms.",
    sources=[_AF_XDP, "net/xdp/xsk.c, xsk_tx_peek_release_desc_batch()", "2764ab51d5f0 (stmmac)"],
    needs="a zero-copy socket with entries in its TX ring, room in its COMPLETION ring, 16 free descriptors, "
    "the link up, and a wakeup (sendto()) or a poll that served the TX ring",
    exceptions=[
        "waits cut short by a step that makes the driver start anew, by the link or by the end of the trace",
        "gro_flush_timeout, which may keep the interrupt masked, is added to the limit",
        "descriptors that frames of the stack may hold count as taken, and those of XDP_TX for ever",
    ],
    unit="wakeups and polls",
)
def tx_liveness(trace: Trace) -> Finding:
    """Count the wakeups nobody answered, and the polls that forgot what they could have sent."""
    if not trace.zero_copy or trace.generic_xdp:
        return not_exercised("the socket is not zero copy")
    kicks, late = _kicks(trace)
    idle, forgotten = _abandoned(trace)
    if not kicks + idle:
        return not_exercised("no wakeup and no poll met entries that could be sent")
    if not len(late) + len(forgotten):
        return hold(f"{kicks} wakeups were answered; {idle} polls left entries and will come back")
    return violated(
        f"of {kicks} wakeups {len(late)} made the driver take nothing within the limit; "
        f"{len(forgotten)} polls completed and forgot entries that could be sent",
        observed=len(late) + len(forgotten),
        events=[*late, *forgotten],
    )


def _kicks(trace: Trace) -> tuple[int, list[int]]:
    """Return how many wakeups with something to send were decided, and the rows of those not answered."""
    limit_ns = wakeup_limit_ns(trace)
    begins, returns = wakeups(trace, StepKind.TX_KICK, StepKind.WAKEUP_TX)
    asking = could_send(trace, begins)
    begins, returns = begins[asking], returns[asking]
    if limit_ns is None or not len(begins):
        return 0, []
    taken = entries_taken(trace)
    disturbing = disturbances(trace)
    answers = [
        answer(trace, int(row), taken, limit_ns, disturbing, int(returned))
        for row, returned in zip(begins, returns, strict=True)
    ]
    late = [int(row) for row, said in zip(begins, answers, strict=True) if said is Answer.LATE]
    return sum(said is not Answer.UNDECIDED for said in answers), late


def _abandoned(trace: Trace) -> tuple[int, list[int]]:
    """Return how many polls completed leaving entries that could be sent, and the rows of those that did so
    without a way back.
    """
    polls = trace.polls
    left = _last_serving(trace)
    chosen = np.flatnonzero((left >= 0) & (polls.completes > 0) & ~polls.reconfigured)
    # What user space submitted behind the driver's last look is for its next wakeup.
    chosen = chosen[could_send(trace, left[chosen] + 1)]
    idle = len(chosen)
    if trace.flag("need_wakeup"):
        chosen = chosen[need_wakeup_at(trace, Ring.TX, polls.row[chosen]) == 0]
    silent = outstanding(trace, left[chosen] + 1) == 0
    rows = polls.row[chosen]
    return idle, [int(row) for row, lost in zip(rows, silent | _late(trace, rows), strict=True) if lost]


def _late(trace: Trace, rows: Rows) -> npt.NDArray[np.bool_]:
    """Say for each row whether the driver took nothing within the limit behind it, whatever was to bring it back."""
    limit_ns = wakeup_limit_ns(trace)
    if limit_ns is None:
        return np.zeros(rows.shape, dtype=np.bool_)
    taken, disturbing = entries_taken(trace), disturbances(trace)
    answers = [answer(trace, int(row), taken, limit_ns, disturbing) for row in rows]
    return np.array([said is Answer.LATE for said in answers], dtype=np.bool_)


def could_send(trace: Trace, rows: Rows) -> npt.NDArray[np.bool_]:
    """Say for each row whether there were entries to send, room for them in the NIC's ring, and a link."""
    able: npt.NDArray[np.bool_] = (sendable(trace, rows) > 0) & (free_tx_slots(trace, rows) >= _FREE_SLOTS)
    carrier = trace.rows(Kind.CARRIER)
    up = np.concatenate([[True], trace.events["a"][carrier] == 1])
    able &= up[np.searchsorted(carrier, rows)]
    return able


def entries_taken(trace: Trace) -> Rows:
    """Return the rows, ascending, at which the driver took entries from the TX ring."""
    rows = trace.rows(Kind.XSK_TX_TAKEN)
    return rows[trace.field("a", rows) > 0]


def _last_serving(trace: Trace) -> Rows:
    """Return for each poll its last row that shows it serve the TX ring, or -1."""
    need = trace.rows(Kind.NEED_WAKEUP, subject=Ring.TX)
    return trace.polls.last(np.sort(np.concatenate([trace.rows(Kind.XSK_TX_TAKEN), need])))


@rule(
    "tx-need-wakeup",
    21,
    statement="A poll that served the TX ring and goes idle leaves need_wakeup set, or its NAPI is scheduled or "
    "polled again within 10 ms.",
    sources=[_AF_XDP, "include/net/xdp_sock_drv.h, xsk_set_tx_need_wakeup()"],
    needs="a zero-copy socket with need_wakeup, and a poll that served its TX ring and completed",
    exceptions=[
        "most drivers set the flag and never clear it: they promise nothing, and hold this",
        "waits cut short by a step that makes the driver start anew, by the link or by the end of the trace",
        "gro_flush_timeout is added to the limit",
    ],
    unit="polls",
)
def tx_need_wakeup(trace: Trace) -> Finding:
    """Count the polls that promised to come back, by a clear flag, and did not."""
    if not trace.zero_copy or trace.generic_xdp or not trace.flag("need_wakeup"):
        return not_exercised("the socket is not zero copy with need_wakeup")
    polls = trace.polls
    judged = np.flatnonzero((_last_serving(trace) >= 0) & (polls.completes > 0) & ~polls.reconfigured)
    clear = judged[need_wakeup_at(trace, Ring.TX, polls.row[judged]) == 0]
    decided, late = len(judged) - len(clear), []
    limit_ns = wakeup_limit_ns(trace)
    disturbing = disturbances(trace)
    for poll in clear.tolist() if limit_ns is not None else ():
        napi = int(polls.napi[poll])
        back = np.union1d(trace.rows(Kind.SCHEDULE, subject=napi), trace.rows(Kind.POLL, subject=napi))
        said = answer(trace, int(polls.row[poll]), back, limit_ns or 0, disturbing)
        decided += said is not Answer.UNDECIDED
        late += [int(polls.row[poll])] if said is Answer.LATE else []
    if not decided:
        return not_exercised("no poll that served the TX ring went idle")
    if not late:
        return hold(f"{decided} polls went idle, {len(clear)} of them with need_wakeup clear")
    return violated(
        f"{len(late)} of {decided} polls left need_wakeup clear and did not come back within the limit",
        observed=len(late),
        events=late,
    )
