"""Each frame has one fate: rule 27."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.scenario.program import ALL, StepKind, Verdict
from testbed.trace.events import Kind
from testbed.trace.frames import redirected_frames
from testbed.trace.handover import handed_over
from testbed.trace.link import link_up_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]
    Numbers = npt.NDArray[np.int64]

__all__ = ["verdict_conservation"]


@dataclasses.dataclass(frozen=True)
class _Breach:
    """A kind of frame that has no fate or more than one; the rows that show it."""

    text: str
    rows: Rows


@dataclasses.dataclass(frozen=True, eq=False)
class _Fates:
    """Counts for each sequence number that the driver handed over; shape ``(s,)`` each.

    :param sequence: ascending.
    :param row: where it was handed over last.
    :param verdict: what our program said last; -1 where it was not asked.
    :param offered: how often it was handed over.
    :param stacked: how often the driver gave it to the stack.
    :param taken: how often the RX ring, or another map, took it.
    :param refused: how often it did not.
    :param read: how often the agent read it from the RX ring.
    :param ended: how often our program dropped it or sent it back.
    :param native: whether the driver ran the program, and not the stack.
    """

    sequence: Numbers
    row: Rows
    verdict: Numbers
    offered: Numbers
    stacked: Numbers
    taken: Numbers
    refused: Numbers
    read: Numbers
    ended: Numbers
    native: npt.NDArray[np.bool_]


@rule(
    "verdict-conservation",
    27,
    statement="Every frame that the driver hands over has one fate, the one our program chose: the stack, the "
    "RX ring, the wire, or its end; nothing is lost and nothing comes twice.",
    sources=["Documentation/networking/af_xdp.rst", "net/core/filter.c, xdp_do_redirect()"],
    needs="a numbered frame handed over by the driver",
    exceptions=[
        "a refused frame may be offered again (before 6.8); rule 23 says when",
        "a frame for which there was no memory stays in the Rx ring and is offered again",
        "generic XDP: what becomes of a passed frame is the stack's",
        "redirected frames must have been read only where the agent emptied the RX ring behind them",
        (
            "transmitted ones must be on the wire only where it was watched, nobody else sent numbered frames, the "
            "driver reported no exception, the link stayed up and no ring was taken down"
        ),
        "frames that arrived damaged: rule 24",
        "that memory stays flat is not seen",
    ],
    unit="frames",
)
def verdict_conservation(trace: Trace) -> Finding:
    """Count the frames whose fate is missing, doubled, or not the one that was chosen."""
    fates = _fates(trace)
    if not len(fates.sequence):
        return not_exercised("the driver handed over no numbered frame")
    breaches = [breach for breach in _breaches(trace, fates) if len(breach.rows)]
    if not breaches:
        return hold(f"{len(fates.sequence)} frames had one fate each")
    return violated(
        "; ".join(f"{breach.text}: {len(breach.rows)}" for breach in breaches),
        observed=sum(len(breach.rows) for breach in breaches),
        events=np.concatenate([breach.rows[:8] for breach in breaches]),
    )


def _fates(trace: Trace) -> _Fates:
    frames = handed_over(trace)
    frames = frames[(trace.kind[frames] == Kind.VERDICT) | (trace.events["b"][frames] == 1)]
    sequence, offered = np.unique(trace.field("c", frames), return_counts=True)
    redirected = redirected_frames(trace)
    verdicts = trace.rows(Kind.VERDICT)
    reads = [trace.rows(Kind.RX, b=1), trace.rows(Kind.RX, b=-1)]
    end = verdicts[~np.isin(trace.events["subject"][verdicts], (Verdict.REDIRECT, Verdict.PASS))]
    row, judged = _last_of(trace, sequence, frames), _last_of(trace, sequence, verdicts)
    said = trace.field("subject", judged.clip(min=0)) if len(trace.events) else sequence
    return _Fates(
        sequence=sequence,
        row=row,
        verdict=np.where(judged >= 0, said, -1),
        offered=offered.astype(np.int64),
        stacked=_times(sequence, trace.field("c", trace.rows(Kind.STACK_RX, b=1))),
        taken=_times(sequence, redirected.sequence[redirected.errno == 0]),
        refused=_times(sequence, redirected.sequence[redirected.errno < 0]),
        read=_times(sequence, trace.field("c", np.sort(np.concatenate(reads)))),
        ended=_times(sequence, trace.field("c", end)),
        native=trace.kind[row] == Kind.VERDICT,
    )


def _times(sequence: Numbers, seen: Numbers) -> Numbers:
    """Return how often each of ``sequence`` is among ``seen``."""
    seen = np.sort(seen)
    times: Numbers = np.searchsorted(seen, sequence, side="right") - np.searchsorted(seen, sequence)
    return times


def _last_of(trace: Trace, sequence: Numbers, rows: Rows) -> Rows:
    """Return the last of ``rows`` (ascending) with each sequence number, or -1."""
    last = np.full(len(sequence), -1, dtype=np.intp)
    at = np.searchsorted(sequence, trace.field("c", rows))
    known = at < len(sequence)
    known[known] = sequence[at[known]] == trace.field("c", rows[known])
    last[at[known]] = rows[known]
    return last


def _breaches(trace: Trace, fates: _Fates) -> Iterator[_Breach]:
    native, verdict = fates.native, fates.verdict
    redirect = verdict == Verdict.REDIRECT
    other = native & (fates.ended > 0) & (fates.stacked + fates.taken + fates.refused > 0)
    reached = fates.stacked * (native | (verdict < 0)) + fates.taken + fates.ended
    yield _Breach("frames with two fates", fates.row[(reached > 1) & ~other])
    missing = native & (fates.stacked + fates.taken + fates.refused == 0) & (verdict == Verdict.PASS)
    yield _Breach("passed frames that reached no stack", fates.row[missing & _gone_by(trace, fates)])
    astray = native & redirect & (fates.stacked + fates.taken + fates.refused == 0)
    yield _Breach("redirected frames that went nowhere", fates.row[astray & _gone_by(trace, fates)])
    yield _Breach("frames that went on although the program ended them", fates.row[other])
    yield _Breach(
        "frames read from the RX ring more often than it took them", fates.row[fates.read > fates.taken]
    )
    yield _Breach("frames that the RX ring took and nobody could read", _unread(trace, fates))
    yield _Breach("frames to be sent back that never left", _unsent(trace, fates))


def _gone_by(trace: Trace, fates: _Fates) -> npt.NDArray[np.bool_]:
    """Say for each frame whether the driver went on to another one behind it, in the same NAPI."""
    polls = trace.polls
    frames = handed_over(trace)
    frames = frames[polls.owner[frames] >= 0]
    latest = {
        int(napi): int(frames[polls.napi[polls.owner[frames]] == napi][-1])
        for napi in np.unique(polls.napi[polls.owner[frames]])
    }
    owner = polls.owner[fates.row]
    return np.array(
        [
            poll >= 0 and latest[int(polls.napi[poll])] > row
            for poll, row in zip(owner, fates.row, strict=True)
        ],
        dtype=np.bool_,
    )


def _unread(trace: Trace, fates: _Fates) -> Rows:
    """Return the frames taken by the RX ring before the agent emptied it, and never read whole."""
    begins = trace.rows(Kind.STEP_BEGIN, a=StepKind.RX_DRAIN)
    begins = begins[trace.events["c"][begins] == ALL]
    ends = np.append(trace.rows(Kind.STEP_END), len(trace.events))
    emptied = begins[ends[np.searchsorted(ends, begins)] < len(trace.events)]
    closed = trace.rows(Kind.STEP_BEGIN)
    closed = closed[np.isin(trace.events["a"][closed], (StepKind.BIND, StepKind.UNBIND, StepKind.UMEM))]
    unread = (fates.taken > 0) & (fates.read == 0) & fates.native
    polls = trace.polls
    owner = polls.owner[fates.row]
    unread &= owner >= 0
    ended = polls.row[owner.clip(min=0)] if len(polls) else owner
    next_emptied = np.append(emptied, len(trace.events))[np.searchsorted(emptied, ended)]
    next_closed = np.append(closed, len(trace.events))[np.searchsorted(closed, ended)]
    rows: Rows = fates.row[unread & (next_emptied < next_closed)]
    return rows


def _unsent(trace: Trace, fates: _Fates) -> Rows:
    """Return the frames that our program sent back to the wire and that were not seen there."""
    none = fates.row[:0]
    others = len(trace.rows(Kind.TX)) + len(trace.rows(Kind.STEP_BEGIN, a=StepKind.STACK_SEND))
    if trace.wire_sequences is None or not trace.alive or others or trace.generic_xdp:
        return none
    if len(trace.rows(Kind.XDP_EXCEPTION, a=Verdict.TX)):
        return none
    sent = fates.native & (fates.verdict == Verdict.TX) & ~np.isin(fates.sequence, trace.wire_sequences)
    rows: Rows = fates.row[sent & (fates.row > trace.rows(Kind.DISABLE).max(initial=-1))]
    return rows[link_up_at(trace, rows)]
