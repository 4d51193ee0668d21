"""What a rule says of a trace, and what a result keeps of it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["MAX_EVENTS", "Finding", "Outcome", "RuleResult", "hold", "not_exercised", "violated"]

Outcome: TypeAlias = Literal["hold", "violated", "waived", "not-exercised"]

#: As many rows of proof are cited; the first ones prove as well as all of them.
MAX_EVENTS = 32


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a rule function returns.

    :param outcome: whether its precondition occurred, and if so, whether the rule was kept.
    :param observed: the number that was judged, in the rule's unit; None when nothing was.
    :param limit: the number it may not exceed.
    :param message: one line: what was seen.
    :param events: rows that prove it, ascending, the first :data:`MAX_EVENTS`.
    """

    outcome: Literal["hold", "violated", "not-exercised"]
    observed: int | None
    limit: int | None
    message: str
    events: tuple[int, ...] = ()


class RuleResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule's line in a result.

    ``events`` are row numbers of the trace; ``waiver`` is why a violation is waived, with its reference.
    """

    id: str
    number: int
    outcome: Outcome
    observed: int | None
    limit: int | None
    unit: str
    message: str
    events: list[int] = msgspec.field(default_factory=list)
    waiver: str | None = None


def not_exercised(why: str) -> Finding:
    """Return the finding of a rule whose precondition did not occur."""
    return Finding("not-exercised", observed=None, limit=None, message=why)


def hold(message: str, *, observed: int = 0, limit: int = 0) -> Finding:
    """Return the finding of a rule that was exercised and kept."""
    return Finding("hold", observed, limit, message)


def violated(message: str, *, observed: int, limit: int = 0, events: npt.ArrayLike = ()) -> Finding:
    """Return the finding of a rule that was broken.

    :param events: rows of proof in any order; at least one, unless the trace itself is missing.
    """
    rows = np.unique(np.asarray(events, dtype=np.int64))[:MAX_EVENTS]
    return Finding("violated", observed, limit, message, tuple(int(row) for row in rows))
