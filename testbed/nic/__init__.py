"""The registry of NICs: what QEMU is told, which driver binds, what the pair can do with which kernel.

A NIC is one module of this package that defines ``NIC``; nothing else has to know of it.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from testbed.errors import Unsupported, UsageError
from testbed.vfio_user.model import find_model

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GUEST_MAC", "Nic", "drivers", "get", "names"]

GUEST_MAC = "02:00:00:00:00:02"


@dataclass(frozen=True)
class Nic:
    """An emulated device and the driver that binds to it.

    :param device: QEMU's ``-device`` properties, without ``netdev`` and ``mac``; of a model, without ``driver`` too.
    :param model: who plays the device when QEMU itself does not: ``MODULE:CLASS`` or ``FILE.py:CLASS``, a
        :class:`testbed.vfio_user.Device`.
    :param modules: the driver's module and what it needs that modules.dep does not say, in load order.
    :param since: capability to the first kernel release (major, minor) whose driver has it.
    """

    name: str
    about: str
    device: Mapping[str, str | int]
    driver: str
    modules: tuple[str, ...]
    since: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    model: str = ""

    def capabilities(self, release: tuple[int, int]) -> frozenset[str]:
        """Return what device and driver can do together in a kernel of this release."""
        return frozenset(name for name, first in self.since.items() if release >= first)

    def check_command(self, word: str, arguments: Mapping[str, object]) -> None:
        """Check a command of a ``device`` step.

        :raise Unsupported: no device model plays this NIC.
        :raise UsageError: its model has no such command, or the command takes other arguments.
        """
        if not self.model:
            raise Unsupported(f"{self.name} is QEMU's own and takes no commands, seen device: {word}")
        known = {str(each.__struct_config__.tag): each for each in find_model(self.model).commands}
        if word not in known:
            remedy = f"its commands are {', '.join(known)}" if known else "its device model has none"
            raise UsageError(f"expected a command of {self.name} after device, seen {word!r}", remedy)
        try:
            msgspec.convert({"command": word, **arguments}, known[word])
        except msgspec.ValidationError as error:
            takes = ", ".join(known[word].__struct_fields__) or "nothing"
            raise UsageError(f"device: {word} of {self.name}: {error}", f"it takes {takes}") from None

    def missing(self, required: frozenset[str], release: tuple[int, int]) -> list[str]:
        """Return why this NIC cannot run a scenario: one sentence for each capability it lacks."""
        reasons = []
        for name in sorted(required - self.capabilities(release)):
            first = self.since.get(name)
            reasons.append(
                f"{self.driver} has {name} from kernel {first[0]}.{first[1]} on"
                if first
                else f"{self.driver} has no {name}"
            )
        return reasons


@cache
def _registry() -> dict[str, Nic]:
    modules = [
        importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)
    ]
    nics: list[Nic] = [module.NIC for module in modules]
    return {nic.name: nic for nic in sorted(nics, key=lambda nic: nic.name)}


def names() -> list[str]:
    """Return the names of all NICs."""
    return list(_registry())


def drivers() -> set[str]:
    """Return the names of the drivers of all NICs."""
    return {nic.driver for nic in _registry().values()}


def get(name: str) -> Nic:
    """Return the NIC called ``name``.

    :raise UsageError: there is none.
    """
    if name not in _registry():
        raise UsageError(f"unknown nic '{name}'", f"choose one of: {', '.join(names())}")
    return _registry()[name]
