"""Events as text: one line each, every number under its name."""

from __future__ import annotations

import enum
import errno
from typing import TYPE_CHECKING

from testbed.scenario.program import StepKind, Verdict
from testbed.trace.events import Counter, Flag, Kind, Ledger, Owner, Ring, XdpStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    import numpy.typing as npt

__all__ = ["event_lines"]


class XdpAction(enum.IntEnum):
    """What an XDP program returns (enum xdp_action, include/uapi/linux/bpf.h)."""

    ABORTED = 0
    DROP = 1
    PASS = 2
    TX = 3
    REDIRECT = 4


class Intact(enum.IntEnum):
    """What the agent found in a frame it read."""

    DAMAGED = -1
    FOREIGN = 0
    INTACT = 1


class Direction(enum.IntEnum):
    """Which of a device's rings."""

    RX = 0
    TX = 1


_Field = tuple[str, str, type[enum.IntEnum] | str | None]
_ERRNO = "errno"
_STEP: _Field = ("step", "subject", None)
_CHUNK: _Field = ("chunk", "subject", None)
_SEQUENCE: _Field = ("sequence", "c", None)
_NAPI: _Field = ("napi", "subject", None)
_QUEUE: _Field = ("queue", "subject", None)
_DESCRIPTOR: _Field = ("descriptor", "a", None)
_ADDRESS: _Field = ("address", "c", None)
#: For each kind the fields that say something: name in the text, field, and the enum that names its values.
_FIELDS: dict[Kind, tuple[_Field, ...]] = {
    Kind.STEP_BEGIN: (_STEP, ("kind", "a", StepKind), ("queue", "b", None), ("operand", "c", None)),
    Kind.STEP_END: (_STEP, ("result", "a", _ERRNO), ("done", "c", None)),
    Kind.RX: (_CHUNK, ("bytes", "a", None), ("frame", "b", Intact), _SEQUENCE),
    Kind.FILL: (_CHUNK,),
    Kind.TX: (_CHUNK, ("bytes", "a", None), _SEQUENCE),
    Kind.COMPLETION: (_CHUNK,),
    Kind.LEDGER: (_CHUNK, ("found", "a", Ledger), ("owner", "b", Owner), _SEQUENCE),
    Kind.RING: (("ring", "subject", Ring), ("producer", "a", None), ("consumer", "b", None)),
    Kind.XDP_STATISTICS: (("field", "subject", XdpStatistics), ("value", "c", None)),
    Kind.OWNERS: (("owner", "subject", Owner), ("chunks", "c", None)),
    Kind.NAPI_ID: (_NAPI,),
    Kind.INTERFACE: (("counter", "subject", Counter), ("value", "c", None)),
    Kind.IRQ: (("irq", "subject", None),),
    Kind.SCHEDULE: (_NAPI,),
    Kind.POLL: (_NAPI, ("work", "a", None), ("budget", "b", None)),
    Kind.COMPLETE: (_NAPI, ("work_done", "a", None), ("returned", "b", None)),
    Kind.WATCHDOG: (_NAPI,),
    Kind.REDIRECT: (_QUEUE, ("result", "a", _ERRNO), ("map_type", "b", None)),
    Kind.XDP_EXCEPTION: (("action", "a", XdpAction),),
    Kind.FLUSH: (),
    Kind.VERDICT: (("action", "subject", Verdict), _SEQUENCE),
    Kind.DISABLE: (_NAPI,),
    Kind.DISABLED: (_NAPI,),
    Kind.ENABLE: (_NAPI,),
    Kind.STACK_RX: (("bytes", "a", None), ("numbered", "b", None), _SEQUENCE),
    Kind.STACK_TX: (("bytes", "a", None), ("result", "b", None)),
    Kind.SKB_REAPED: (("budget", "a", None),),
    Kind.XSK_TX_TAKEN: (_QUEUE, ("descriptors", "a", None), ("asked", "b", None)),
    Kind.XSK_TX_DONE: (_QUEUE, ("descriptors", "a", None)),
    Kind.XSK_ALLOC: (_QUEUE, ("buffers", "a", None), ("asked", "b", None)),
    Kind.NEED_WAKEUP: (("ring", "subject", Ring), ("set", "a", None), ("queue", "b", None)),
    Kind.CARRIER: (("on", "a", None),),
    Kind.LOG: (("line", "subject", None),),
    Kind.RX_DONE: (_QUEUE, _DESCRIPTOR, ("bytes", "b", None), _ADDRESS),
    Kind.TX_DONE: (_QUEUE, _DESCRIPTOR, ("bytes", "b", None), _ADDRESS),
    Kind.TAIL: (_QUEUE, ("ring", "a", Direction), ("descriptor", "b", None)),
    Kind.MASK: (_QUEUE, ("before", "a", None), ("now", "b", None)),
    Kind.CAUSE: (_QUEUE, ("before", "a", None), ("now", "b", None)),
    Kind.RAISED: (("vector", "subject", None), ("sent", "a", None)),
    Kind.LINK: (("up", "a", None),),
    Kind.DROPPED: (_QUEUE, ("reason", "a", None), ("bytes", "b", None)),
    Kind.COMMAND: (),
}


def event_lines(events: npt.NDArray[np.void], rows: Iterable[int] | None = None) -> Iterator[str]:
    """Yield one line for each event: row, time since the first event, CPU, kind, named fields.

    :param rows: which rows, in this order; all by default.
    """
    start_ns = int(events["time_ns"][0]) if len(events) else 0
    for row in range(len(events)) if rows is None else rows:
        event = events[row]
        since_us = (int(event["time_ns"]) - start_ns) / 1000
        name, fields = _described(event)
        yield f"{row:>7} {since_us:>14.3f} us cpu{int(event['cpu'])} {name:<14} {fields}".rstrip()


def _described(event: np.void) -> tuple[str, str]:
    number = int(event["kind"])
    try:
        kind = Kind(number)
    except ValueError:
        return f"kind-{number}", " ".join(f"{name}={int(event[name])}" for name in ("subject", "a", "b", "c"))
    texts = [f"{name}={_named(int(event[field]), values)}" for name, field, values in _FIELDS[kind]]
    if kind == Kind.RING:
        packed = int(event["c"])
        texts += [f"entries={packed & 0xFFFFFFFF}", f"need_wakeup={packed >> 32}"]
    texts += [flag.name.lower() for flag in Flag(int(event["flags"])) if flag.name]
    return kind.name, " ".join(texts)


def _named(value: int, values: type[enum.IntEnum] | str | None) -> str:
    if values == _ERRNO:
        return f"-{errno.errorcode.get(-value, str(-value))}" if value < 0 else str(value)
    if isinstance(values, type):
        try:
            return values(value).name
        except ValueError:
            return str(value)
    return str(value)
