"""The PTP clock: system time that runs at a rate the guest sets (IEEE 1588)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.dwmac.registers import Bits

if TYPE_CHECKING:
    import array

    from testbed.vfio_user import Host

__all__ = ["CLOCK_HZ", "Clock"]

CLOCK_HZ = 204_800_000  # of the core, and so of the counter behind the clock
SECOND_NS = 1_000_000_000
_CONTROL, _INCREMENT, _ADDEND = 0xB00 >> 2, 0xB04 >> 2, 0xB18 >> 2
_SECONDS, _NANOSECONDS = 0xB10 >> 2, 0xB14 >> 2
_BINARY_UNIT = 1 << 31  # of a second, when the fraction is not counted in nanoseconds


class Clock:
    """System time, derived from the host's clock and the registers.

    :param words: the register file.
    """

    def __init__(self, host: Host, words: array.array[int]) -> None:
        self._host = host
        self._words = words
        self.reset()

    def reset(self) -> None:
        """Begin at 0."""
        self._base_ns = 0  # system time at ...
        self._since_ns = self._host.now_ns()  # ... this host time

    @property
    def enabled(self) -> bool:
        """Whether timestamps are taken."""
        return bool(self._words[_CONTROL] & Bits.TIME_ENA)

    def now(self) -> tuple[int, int]:
        """Return seconds and the fraction in the unit that the guest has chosen."""
        seconds, left_ns = divmod(self._now_ns(), SECOND_NS)
        return seconds & 0xFFFFFFFF, left_ns if self._decimal else left_ns * _BINARY_UNIT // SECOND_NS

    def control(self, asked: int) -> None:
        """Do what a write to MAC_Timestamp_Control asks; the other registers are written before."""
        seconds, fraction = self._words[_SECONDS], self._words[_NANOSECONDS]
        subtract, fraction = fraction >> 31, fraction & 0x7FFFFFFF
        if asked & Bits.TIME_INIT:
            self.rebase(seconds * SECOND_NS + self._to_ns(fraction))
        elif asked & Bits.TIME_UPDT:
            self.rebase(self._now_ns() + self._update(seconds, fraction, subtract=bool(subtract)))

    def rebase(self, system_ns: int | None = None) -> None:
        """Go on from a time, the present one by default; to be called before the rate changes."""
        self._base_ns = (self._now_ns() if system_ns is None else system_ns) % (SECOND_NS << 32)
        self._since_ns = self._host.now_ns()

    def _update(self, seconds: int, fraction: int, *, subtract: bool) -> int:
        if not subtract:
            return seconds * SECOND_NS + self._to_ns(fraction)
        # The guest writes two complements: 2^32 - seconds, and one second less the fraction.
        whole = SECOND_NS if self._decimal else _BINARY_UNIT
        return -((-seconds & 0xFFFFFFFF) * SECOND_NS + self._to_ns(whole - fraction))

    def _now_ns(self) -> int:
        if not self.enabled:
            return self._base_ns
        passed = self._host.now_ns() - self._since_ns
        numerator, denominator = self._rate()
        return (self._base_ns + passed * numerator // denominator) % (SECOND_NS << 32)

    def _rate(self) -> tuple[int, int]:
        """Return how fast system time runs, as a fraction."""
        increment = self._words[_INCREMENT] >> 16 & 0xFF
        if not self._decimal:
            numerator, denominator = increment * CLOCK_HZ, _BINARY_UNIT
        else:
            numerator, denominator = increment * CLOCK_HZ, SECOND_NS
        if self._words[_CONTROL] & Bits.TIME_FINE:
            return numerator * self._words[_ADDEND], denominator << 32
        return numerator, denominator

    @property
    def _decimal(self) -> bool:
        return bool(self._words[_CONTROL] & Bits.TIME_DECIMAL)

    def _to_ns(self, fraction: int) -> int:
        return fraction if self._decimal else fraction * SECOND_NS // _BINARY_UNIT

    def save(self) -> int:
        """Return the time."""
        return self._now_ns()

    def load(self, system_ns: int) -> None:
        """Go on from a saved time."""
        self.rebase(system_ns)
