"""Every way testbed ends other than with a verdict.

::

    TestbedError                 exit status, message, remedy
     +-- UsageError          2   a name, file, option or value the user gave is wrong
     +-- HostError           3   this machine lacks something: package, space, network, permission
     +-- BuildError          3   an image, module or variant could not be built
     +-- GuestError          3   QEMU or the guest did not do what it must before a run can be judged
     |    +-- BootError      3   the guest never became ready
     |    +-- GuestLost      3   QEMU or the agent's channel went away
     +-- Unsupported         4   this NIC, driver or kernel cannot run this scenario

A message says in one line what was expected and what was seen; the remedy says what to do.
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "BootError",
    "BuildError",
    "GuestError",
    "GuestLost",
    "HostError",
    "TestbedError",
    "Unsupported",
    "UsageError",
]


class TestbedError(Exception):
    """An end without a verdict.

    :param message: one line, what was expected and what was seen.
    :param remedy: one line, what the user can do about it.
    """

    __test__ = False  # pytest: not a test class
    exit_status = 3
    verdict: Literal["pass", "fail", "broken", "unsupported"] = "broken"

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class UsageError(TestbedError):
    """A name, file, option or value the user gave is wrong."""

    exit_status = 2


class HostError(TestbedError):
    """This machine lacks something: a package, space, the network, a permission."""


class BuildError(TestbedError):
    """An image, a module or a variant could not be built."""


class GuestError(TestbedError):
    """QEMU or the guest did not do what it must before a run can be judged."""


class BootError(GuestError):
    """The guest never became ready."""


class GuestLost(GuestError):
    """QEMU or the agent's channel went away."""


class Unsupported(TestbedError):
    """This NIC, driver or kernel cannot run this scenario."""

    exit_status = 4
    verdict = "unsupported"
