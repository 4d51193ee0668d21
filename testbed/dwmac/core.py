"""What the parts of the device share, and the test's hand on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import array

    from testbed.dwmac.clock import Clock
    from testbed.dwmac.counters import Counters
    from testbed.dwmac.filters import Filters
    from testbed.dwmac.interrupts import Interrupts
    from testbed.dwmac.phy import Phy
    from testbed.vfio_user import Host

__all__ = ["Core", "Hand", "Throttle"]


class Throttle(msgspec.Struct):
    """What a test does to one direction of one channel.

    :param credit: descriptors that may still complete, None: no limit.
    :param delay_ns: from the moment at which a descriptor would complete to that at which it does.
    :param spoiled: what is done to the next frames, one after the other.
    """

    credit: int | None = None
    delay_ns: int = 0
    spoiled: list[str] = []

    def allows(self, descriptors: int = 1) -> bool:
        """Return whether so many descriptors may complete now."""
        return self.credit is None or self.credit >= descriptors

    def spend(self, descriptors: int = 1) -> None:
        """Take away the credit of descriptors that completed."""
        if self.credit is not None:
            self.credit -= descriptors


class Hand(msgspec.Struct):
    """What a test has set for the whole device.

    :param honours_tail: whether reception stops at the tail pointer too, as the core does, or at OWN alone.
    :param unplug_after: frames, of either direction, after which the cable is pulled; None: never.
    """

    honours_tail: bool = True
    unplug_after: int | None = None


@dataclass
class Core:
    """The parts, as each sees the others."""

    host: Host
    words: array.array[int]
    interrupts: Interrupts
    counters: Counters
    clock: Clock
    phy: Phy
    filters: Filters
    hand: Hand

    def on_cable(self) -> bool:
        """Return whether a frame gets through the cable now; each asks once, and may be the last."""
        if not self.phy.link:
            return False
        if self.hand.unplug_after is not None:
            if self.hand.unplug_after <= 0:
                self.hand.unplug_after = None
                self.phy.plug(connected=False)
                return False
            self.hand.unplug_after -= 1
        return True
