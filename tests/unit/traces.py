"""A small language for traces: what happened, in order, as a reader would tell it.

Each function returns a list of events; :func:`trace_of` strings them together. Example::

    trace_of(fill(0), poll(work=1, frames=[frame(7)]), rx(0, 7))
"""

from __future__ import annotations

import errno
from typing import Any

import numpy as np

from testbed.scenario.program import StepKind, Verdict
from testbed.trace import Trace
from testbed.trace.events import EVENT, Counter, Kind, Ledger, Owner, Ring, XdpStatistics

XSKMAP = 17
DEFAULT_NAPI = 10
SKIP_NS = "skip_ns"
Event = dict[str, int]
ZERO_COPY = {"mode": "zerocopy", "need_wakeup": True}


def event(kind: Kind, *, cpu: int = 0, **fields: int) -> list[Event]:
    return [{"kind": kind, "cpu": cpu, **fields}]


def on(cpu: int, *parts: list[Event]) -> list[Event]:
    return [{**line, "cpu": cpu} for part in parts for line in part]


def interleaved(*parts: list[Event]) -> list[Event]:
    """Return the events of the parts, one of each in turn; the rest of the longer ones at the end."""
    longest = max(len(part) for part in parts)
    return [part[index] for index in range(longest) for part in parts if index < len(part)]


def verdict(sequence: int, action: Verdict = Verdict.REDIRECT) -> list[Event]:
    return event(Kind.VERDICT, subject=action, c=sequence)


def redirect(error: int = 0, queue: int = 0, map_type: int = XSKMAP) -> list[Event]:
    return event(Kind.REDIRECT, subject=queue, a=-error, b=map_type)


def frame(sequence: int, queue: int = 0) -> list[Event]:
    """A numbered frame that the socket's ring took."""
    return verdict(sequence) + redirect(queue=queue)


def refused(sequence: int, queue: int = 0) -> list[Event]:
    """A numbered frame that the socket's full ring did not take."""
    return verdict(sequence) + redirect(error=errno.ENOBUFS, queue=queue)


def frames(*sequences: int) -> list[Event]:
    return [line for sequence in sequences for line in frame(sequence)]


def irq(number: int = 30) -> list[Event]:
    return event(Kind.IRQ, subject=number)


def schedule(napi: int = DEFAULT_NAPI) -> list[Event]:
    return event(Kind.SCHEDULE, subject=napi)


def flush() -> list[Event]:
    return event(Kind.FLUSH)


def complete(work: int = 0, napi: int = DEFAULT_NAPI, *, returned: bool = True) -> list[Event]:
    return event(Kind.COMPLETE, subject=napi, a=work, b=int(returned))


def polled(work: int, budget: int = 64, napi: int = DEFAULT_NAPI) -> list[Event]:
    """A bare POLL record."""
    return event(Kind.POLL, subject=napi, a=work, b=budget)


def poll(
    *inside: list[Event], work: int, budget: int = 64, napi: int = DEFAULT_NAPI, flushed: bool = True
) -> list[Event]:
    """A poll as it should be: frames, flush, completion when short, POLL."""
    lines = [line for part in inside for line in part]
    if flushed and any(line["kind"] == Kind.REDIRECT for line in lines):
        lines += flush()
    if work < budget:
        lines += complete(work, napi)
    return lines + polled(work, budget, napi)


def fill(*chunks: int) -> list[Event]:
    return [line for chunk in chunks for line in event(Kind.FILL, subject=chunk)]


def rx(chunk: int, sequence: int, *, intact: int = 1) -> list[Event]:
    return event(Kind.RX, subject=chunk, a=64, b=intact, c=sequence)


def tx(chunk: int, sequence: int) -> list[Event]:
    return event(Kind.TX, subject=chunk, a=64, c=sequence)


def completed(*chunks: int) -> list[Event]:
    return [line for chunk in chunks for line in event(Kind.COMPLETION, subject=chunk)]


def ledger(chunk: int, found: Ledger, sequence: int = 0, owner: Owner = Owner.USER) -> list[Event]:
    return event(Kind.LEDGER, subject=chunk, a=found, b=owner, c=sequence)


def ring(which: Ring, producer: int, consumer: int) -> list[Event]:
    return event(Kind.RING, subject=which, a=producer, b=consumer, c=64)


def owners(*counts: int) -> list[Event]:
    return [
        line for owner, chunks in enumerate(counts) for line in event(Kind.OWNERS, subject=owner, c=chunks)
    ]


def statistic(which: XdpStatistics, value: int) -> list[Event]:
    return event(Kind.XDP_STATISTICS, subject=which, c=value)


def interface(which: Counter, value: int) -> list[Event]:
    return event(Kind.INTERFACE, subject=which, c=value)


def step(
    kind: StepKind, *inside: list[Event], number: int = 0, operand: int = 0, done: int = 0
) -> list[Event]:
    lines = event(Kind.STEP_BEGIN, subject=number, a=kind, c=operand)
    for part in inside:
        lines = lines + part
    return lines + event(Kind.STEP_END, subject=number, c=done)


def later(ms: float) -> list[Event]:
    """Let time pass; no row of its own."""
    return [{SKIP_NS: int(ms * 1_000_000)}]


def napi_disabled(*inside: list[Event], napi: int = DEFAULT_NAPI) -> list[Event]:
    """A driver disables NAPI, does something, and enables it."""
    lines = event(Kind.DISABLE, subject=napi) + event(Kind.DISABLED, subject=napi)
    return lines + [line for part in inside for line in part] + event(Kind.ENABLE, subject=napi)


def bound(*inside: list[Event], napi: int = DEFAULT_NAPI) -> list[Event]:
    """A new UMEM, and a zero-copy socket bound to a queue."""
    return step(StepKind.UMEM) + step(StepKind.BIND, napi_disabled(*inside, napi=napi))


def filled(*chunks: int) -> list[Event]:
    return step(StepKind.FILL, fill(*chunks), done=len(chunks))


def alloc(got: int, asked: int | None = None) -> list[Event]:
    return event(Kind.XSK_ALLOC, a=got, b=got if asked is None else asked)


def tx_taken(count: int, most: int = 64) -> list[Event]:
    return event(Kind.XSK_TX_TAKEN, a=count, b=most)


def tx_done(count: int) -> list[Event]:
    return event(Kind.XSK_TX_DONE, a=count)


def need_wakeup(which: Ring, *, wanted: bool) -> list[Event]:
    return event(Kind.NEED_WAKEUP, subject=which, a=int(wanted))


def stack_rx(sequence: int | None = None) -> list[Event]:
    """A frame that the driver gave to the stack; None: a foreign one."""
    return event(Kind.STACK_RX, a=64, b=int(sequence is not None), c=sequence or 0)


def stack_tx(result: int = 0) -> list[Event]:
    return event(Kind.STACK_TX, a=64, b=result)


def reaped(budget: int = 64) -> list[Event]:
    return event(Kind.SKB_REAPED, a=budget)


def carrier(*, on: bool) -> list[Event]:
    return event(Kind.CARRIER, a=int(on))


def watchdog(napi: int = DEFAULT_NAPI) -> list[Event]:
    """The timer of gro_flush_timeout fires, and schedules."""
    return event(Kind.WATCHDOG, subject=napi) + schedule(napi)


def times(count: int, what: list[Event]) -> list[Event]:
    return [line for _ in range(count) for line in what]


def events_of(*parts: list[Event]) -> np.ndarray[Any, np.dtype[np.void]]:
    """Return the table of these events, one microsecond apart where no more time passes."""
    lines = [line for part in parts for line in part]
    table = np.zeros(sum(SKIP_NS not in line for line in lines), dtype=EVENT)
    row, time_ns = 0, 1_000_000
    for line in lines:
        time_ns += line.get(SKIP_NS, 0)
        if SKIP_NS in line:
            continue
        table[row]["time_ns"] = time_ns
        for name, value in line.items():
            table[row][name] = value
        row, time_ns = row + 1, time_ns + 1000
    return table


def trace_of(*parts: list[Event], **facts: Any) -> Trace:
    """Return the trace of these events; ``facts`` are further parameters of :class:`Trace`."""
    return Trace(events=events_of(*parts), **facts)
