"""What becomes of a frame that the RX ring refused: rule 23."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.policy import policy_of
from testbed.rules.registry import rule
from testbed.trace.events import Kind
from testbed.trace.frames import FOREIGN, redirected_frames
from testbed.trace.handover import handed_over, sequences_of
from testbed.trace.pool import available

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["refused_frame_fate"]

#: From this kernel on the core frees the buffer of a frame that it refuses.
_CORE_FREES = (6, 8)


@rule(
    "refused-frame-fate",
    23,
    statement="A frame that the RX ring refused is dropped and its buffer comes back to the pool; before 6.8 "
    "a zero-copy driver that leaves its poll for it offers the same frame again.",
    sources=[
        "269009893146 (xsk: the core frees the buffer of a refused frame; in 6.8)",
        "net/xdp/xsk.c, xsk_rcv_zc()",
        "testbed/rules/policy.toml: who offers a frame again before 6.8",
    ],
    needs="a numbered frame refused with -ENOBUFS, and a frame or a refill behind it",
    exceptions=[
        "copy mode and generic XDP: the frame is dropped by any kernel",
        "before 6.8, other drivers than those of the policy: not judged",
        "that a buffer does not come back twice is rule 24's",
    ],
    unit="frames",
)
def refused_frame_fate(trace: Trace) -> Finding:
    """Count the refused frames that met another fate than the kernel at hand has for them."""
    redirected = redirected_frames(trace)
    refused = (redirected.errno == -errno.ENOBUFS) & (redirected.sequence != FOREIGN)
    if not refused.any():
        return not_exercised("the RX ring refused no numbered frame")
    rows, sequences = redirected.row[refused], redirected.sequence[refused]
    following = _following(trace, rows)
    if trace.zero_copy and not trace.generic_xdp and trace.kernel < _CORE_FREES:
        return _offered_again(trace, rows, sequences, following)
    return _dropped(trace, rows, sequences, following)


def _following(trace: Trace, rows: Rows) -> Rows:
    """Return for each row the next hand-over of its NAPI in a later poll, or -1."""
    polls = trace.polls
    frames = handed_over(trace)
    frames = frames[polls.owner[frames] >= 0]
    found = np.full(len(rows), -1, dtype=np.intp)
    own = polls.owner[rows]
    for napi in np.unique(polls.napi[own[own >= 0]]):
        ours = np.append(frames[polls.napi[polls.owner[frames]] == napi], -1)
        asked = (own >= 0) & (polls.napi[own] == napi)
        found[asked] = ours[np.searchsorted(polls.owner[ours[:-1]], own[asked], side="right")]
    return found


def _offered_again(trace: Trace, rows: Rows, sequences: npt.NDArray[np.int64], following: Rows) -> Finding:
    """Judge kernels before 6.8: the next frame is the refused one."""
    if trace.driver not in policy_of("refused-frame-fate").required:
        return not_exercised(
            f"before 6.8 {trace.driver or 'this driver'} may drop a refused frame or offer it again"
        )
    judged = following >= 0
    if not judged.any():
        return not_exercised("no frame came behind a refused one")
    bad = judged & (sequences_of(trace, following.clip(min=0)) != sequences)
    if not bad.any():
        return hold(f"{int(judged.sum())} refused frames were offered again")
    return violated(
        f"{int(bad.sum())} of {int(judged.sum())} refused frames were not offered again",
        observed=int(bad.sum()),
        events=[*rows[bad], *following[bad]],
    )


def _dropped(trace: Trace, rows: Rows, sequences: npt.NDArray[np.int64], following: Rows) -> Finding:
    """Judge what drops: no refused frame comes again, and the pool gets its buffers back."""
    frames = handed_over(trace)
    offered = sequences_of(trace, frames)
    last = {int(sequence): int(row) for sequence, row in zip(offered, frames, strict=True)}
    again = np.array([last.get(int(sequence), -1) for sequence in sequences], dtype=np.intp)
    bad = again > rows
    dry = _leaks(trace, int(rows[0]))
    if not bad.any() and not len(dry):
        if not (following >= 0).any():
            return not_exercised("no frame came behind a refused one")
        return hold(f"{len(rows)} refused frames were dropped")
    return violated(
        f"{int(bad.sum())} of {len(rows)} refused frames were offered again; "
        f"{len(dry)} refills got nothing although buffers must have come back",
        observed=int(bad.sum()) + len(dry),
        events=[*rows[bad][:8], *again[bad][:8], *dry],
    )


def _leaks(trace: Trace, since: int) -> Rows:
    """Return the refills that got nothing from a pool which the driver's own moves left something in."""
    if not trace.zero_copy or trace.generic_xdp:
        return trace.rows(Kind.XSK_ALLOC)[:0]
    rows = trace.rows(Kind.XSK_ALLOC, a=0)
    rows = rows[(rows > since) & (trace.events["b"][rows] > 0)]
    rows = rows[trace.polls.owner[rows] >= 0]
    leaked: Rows = rows[available(trace, rows) > 0]
    return leaked
