"""Refilling the Rx ring from the FILL ring: rules 20 and 32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.deadline import MILLISECOND_NS, Answer, answer, disturbances, wakeup_limit_ns, wakeups
from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.scenario.program import StepKind
from testbed.trace.events import Kind, Ring
from testbed.trace.handover import refills_short
from testbed.trace.pool import available, published, unused, usable
from testbed.trace.wakeups import need_wakeup_at

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["refill_recovers", "rx_need_wakeup"]

#: Drivers refill when so many descriptors are empty.
_BATCH = 16
_RECOVERY_NS = 2_500 * MILLISECOND_NS


@rule(
    "rx-need-wakeup",
    20,
    statement="A poll that goes idle without a usable Rx descriptor leaves need_wakeup of FILL set; a wakeup with "
    "buffers in FILL then makes the driver take some within 10 ms.",
    sources=[
        "Documentation/networking/af_xdp.rst, XDP_USE_NEED_WAKEUP bind flag",
        "include/net/xdp_sock_drv.h, xsk_set_rx_need_wakeup()",
        "9a91c05f4bd6 (tsnep)",
    ],
    needs="a zero-copy socket with need_wakeup, and a poll that completed with no descriptor left, or a wakeup "
    "(recvfrom()) with buffers in FILL",
    exceptions=[
        "drivers refill in batches of 16: a wakeup that meets fewer empty descriptors is not judged",
        "a refill that came short while descriptors are left: the frames that they take make the driver try again",
        "waits cut short by a step that makes the driver start anew, by the link or by the end of the trace",
        "gro_flush_timeout, which may keep the interrupt masked, is added to the limit",
        "drivers that allocate buffers one by one: their refills are not seen",
    ],
    unit="polls and wakeups",
)
def rx_need_wakeup(trace: Trace) -> Finding:
    """Count the polls that left the flag clear, and the wakeups that moved no buffer."""
    if not trace.zero_copy or trace.generic_xdp or not trace.flag("need_wakeup"):
        return not_exercised("the socket is not zero copy with need_wakeup")
    starved = _starved_polls(trace)
    silent = starved[need_wakeup_at(trace, Ring.FILL, trace.polls.row[starved]) == 0]
    woken, vain = _wakeups(trace)
    if not len(starved) + woken:
        return not_exercised("FILL never ran dry, and nobody had to wake the driver")
    if not len(silent) + len(vain):
        return hold(f"{len(starved)} starved polls set need_wakeup; {woken} wakeups moved buffers")
    return violated(
        f"{len(silent)} of {len(starved)} starved polls left need_wakeup clear; "
        f"{len(vain)} of {woken} wakeups moved no buffer",
        observed=len(silent) + len(vain),
        events=[*trace.polls.row[silent], *vain],
    )


def _starved_polls(trace: Trace) -> Rows:
    """Return the polls of the socket's NAPI that went idle and must be woken to receive again."""
    polls = trace.polls
    allocated = trace.rows(Kind.XSK_ALLOC)
    # What was allocated while NAPI was disabled belongs to no poll, though a poll may follow on its CPU.
    enabled = np.sort(np.concatenate([trace.rows(Kind.ENABLE), trace.rows(Kind.DISABLED)]))
    last, begin = polls.last(allocated), polls.last(enabled)
    serving = np.isin(polls.napi, np.unique(polls.napi[(last >= 0) & (last > begin)]))
    judged = serving & (polls.completes > 0) & polls.whole & ~polls.reconfigured & (polls.budget > 0)
    short = np.isin(last, refills_short(trace)) & (last > begin)
    left = unused(trace, polls.row)
    # Without a refill since a NAPI was disabled there is no pool yet, or none any more.
    tried = np.append(-1, allocated)[np.searchsorted(allocated, polls.row)]
    disabled = trace.rows(Kind.DISABLED)
    pooled = tried > np.append(-1, disabled)[np.searchsorted(disabled, polls.row)]
    starved: Rows = np.flatnonzero(judged & pooled & ((short & (left <= 0)) | (left == 0)))
    return starved


def _wakeups(trace: Trace) -> tuple[int, list[int]]:
    """Return how many wakeups with buffers for the driver were decided, and the rows of those in vain."""
    begins, returns = wakeups(trace, StepKind.WAKEUP_RX)
    asking = _refillable(trace, begins)
    begins, returns = begins[asking], returns[asking]
    limit_ns = wakeup_limit_ns(trace)
    if limit_ns is None:
        return 0, []
    moved, disturbing = _moved(trace), disturbances(trace)
    answers = [
        answer(trace, int(row), moved, limit_ns, disturbing, int(returned))
        for row, returned in zip(begins, returns, strict=True)
    ]
    vain = [int(row) for row, said in zip(begins, answers, strict=True) if said is Answer.LATE]
    return sum(said is not Answer.UNDECIDED for said in answers), vain


def _refillable(trace: Trace, rows: Rows) -> npt.NDArray[np.bool_]:
    """Say at which rows a driver has both empty descriptors enough for a batch and buffers to get."""
    on_nic = usable(trace, rows)
    empty = (trace.number("rx_ring") or 0) - 1 - on_nic
    able: npt.NDArray[np.bool_] = (on_nic >= 0) & (empty >= _BATCH) & (available(trace, rows) > 0)
    return able


def _moved(trace: Trace) -> Rows:
    """Return the rows at which the driver got buffers from the pool."""
    rows = trace.rows(Kind.XSK_ALLOC)
    moved: Rows = rows[trace.events["a"][rows] > 0]
    return moved


@rule(
    "refill-recovers",
    32,
    statement="Once there are buffers again after a refill that came short, the driver takes some within 2.5 s, "
    "without a frame that comes in.",
    sources=["0bb05e6adfa9", "include/net/xdp_sock_drv.h, xsk_set_rx_need_wakeup()"],
    needs="a zero-copy socket, a refill that came short, and buffers put into FILL afterwards",
    exceptions=[
        "a driver that asks for a wakeup has until 2.5 s after it; without a wakeup it is not judged",
        "drivers refill in batches of 16: one that has fewer empty descriptors is not judged",
        "waits cut short by frames that come in, by a step that makes the driver start anew, by the link or by the end",
    ],
    unit="refills",
)
def refill_recovers(trace: Trace) -> Finding:
    """Count the refills that nobody made up for."""
    if not trace.zero_copy or trace.generic_xdp:
        return not_exercised("the socket is not zero copy")
    bursts = [int(row) for step, _ in trace.bursts for row in trace.rows(Kind.STEP_BEGIN, subject=step)[:1]]
    disturbing = np.sort(np.concatenate([disturbances(trace), np.array(bursts, dtype=np.intp)]))
    moved = _moved(trace)
    met, late = 0, list[int]()
    for row in _refills_due(trace):
        until = int(np.append(disturbing, len(trace.events))[np.searchsorted(disturbing, row, side="right")])
        said = answer(trace, row, moved[moved < until], _RECOVERY_NS, disturbing)
        met += said is Answer.IN_TIME
        late += [row] if said is Answer.LATE else []
    if not met and not late:
        return not_exercised("no refill came short and could be made up for")
    if not late:
        return hold(f"{met} refills that came short were made up for")
    return violated(
        f"{len(late)} of {met + len(late)} refills that came short were not made up for within 2.5 s",
        observed=len(late),
        events=late,
    )


def _refills_due(trace: Trace) -> list[int]:
    """Return the rows from which on a driver whose last refill came short can and must make up for it."""
    given = np.unique(published(trace, Kind.FILL, StepKind.FILL))
    tried = trace.rows(Kind.XSK_ALLOC)
    last = np.append(tried, -1)[np.searchsorted(tried, given) - 1]
    given = given[np.isin(last, refills_short(trace)) & _refillable(trace, given + 1)]
    if not trace.flag("need_wakeup"):
        return [int(row) for row in given]
    asked = need_wakeup_at(trace, Ring.FILL, given) > 0
    woken = wakeups(trace, StepKind.WAKEUP_RX)[0].tolist()
    due = [int(row) for row in given[~asked]]
    for row in given[asked].tolist():
        due += [wakeup for wakeup in woken if wakeup > row][:1]
    return sorted(set(due))
