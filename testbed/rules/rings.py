"""The rings of an AF_XDP socket: rules 22 and 25."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.scenario.program import StepKind, Verdict
from testbed.trace.chunks import owned_before
from testbed.trace.events import Kind, XdpStatistics
from testbed.trace.link import link_up_at

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["completion_order", "ring_full_exit"]


@rule(
    "ring-full-exit",
    22,
    statement="When the AF_XDP RX ring refuses a frame, a zero-copy driver leaves its poll at once: the "
    "refused frame is the last one which that poll takes from that queue.",
    sources=[
        "c7dd09fd4628 (ice), b8aef650e549 (i40e), 50ae06648073 (ixgbe)",
        "net/xdp/xsk.c, xsk_rcv_zc(): -ENOBUFS",
        "Documentation/networking/af_xdp.rst, XDP_USE_NEED_WAKEUP",
    ],
    needs="a redirect refused with -ENOBUFS in a poll of a zero-copy socket that uses need_wakeup",
    exceptions=[
        "copy mode and generic XDP",
        "sockets without need_wakeup: nobody would tell the driver to come back",
        "other queues served by the same poll",
    ],
    unit="frames",
)
def ring_full_exit(trace: Trace) -> Finding:
    """Count the frames a poll takes from a queue, from the first refused one on."""
    if not trace.zero_copy or trace.generic_xdp or not trace.flag("need_wakeup"):
        return not_exercised("the socket is not zero copy with need_wakeup")
    redirects = trace.rows(Kind.REDIRECT)
    redirects = redirects[trace.polls.owner[redirects] >= 0]
    refused = redirects[trace.events["a"][redirects] == -errno.ENOBUFS]
    if not len(refused):
        return not_exercised("the RX ring refused no frame")
    keys, first = np.unique(_poll_and_queue(trace, refused), return_index=True)
    taken = _taken_since(trace, redirects, keys, refused[first])
    most = int(taken.max())
    bad = np.flatnonzero(taken > 1)
    refusals = int(trace.polls.count(refused).max())
    if not len(bad):
        return hold(f"{len(keys)} polls met a full ring and left at once", observed=most, limit=1)
    return violated(
        f"{len(bad)} of {len(keys)} polls that met a full ring went on, "
        f"with up to {refusals} failed redirects in a poll",
        observed=most,
        limit=1,
        events=_worst_poll(trace, refused, int(keys[np.argmax(taken)])),
    )


def _poll_and_queue(trace: Trace, rows: Rows) -> npt.NDArray[np.int64]:
    """Return a number for each row that stands for its poll and queue; ascending with the poll."""
    return (trace.polls.owner[rows].astype(np.int64) << 32) | trace.field("subject", rows)


def _taken_since(
    trace: Trace, redirects: Rows, keys: npt.NDArray[np.int64], refusal: Rows
) -> npt.NDArray[np.int64]:
    """Return for each poll and queue how many frames were taken, from the refusal on.

    Frames that our program did not redirect say no queue, so they count where a poll has met only one queue.

    :param keys: what :func:`_poll_and_queue` says of the refusals, ascending.
    :param refusal: the first refusal of each.
    """
    taken = np.zeros(len(keys), dtype=np.int64)
    found = np.searchsorted(keys, _poll_and_queue(trace, redirects)).clip(max=len(keys) - 1)
    ours = (keys[found] == _poll_and_queue(trace, redirects)) & (redirects >= refusal[found])
    taken += np.bincount(found[ours], minlength=len(keys))
    others = trace.rows(Kind.VERDICT)
    others = others[trace.events["subject"][others] != Verdict.REDIRECT]
    queues = np.bincount(np.unique(_poll_and_queue(trace, redirects)) >> 32, minlength=len(trace.polls))
    for index, (key, row) in enumerate(zip(keys, refusal, strict=True)):
        if len(others) and queues[key >> 32] == 1:
            taken[index] += int(((others > row) & (trace.polls.owner[others] == key >> 32)).sum())
    return taken


def _worst_poll(trace: Trace, refused: Rows, key: int) -> Rows:
    """Return the refusals of the poll that took most, and its POLL."""
    poll = key >> 32
    return np.append(refused[trace.polls.owner[refused] == poll][:8], trace.polls.row[poll])


@rule(
    "completion-order",
    25,
    statement="The COMPLETION ring returns the chunks of the TX ring in their order, after they were sent.",
    sources=[
        "Documentation/networking/af_xdp.rst, UMEM Completion Ring",
        "net/xdp/xsk.c, xsk_tx_completed()",
    ],
    needs="two entries taken from the COMPLETION ring",
    exceptions=[
        "copy mode and generic XDP: each completed chunk was submitted, in any order",
        "descriptors the kernel found invalid (tx_invalid_descs) are never completed",
        "what was sent is known only while the wire was watched and the guest lived to the end",
        "frames submitted without a link, or shortly before its loss was found, may be thrown away by the NIC",
    ],
    unit="entries",
)
def completion_order(trace: Trace) -> Finding:
    """Count the completions that came out of turn or whose frame never left the guest."""
    completions = trace.rows(Kind.COMPLETION)
    if len(completions) < 2:
        return not_exercised("fewer than two frames were completed")
    submitted = owned_before(trace, completions, (Kind.TX, Kind.COMPLETION), Kind.TX)
    misplaced = completions[submitted < 0]
    if trace.zero_copy and not trace.generic_xdp:
        misplaced = np.union1d(misplaced, _out_of_turn(trace, completions))
    unsent = completions[:0]
    if trace.wire_sequences is not None and trace.alive:
        known = submitted >= 0
        sequences = trace.field("c", submitted[known])
        linked = link_up_at(trace, submitted[known])
        unsent = completions[known][~np.isin(sequences, trace.wire_sequences) & linked]
    bad = np.union1d(misplaced, unsent)
    total = len(completions)
    if not len(bad):
        return hold(f"{total} frames sent and completed in turn")
    return violated(
        f"of {total} completed frames {len(misplaced)} came out of turn, {len(unsent)} never left the guest",
        observed=len(bad),
        events=bad,
    )


def _out_of_turn(trace: Trace, completions: Rows) -> Rows:
    """Return the completions that are not next in the order of the TX ring, socket by socket."""
    invalid = trace.rows(Kind.XDP_STATISTICS, subject=XdpStatistics.TX_INVALID_DESCS)
    gaps = int(trace.field("c", invalid).max(initial=0))
    binds = trace.rows(Kind.STEP_BEGIN, a=StepKind.BIND)
    submissions = trace.rows(Kind.TX)
    bad = []
    for socket in range(len(binds) + 1):
        done = completions[np.searchsorted(binds, completions) == socket]
        sent = submissions[np.searchsorted(binds, submissions) == socket]
        bad.append(done[_not_next(trace.field("subject", done), trace.field("subject", sent), gaps)])
    return np.concatenate(bad)


def _not_next(done: npt.NDArray[np.int64], sent: npt.NDArray[np.int64], gaps: int) -> npt.NDArray[np.bool_]:
    """Say which members of ``done`` do not follow ``sent``, of which up to ``gaps`` may be left out."""
    bad = np.ones(len(done), dtype=np.bool_)
    common = min(len(done), len(sent))
    bad[:common] = done[:common] != sent[:common]
    if not gaps or not bad.any():
        return bad
    at = 0
    for index, chunk in enumerate(done):
        ahead = np.flatnonzero(sent[at : at + gaps + 1] == chunk)
        bad[index] = not len(ahead)
        if len(ahead):
            gaps -= int(ahead[0])
            at += int(ahead[0]) + 1
    return bad
