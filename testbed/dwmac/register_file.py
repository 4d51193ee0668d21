"""What the registers hold, and what the guest's reads and writes make of it."""

from __future__ import annotations

import array
from typing import TYPE_CHECKING

from testbed.dwmac.registers import REGISTERS, Access, Bits

if TYPE_CHECKING:
    from testbed.dwmac.registers import Register

__all__ = ["RegisterFile"]

_WORDS = 0x1400 // 4


class RegisterFile:
    """The registers' contents, by offset in bytes, with the access that each declares.

    ``words[offset >> 2]`` is a register as the device itself sees it; reads and writes here are the guest's.
    """

    def __init__(self) -> None:
        self.words = array.array("I", [0]) * _WORDS
        self._by_offset = {register.offset: register for register in REGISTERS.values()}
        self.reset()

    def reset(self) -> None:
        """Give every register its reset value."""
        for index in range(_WORDS):
            self.words[index] = 0
        for register in REGISTERS.values():
            self.words[register.offset >> 2] = register.reset

    def at(self, offset: int) -> Register | None:
        """Return the register at an offset, if there is one."""
        return self._by_offset.get(offset)

    def write(self, register: Register, value: int) -> None:
        """Take a write of the guest, without its effect."""
        if register.access is Access.READ_WRITE:
            self.words[register.offset >> 2] = value & ~register.self_clearing
        elif register.access is Access.CLEAR_BY_ONE:
            self.words[register.offset >> 2] &= ~value & 0xFFFFFFFF

    def read(self, register: Register) -> int:
        """Return what the guest reads, without the effect."""
        index = register.offset >> 2
        value = self.words[index]
        if register.access is Access.COUNTER and self.words[0x700 >> 2] & Bits.MMC_RESET_ON_READ:
            self.words[index] = 0
        return value

    def load(self, words: bytes) -> None:
        """Take over saved contents.

        :raise ValueError: they are of another size.
        """
        found = array.array("I", words)
        if len(found) != _WORDS:
            raise ValueError(f"expected {_WORDS} registers, seen {len(found)}")
        self.words[:] = found
