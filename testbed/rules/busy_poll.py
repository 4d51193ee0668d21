"""Busy polling, in which a socket's own calls poll the NIC: rule 17."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.deadline import wakeups
from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.rules.transmit import could_send, entries_taken
from testbed.scenario.program import StepKind
from testbed.trace.events import Flag, Kind
from testbed.trace.polls import RECONFIGURING

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["busy_poll_polls"]

_PATIENCE = 3  # calls in a row; softirq may have the NAPI during one
_SENDS = (StepKind.TX_KICK, StepKind.WAKEUP_TX)


@rule(
    "busy-poll-polls",
    17,
    statement="A socket that prefers busy polling knows the NAPI of its queue, its calls poll that with its "
    "budget, and what it sends is sent by them.",
    sources=[
        "Documentation/networking/napi.rst, Busy polling",
        "net/core/dev.c, napi_busy_loop()",
        "net/xdp/xsk.c, __xsk_sendmsg(): with a known NAPI there is no other wakeup (xsk_no_wakeup())",
        "xdp-project/bpf-examples issue 138 (stmmac)",
    ],
    needs="a socket with SO_PREFER_BUSY_POLL, and three calls of sendto() or recvfrom() in a row",
    exceptions=[
        "softirq may have the NAPI: one of three calls in a row is enough",
        "older kernels tell the socket of its NAPI when it sends or a frame comes: it has three calls for that",
        "calls between which the driver was set up anew count anew",
        "that it sends is asked of zero copy: in copy mode the call itself sends, without the NIC's NAPI",
    ],
    unit="calls",
)
def busy_poll_polls(trace: Trace) -> Finding:
    """Count the calls that end a row of three without a busy poll, or without a frame taken that could be sent, and
    the times when the socket did not know its NAPI.
    """
    budget = trace.number("busy_poll")
    if not budget:
        return not_exercised("the socket does not poll busily")
    begins, returns = wakeups(trace, StepKind.WAKEUP_RX, *_SENDS)
    if len(begins) < _PATIENCE:
        return not_exercised(f"fewer than {_PATIENCE} calls of the socket")
    polls = trace.polls
    busy = polls.row[trace.events["flags"][polls.row] & Flag.BUSY != 0]
    others = busy[trace.field("b", busy) != budget]
    unpolled = returns[_in_a_row(trace, ~_any_between(busy, begins, returns), begins)]
    stuck = _unsent(trace)
    ids = trace.rows(Kind.NAPI_ID, subject=0)
    unknown = ids[ids > begins[_PATIENCE - 1]]
    bad = len(unpolled) + len(stuck) + len(unknown) + len(others)
    if not bad:
        return hold(f"{len(begins)} calls made {len(busy)} polls of their own, with a budget of {budget}")
    return violated(
        f"of {len(begins)} calls {len(unpolled)} were the third without a poll of their own, {len(stuck)} the third "
        f"that sent nothing; {len(unknown)} times the socket knew no NAPI; {len(others)} polls had another budget",
        observed=bad,
        events=[*unpolled, *stuck, *unknown, *others],
    )


def _unsent(trace: Trace) -> Rows:
    """Return the rows of the sends that are the third in a row at which entries could be sent and none was taken."""
    if not trace.zero_copy or trace.generic_xdp:
        return np.array([], dtype=np.intp)
    begins, returns = wakeups(trace, *_SENDS)
    idle = could_send(trace, begins) & ~_any_between(entries_taken(trace), begins, returns)
    found: Rows = returns[_in_a_row(trace, idle, begins)]
    return found


def _any_between(rows: Rows, begins: Rows, ends: Rows) -> npt.NDArray[np.bool_]:
    """Say for each span of the trace whether one of ``rows`` (ascending) lies in it."""
    found: npt.NDArray[np.bool_] = np.searchsorted(rows, begins) < np.searchsorted(rows, ends)
    return found


def _in_a_row(trace: Trace, failed: npt.NDArray[np.bool_], begins: Rows) -> Rows:
    """Return the calls that failed as the third, sixth and so on in a row, with no new set-up between them."""
    setups = trace.rows(Kind.STEP_BEGIN)
    setups = setups[np.isin(trace.field("a", setups), RECONFIGURING)]
    anew = np.diff(np.searchsorted(setups, begins), prepend=0) > 0
    count, found = 0, []
    for call, (fail, again) in enumerate(zip(failed.tolist(), anew.tolist(), strict=True)):
        count = (0 if again else count) + 1 if fail else 0
        if fail and count % _PATIENCE == 0:
            found.append(call)
    return np.array(found, dtype=np.intp)
