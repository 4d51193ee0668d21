"""A gigabit PHY behind MDIO, clause 22: it negotiates, and loses its link when its cable is pulled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.dwmac.registers import Bits

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Phy"]

ADDRESS = 1
_READ, _WRITE = 3, 1
_RESET, _NEGOTIATE, _POWER_DOWN, _RESTART = 1 << 15, 1 << 12, 1 << 11, 1 << 9
_CONTROL, _STATUS, _ADVERTISE, _GIGABIT = 0, 1, 4, 9
_LINK, _NEGOTIATED = 1 << 2, 1 << 5
_ABILITIES = 0x7949  # 10 and 100 Mbit/s, both duplexes, extended status and registers, negotiation
_IDENTIFIER = (0x0054, 0x4442)  # of no vendor: the kernel's generic driver takes it
_PARTNER = 0x45E1  # 10 and 100 Mbit/s, both duplexes
_PARTNER_PAUSES = 0x0C00
_PARTNER_GIGABIT = 0x3C00
_EXTENDED = 0x3000  # 1000BASE-T, both duplexes


class Phy:
    """The PHY, its cable and what the other end of that can do.

    :param changed: called when the link goes up or down.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.cable = True
        self.partner_pauses = True
        self._lost = False  # the link was down since the guest last looked: the status bit latches
        self.reset()

    def reset(self) -> None:
        """Give every register its reset value; the cable stays as it is."""
        self.control, self.advertised, self.gigabit = 0x1140, 0x01E1, 0x0300

    @property
    def link(self) -> bool:
        """Whether there is a link."""
        return self.cable and not self.control & _POWER_DOWN

    def plug(self, *, connected: bool) -> None:
        """Put the cable in or pull it."""
        before = self.link
        self.cable = connected
        self._follow(before)

    def access(self, address: int, data: int) -> int:
        """Do what MDIO_Address asks, and return what MDIO_Data then holds."""
        operation, number, at = address >> 2 & 3, address >> 16 & 31, address >> 21 & 31
        if address & Bits.MDIO_C45E or at != ADDRESS:
            return data & 0xFFFF0000 | 0xFFFF if operation == _READ else data
        if operation == _READ:
            return data & 0xFFFF0000 | self._read(number)
        if operation == _WRITE:
            self._write(number, data & 0xFFFF)
        return data

    def _read(self, number: int) -> int:
        if number == _STATUS:
            value = _ABILITIES | (_LINK if self.link and not self._lost else 0)
            self._lost = False
            return value | (_NEGOTIATED if self.link and self.control & _NEGOTIATE else 0)
        partner = _PARTNER | (_PARTNER_PAUSES if self.partner_pauses else 0) if self.link else 0
        values = {
            _CONTROL: self.control,
            2: _IDENTIFIER[0],
            3: _IDENTIFIER[1],
            _ADVERTISE: self.advertised,
            5: partner,
            6: 1 if self.link else 0,
            _GIGABIT: self.gigabit,
            10: _PARTNER_GIGABIT if self.link else 0,
            15: _EXTENDED,
        }
        return values.get(number, 0)

    def _write(self, number: int, value: int) -> None:
        before = self.link
        if number == _CONTROL:
            if value & _RESET:
                self.reset()
            else:
                self.control = value & ~_RESTART
        elif number == _ADVERTISE:
            self.advertised = value
        elif number == _GIGABIT:
            self.gigabit = value
        self._follow(before)

    def _follow(self, before: bool) -> None:  # noqa: FBT001
        if self.link != before:
            self._lost = self._lost or not self.link
            self._changed()

    def save(self) -> list[int]:
        """Return everything that :meth:`load` needs."""
        flags = (self.cable, self.partner_pauses, self._lost)
        return [self.control, self.advertised, self.gigabit, *map(int, flags)]

    def load(self, state: list[int]) -> None:
        """Go on from what :meth:`save` returned."""
        self.control, self.advertised, self.gigabit = state[:3]
        self.cable, self.partner_pauses, self._lost = (bool(value) for value in state[3:])
