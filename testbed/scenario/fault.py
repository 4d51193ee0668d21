"""Something wrong at one place of a scenario, and how it is told to the user."""

from __future__ import annotations

from typing import NamedTuple

from testbed.errors import UsageError

__all__ = ["Fault"]


class Fault(NamedTuple):
    """Something wrong at one place of a scenario."""

    path: str  # as msgspec writes it: $.steps[3].count
    expected: str
    seen: str
    remedy: str

    def error(self, origin: str) -> UsageError:
        """Return the error for something that has no lines: JSON, options, a scenario made in memory."""
        label = self.path.removeprefix("$").lstrip(".")
        named = f"{label}: " if label else ""
        return UsageError(f"{origin}: {named}expected {self.expected}, seen {self.seen}", self.remedy)
