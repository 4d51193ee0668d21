"""What the agent runs: fixed-size step records, as images/agent/protocol.h lays them out.

A program is a numpy structured array of :data:`STEP`, shape ``(n,)``, at most :data:`MAX_STEPS` long.
"""

from __future__ import annotations

import enum

import numpy as np

__all__ = ["ALL", "MAX_STEPS", "STEP", "BindFlags", "Setting", "StepKind", "Verdict", "XdpMode"]

STEP = np.dtype(
    [("kind", "<u2"), ("queue", "<u2"), ("count", "<u4"), ("a", "<u8"), ("b", "<u8"), ("c", "<u8")]
)
ALL = 0xFFFFFFFF  # count: as many as there are
MAX_STEPS = 16384


class StepKind(enum.IntEnum):
    """What a step does; the comment says what its operands hold."""

    RINGS = 1  # a: Rx, b: Tx descriptors of the NIC's rings
    UMEM = 2  # count: chunks; a: bytes of a chunk, b: FILL entries, c: COMPLETION entries
    XDP_ATTACH = 3  # a: Verdict (enum xdp_action), b: XdpMode
    XDP_DETACH = 4
    BIND = 5  # queue; a: BindFlags, b: RX entries, c: TX entries; count: budget of busy polling, 0: none
    UNBIND = 6
    FILL = 7  # count
    RX_DRAIN = 8  # count
    TX = 9  # count; a: frame bytes
    TX_KICK = 10
    COMP_DRAIN = 11  # count
    WAKEUP_RX = 12
    WAKEUP_TX = 13
    SLEEP = 14  # a: microseconds
    SET = 15  # a: Setting, b: value
    SNAPSHOT_RINGS = 16
    HOST = 17  # a barrier; a: number of the host's action; b: 1 when frames come
    MTU = 18  # a: bytes
    COALESCE = 19  # a: rx-usecs, b: tx-usecs; c: tx-frames and 1, 0: as they are; count: 1: or less
    THREADED = 20  # a: 1 when NAPI is polled by threads of its own
    STACK_SEND = 21  # count; a: frame bytes
    LOG_LINE = 22  # a, b, c: up to 24 bytes of text
    CPUS = 23  # a: the CPU of the agent, b: the CPU of the NIC's interrupts
    INTERFACE = 24  # a: 1 up, 0 down
    NETCONSOLE = 25  # a: 1 sends the kernel log over the NIC under test, 0 no longer
    FILE = 32  # count: bytes of the mailbox's payload; a, b, c: path; queue: 1 to append
    EXEC = 33  # a: 1 on the terminal, 0 with its output as messages


class BindFlags(enum.IntFlag):
    """Flags of an AF_XDP bind (include/uapi/linux/if_xdp.h)."""

    COPY = 2
    ZEROCOPY = 4
    USE_NEED_WAKEUP = 8


class Verdict(enum.IntEnum):
    """What our XDP program does with a numbered frame: enum xdp_action (include/uapi/linux/bpf.h)."""

    DROP = 1
    PASS = 2
    TX = 3
    REDIRECT = 4
    BY_FRAME = 0x100  # TB_VERDICT_BY_FRAME: what the frame's byte 30 says


class XdpMode(enum.IntEnum):
    """How the XDP program is attached."""

    NATIVE = 0
    GENERIC = 1


class Setting(enum.IntEnum):
    """Knobs in /sys/class/net that a ``set`` step turns."""

    NAPI_DEFER_HARD_IRQS = 1
    GRO_FLUSH_TIMEOUT = 2  # nanoseconds
    BYTE_QUEUE_LIMIT = 3  # bytes in flight in each Tx queue
