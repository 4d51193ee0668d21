"""The counters of a run, each with its definition."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from testbed.scenario.program import Verdict
from testbed.trace.events import Counter, Kind, XdpStatistics
from testbed.trace.frames import FOREIGN, redirected_frames

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace.table import Trace

    Numbers = npt.NDArray[np.int64]

__all__ = ["Counters", "count"]


class _MapType(enum.IntEnum):
    """Maps other than an XSKMAP that a program redirects into: enum bpf_map_type (uapi/linux/bpf.h)."""

    DEVMAP = 14
    CPUMAP = 16
    DEVMAP_HASH = 25


class Counters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is counted in a run; "frames" are numbered frames, each counted once unless it says else.

    - frames_injected: put on the guest's wire by the host.
    - frames_on_wire: frames of any kind seen leaving the guest.
    - frames_to_driver: handed over by the driver, to our XDP program or to the stack; where neither saw one,
      the growth of rx_packets.
    - frames_to_socket: read whole and intact from the socket's RX ring.
    - frames_to_stack: passed to the stack by our XDP program, or for want of a socket, or by the driver while
      there was no program; where nothing shows a frame, the growth of rx_packets.
    - frames_refused: whose redirect failed at least once.
    - frames_dropped_by_program: dropped by our XDP program.
    - frames_lost: injected, but reached neither socket, stack nor a program's drop, transmit or redirect to
      somewhere else. A refused frame is lost, and so is one that was redirected to the socket and never read
      whole.
    - out_of_order: frames first read from the RX ring after one with a higher sequence number.
    - duplicated: frames read from the RX ring whose sequence number had been read before; each time counts.
    - tx_submitted: frames put into the TX ring; each time counts.
    - tx_sent: submitted frames seen leaving the guest.
    - tx_completed: entries taken from the COMPLETION ring.
    - polls, polls_full: NAPI polls; those among them that returned their whole budget, when that is not 0.
    - irqs: hard interrupts of the NIC's queue vectors.
    - irqs_per_1000_frames: irqs per 1,000 of frames_to_driver + tx_completed; 0 without frames.
    - redirect_errors: failed redirects of any frame; each time counts.
    - max_redirect_errors_in_poll: the most of them in one poll.
    - rx_ring_full: growth of the socket's rx_ring_full from the first reading of XDP_STATISTICS to the last;
      when there is only one reading, that one.
    - timer_fires: how often the gro_flush_timeout timer of a NAPI fired.
    - virtual_ns: from the first event to the last, by the guest's clock.
    """

    frames_injected: int
    frames_on_wire: int
    frames_to_driver: int
    frames_to_socket: int
    frames_to_stack: int
    frames_refused: int
    frames_dropped_by_program: int
    frames_lost: int
    out_of_order: int
    duplicated: int
    tx_submitted: int
    tx_sent: int
    tx_completed: int
    polls: int
    polls_full: int
    irqs: int
    irqs_per_1000_frames: float
    redirect_errors: int
    max_redirect_errors_in_poll: int
    rx_ring_full: int
    timer_fires: int
    virtual_ns: int


def count(trace: Trace, frames_on_wire: int | None = None) -> Counters:
    """Count what :class:`Counters` defines.

    :param frames_on_wire: frames of any kind seen leaving the guest; by default the numbered ones.
    """
    wire = trace.wire_sequences if trace.wire_sequences is not None else np.zeros(0, dtype=np.int64)
    received = _received(trace)
    errors = np.flatnonzero((trace.kind == Kind.REDIRECT) & (trace.events["a"] < 0))
    out_of_order, duplicated = _disorder(_sequences(trace, Kind.RX, "b", 1))
    irqs, tx_completed = len(trace.rows(Kind.IRQ)), len(trace.rows(Kind.COMPLETION))
    frames = received["frames_to_driver"] + tx_completed
    submitted = trace.field("c", trace.rows(Kind.TX))
    return Counters(
        **received,
        frames_on_wire=len(wire) if frames_on_wire is None else frames_on_wire,
        out_of_order=out_of_order,
        duplicated=duplicated,
        tx_submitted=len(submitted),
        tx_sent=int(np.isin(np.unique(submitted), wire).sum()),
        tx_completed=tx_completed,
        polls=len(trace.polls),
        polls_full=int(trace.polls.full.sum()),
        irqs=irqs,
        irqs_per_1000_frames=round(1000 * irqs / frames, 3) if frames else 0.0,
        redirect_errors=len(errors),
        max_redirect_errors_in_poll=int(trace.polls.count(errors).max(initial=0)),
        rx_ring_full=_growth(trace, Kind.XDP_STATISTICS, XdpStatistics.RX_RING_FULL),
        timer_fires=len(trace.rows(Kind.WATCHDOG)),
        virtual_ns=_span_ns(trace),
    )


def _received(trace: Trace) -> dict[str, int]:
    """Return the counters that say what became of the injected frames."""
    delivered = _sequences(trace, Kind.RX, "b", 1)
    verdicts = {action: _sequences(trace, Kind.VERDICT, "subject", action) for action in Verdict}
    redirected = redirected_frames(trace)
    elsewhere = redirected.sequence[(redirected.errno == 0) & np.isin(redirected.map_type, list(_MapType))]
    presented = trace.field("c", trace.rows(Kind.VERDICT))
    stacked = _sequences(trace, Kind.STACK_RX, "b", 1)
    unasked = stacked[~np.isin(stacked, presented)]
    passed = np.concatenate([verdicts[Verdict.PASS], redirected.socketless, unasked])
    consumed = [passed, verdicts[Verdict.DROP], verdicts[Verdict.TX], elsewhere[elsewhere != FOREIGN]]
    handed = _distinct(np.concatenate([presented, stacked]))
    unseen = 0 if handed else _growth(trace, Kind.INTERFACE, Counter.RX_PACKETS)
    reached = _distinct(np.concatenate([delivered, *consumed])) + unseen
    return {
        "frames_injected": trace.injected,
        "frames_to_driver": handed or unseen,
        "frames_to_socket": _distinct(delivered),
        "frames_to_stack": _distinct(passed) + unseen,
        "frames_refused": redirected.refused(),
        "frames_dropped_by_program": _distinct(verdicts[Verdict.DROP]),
        "frames_lost": max(0, trace.injected - reached),
    }


def _sequences(trace: Trace, kind: Kind, field: str, value: int) -> Numbers:
    """Return the sequence numbers of the rows of a kind where a field has a value, in order."""
    return trace.field("c", trace.rows(kind, **{field: value}))


def _distinct(sequences: Numbers) -> int:
    return len(np.unique(sequences))


def _disorder(delivered: Numbers) -> tuple[int, int]:
    """Return how many frames came late, and how many came again."""
    _, first = np.unique(delivered, return_index=True)
    late = delivered < np.maximum.accumulate(delivered)
    return int(late[first].sum()), len(delivered) - len(first)


def _growth(trace: Trace, kind: Kind, subject: int) -> int:
    """Return a counter's last reading minus its first; the reading itself when there is one; 0 without."""
    values = trace.field("c", trace.rows(kind, subject=subject))
    if len(values) == 1:
        return int(values[0])
    return int(values[-1] - values[0]) if len(values) else 0


def _span_ns(trace: Trace) -> int:
    times = trace.events["time_ns"][trace.kind != Kind.LOG]
    return int(times.max() - times.min()) if len(times) else 0
