"""What a device model records, and the row it is kept in: the device's half of a trace.

Guest and device write separate tables. Each row of this one says behind which row of the guest's it belongs.
"""

from __future__ import annotations

import enum
import struct

__all__ = ["ROW", "DeviceEvent"]

ROW = struct.Struct("<QIHHIIQ")
"""One row: time_ns of the model's clock, after (guest events written before this one), kind, queue, a, b, c."""


class DeviceEvent(enum.IntEnum):
    """What the device did or was told; the comment says what ``queue``, ``a``, ``b`` and ``c`` hold."""

    RX_DONE = 96  # queue; index of the descriptor; bytes written, or 0; address of the buffer
    TX_DONE = 97  # queue; index of the descriptor; bytes sent, or 0; address of the buffer
    TAIL = 98  # queue; 0 Rx, 1 Tx; index the driver named; value written
    MASK = 99  # queue; enabled causes before; enabled causes now
    CAUSE = 100  # queue; causes before; causes now
    RAISED = 101  # vector, 0 for INTx; 1 sent, 0 nobody listened
    LINK = 102  # -; 1 up, 0 down
    DROPPED = 103  # queue; reason, the model's own; bytes: a frame the device could not take
    COMMAND = 104  # the device did what a `device` step asked
