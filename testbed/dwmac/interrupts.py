"""Causes and interrupts: from status and enable registers to vectors.

In the mode that dwmac-intel uses (INTM 1) each channel has a vector for completed reception and one for completed
transmission, which follow RI and TI, and everything else is told by the common vector (databook 5.10a, DMA_Mode).
In mode 0 there is only the common one, as a message or as the level of INTA.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from testbed.dwmac.registers import CHANNELS, channel
from testbed.vfio_user import DeviceEvent

if TYPE_CHECKING:
    import array

    from testbed.vfio_user import Host

__all__ = ["COMMON_VECTOR", "Cause", "Interrupts", "vector_of"]

COMMON_VECTOR = 29  # where dwmac-intel expects it (msi_mac_vec)
_MODE = 0x1000 >> 2
_MAC_STATUS, _MAC_ENABLE = 0xB0 >> 2, 0xB4 >> 2
_QUEUE_STATUS = 0xC20 >> 2


class Cause(enum.IntFlag):
    """The bits of DMA_CHi_Status that cause interrupts; those of DMA_CHi_Interrupt_Enable lie at the same places."""

    TI = 1 << 0
    TPS = 1 << 1
    TBU = 1 << 2
    RI = 1 << 6
    RBU = 1 << 7
    RPS = 1 << 8
    RWT = 1 << 9
    ETI = 1 << 10
    ERI = 1 << 11
    FBE = 1 << 12
    CDE = 1 << 13
    AIS = 1 << 14
    NIS = 1 << 15


NORMAL = int(Cause.TI | Cause.TBU | Cause.RI | Cause.ERI)
ABNORMAL = int(Cause.TPS | Cause.RBU | Cause.RPS | Cause.RWT | Cause.ETI | Cause.FBE | Cause.CDE)
ALL = 0x3FFFFF
_TI, _RI, _NIS, _AIS = (int(cause) for cause in (Cause.TI, Cause.RI, Cause.NIS, Cause.AIS))


def vector_of(number: int, cause: int) -> int:
    """Return the vector of a channel for RI or TI."""
    return 2 * number + (1 if cause == _TI else 0)


class Interrupts:
    """What the device tells the guest, and when it may.

    :param words: the register file; the status and enable registers in it are the state.
    """

    def __init__(self, host: Host, words: array.array[int]) -> None:
        self._host = host
        self._words = words
        self.held = False
        self.reset()

    def reset(self) -> None:
        """Forget what was told; the registers are reset by their owner."""
        self._high: set[int] = set()  # vectors whose level is high

    # What happens to a channel's registers

    def cause(self, number: int, bits: int) -> None:
        """Set causes of a channel."""
        self._change(number, self._words[_status(number)] | bits)

    def clear(self, number: int, bits: int) -> None:
        """Clear causes of a channel, as the guest does by writing ones."""
        self._change(number, self._words[_status(number)] & ~bits & ALL)
        if self._common_level() and COMMON_VECTOR in self._high:
            self._tell(COMMON_VECTOR)  # a message says once what a level says for as long as it lasts

    def enable(self, number: int, before: int, now: int) -> None:
        """Follow a change of the enable register, which holds ``now`` already."""
        self._host.record(DeviceEvent.MASK, number, before, now)
        status = self._words[_status(number)]
        self._words[_status(number)] = status | _summary(status & now & ~before)
        self.update(number)

    def _change(self, number: int, status: int) -> None:
        at = _status(number)
        before, enabled = self._words[at], self._words[at - 11]
        status |= _summary(status & ~before & enabled)
        if status == before:
            return
        self._words[at] = status
        self._host.record(DeviceEvent.CAUSE, number, before, status)
        self.update(number)

    # From registers to vectors

    def update(self, number: int) -> None:
        """Bring a channel's vectors up to date, and the common one."""
        pending = self._pending(number)
        if self._words[_MODE] & 0x30000:
            self._set_level(2 * number, high=bool(pending & _RI))
            self._set_level(2 * number + 1, high=bool(pending & _TI))
        self.update_common()

    def update_common(self) -> None:
        """Bring the common vector up to date."""
        high = self._common_level()
        self._set_level(COMMON_VECTOR, high=high)
        if self._host.interrupts == "intx":
            self._host.level(high=high and not self.held)

    def summary(self) -> int:
        """Return DMA_Interrupt_Status: which channels, the MTL and the MAC have something to say."""
        value = sum(1 << number for number in range(CHANNELS) if self._pending(number))
        return value | bool(self._words[_QUEUE_STATUS]) << 16 | bool(self._mac()) << 17

    def spurious(self, vector: int) -> None:
        """Send an interrupt that has no cause."""
        self._send(vector)

    def hold(self) -> None:
        """Tell the guest nothing until :meth:`release`."""
        self.held = True
        if self._host.interrupts == "intx":
            self._host.level(high=False)

    def release(self) -> None:
        """Tell what is still to be told."""
        self.held = False
        for vector in sorted(self._high):
            self._tell(vector)
        if self._host.interrupts == "intx":
            self._host.level(high=self._common_level())

    def _pending(self, number: int) -> int:
        at = _status(number)
        enabled = self._words[at - 11]
        pending = self._words[at] & enabled
        if not enabled & _NIS:
            pending &= ~NORMAL
        if not enabled & _AIS:
            pending &= ~ABNORMAL
        return pending & (NORMAL | ABNORMAL)

    def _mac(self) -> int:
        return self._words[_MAC_STATUS] & self._words[_MAC_ENABLE]

    def _common_level(self) -> bool:
        own = _TI | _RI if self._words[_MODE] & 0x30000 else 0
        channels = any(self._pending(number) & ~own for number in range(CHANNELS))
        return bool(channels or self._mac() or self._words[_QUEUE_STATUS])

    def _set_level(self, vector: int, *, high: bool) -> None:
        if high and vector not in self._high:
            self._high.add(vector)
            self._tell(vector)
        elif not high:
            self._high.discard(vector)

    def _tell(self, vector: int) -> None:
        if not self.held:
            self._send(vector)

    def _send(self, vector: int) -> None:
        kind = self._host.interrupts
        if kind in {"msi", "msix"}:
            self._host.interrupt(0 if kind == "msi" else vector)  # of MSI there is one, for everything

    # Snapshots

    def save(self) -> list[int]:
        """Return which vectors are high."""
        return sorted(self._high)

    def load(self, high: list[int]) -> None:
        """Go on from what :meth:`save` returned."""
        self._high = set(high)


def _status(number: int) -> int:
    return (channel(number) + 0x60) >> 2


def _summary(fresh: int) -> int:
    """Return the summary bits that newly pending causes set; a summary stays until the guest clears it."""
    return (_NIS if fresh & NORMAL else 0) | (_AIS if fresh & ABNORMAL else 0)
