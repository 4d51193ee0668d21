"""One line of a trace, and what its numbers mean; the C side is images/agent/protocol.h.

An event table is a numpy structured array of :data:`EVENT`, shape ``(n,)``. The order of its rows is the
order in time over all CPUs, because observer and agent take their place in it from one counter in the guest.
"""

from __future__ import annotations

import enum

import numpy as np

from testbed.vfio_user.events import DeviceEvent

__all__ = ["EVENT", "Counter", "Flag", "Kind", "Ledger", "Owner", "Ring", "XdpStatistics"]

EVENT = np.dtype(
    [
        ("time_ns", "<u8"),
        ("kind", "<u2"),
        ("cpu", "u1"),
        ("flags", "u1"),
        ("subject", "<u4"),
        ("a", "<i4"),
        ("b", "<i4"),
        ("c", "<u8"),
    ]
)


class Kind(enum.IntEnum):
    """What happened; the comment says what ``subject``, ``a``, ``b`` and ``c`` hold."""

    STEP_BEGIN = 1  # step; kind; queue; count or operand
    STEP_END = 2  # step; 0 or -errno; -; frames, entries or bytes done
    RX = 3  # chunk; bytes; 1 numbered and intact, 0 foreign, -1 damaged; sequence
    FILL = 4  # chunk posted to FILL
    TX = 5  # chunk submitted; bytes; -; sequence
    COMPLETION = 6  # chunk taken from COMPLETION
    LEDGER = 7  # chunk; Ledger; Owner before; sequence
    RING = 8  # Ring; producer; consumer; entries | need_wakeup << 32
    XDP_STATISTICS = 9  # XdpStatistics; -; -; value
    OWNERS = 10  # Owner; -; -; chunks
    INTERFACE = 11  # Counter; -; -; value
    NAPI_ID = 12  # what a socket that polls busily would poll; 0: nothing
    IRQ = 32  # irq of a queue vector
    SCHEDULE = 33  # napi_id
    POLL = 34  # napi_id; work; budget; written when the poll returned
    COMPLETE = 35  # napi_id; work_done; returned
    WATCHDOG = 36  # napi_id: the gro_flush_timeout timer fired
    REDIRECT = 37  # queue index in the map; errno (0 or negative); map type
    XDP_EXCEPTION = 38  # -; XDP action
    FLUSH = 39  # xdp_do_flush()
    VERDICT = 40  # XDP action of our program for a numbered frame; -; -; sequence
    DISABLE = 41  # napi_id; napi_disable() was called
    DISABLED = 42  # napi_id; and returned
    ENABLE = 43  # napi_id; napi_enable()
    STACK_RX = 44  # -; bytes; 1 numbered; sequence: the driver handed a frame to the stack
    STACK_TX = 45  # -; bytes; result of the driver's transmit function (0: taken)
    SKB_REAPED = 46  # -; budget: a sent frame of the stack was cleaned up
    XSK_TX_TAKEN = 47  # queue; descriptors the driver took from TX; most it asked for
    XSK_TX_DONE = 48  # queue; descriptors the driver reported sent
    XSK_ALLOC = 49  # queue; buffers the driver got from the pool; asked for
    NEED_WAKEUP = 50  # Ring (FILL or TX); 1 set, 0 cleared; queue
    CARRIER = 51  # -; 1 on, 0 off
    LOG = 64  # line of the kernel log that is a splat
    # From here on what the device did, as testbed/vfio_user/events.py says, with the queue as subject.
    RX_DONE = DeviceEvent.RX_DONE
    TX_DONE = DeviceEvent.TX_DONE
    TAIL = DeviceEvent.TAIL
    MASK = DeviceEvent.MASK
    CAUSE = DeviceEvent.CAUSE
    RAISED = DeviceEvent.RAISED
    LINK = DeviceEvent.LINK
    DROPPED = DeviceEvent.DROPPED
    COMMAND = DeviceEvent.COMMAND


class Flag(enum.IntFlag):
    """What the observer says of a NAPI in ``flags``."""

    MISSED = 1  # COMPLETE: it was called when the NAPI had been scheduled again, and marked so
    BUSY = 2  # POLL: in the middle of busy polling; the last poll, which ends it, has none


class Ledger(enum.IntEnum):
    """What the agent's ledger of chunks found wrong."""

    NOT_KERNELS = 1
    TWICE = 2
    OUT_OF_ORDER = 3
    DUPLICATE = 4
    CHANGED = 5
    DAMAGED = 6
    BAD_ADDRESS = 7
    SURPLUS = 8


class Owner(enum.IntEnum):
    """Where a chunk of the UMEM is, by what user space has seen."""

    USER = 0
    FILL = 1
    KERNEL = 2
    RX = 3
    TX = 4


class Ring(enum.IntEnum):
    """The four rings of an AF_XDP socket."""

    FILL = 0
    RX = 1
    TX = 2
    COMPLETION = 3


class XdpStatistics(enum.IntEnum):
    """The fields of struct xdp_statistics, in their order (include/uapi/linux/if_xdp.h)."""

    RX_DROPPED = 0
    RX_INVALID_DESCS = 1
    TX_INVALID_DESCS = 2
    RX_RING_FULL = 3
    RX_FILL_RING_EMPTY_DESCS = 4
    TX_RING_EMPTY_DESCS = 5


class Counter(enum.IntEnum):
    """Counters of the interface and of softnet that the agent reads."""

    RX_PACKETS = 0
    TX_PACKETS = 1
    RX_DROPPED = 2
    RX_MISSED = 3
    SOFTNET_DROPPED = 4
