"""What an execution reached beside code: features of its trace, each a number below :data:`FEATURES`.

A budget bug often lies in code that is already covered. What tells executions apart then is how much work polls did,
how full rings were, which event followed which, and which rules had anything to judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.trace.events import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from testbed.rules.outcome import RuleResult

    Numbers = npt.NDArray[np.int64]

__all__ = ["FEATURES", "features_of"]

FEATURES = 8192
_OUTCOMES = ("hold", "violated", "waived", "not-exercised")
_LEVELS = 16  # a ring's level, in sixteenths
_PER_CHUNK = (Kind.RX, Kind.FILL, Kind.TX, Kind.COMPLETION, Kind.OWNERS, Kind.XDP_STATISTICS, Kind.INTERFACE)


def features_of(events: npt.NDArray[np.void], rules: Iterable[RuleResult]) -> Numbers:
    """Return the features, ascending, without repetition.

    :param events: the rows of one input, dtype :data:`testbed.trace.events.EVENT`.
    """
    found = [_works(events), _levels(events), _pairs(events), _streaks(events), _judged(rules)]
    return np.unique(np.concatenate(found))


def _place(domain: int, *values: Numbers) -> Numbers:
    """Return a number below FEATURES for each row of values; other rows mostly have another."""
    mixed = np.full(values[0].shape, domain, dtype=np.uint64)
    for value in values:
        mixed = (mixed ^ value.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return np.asarray(mixed % np.uint64(FEATURES), dtype=np.int64)


def _column(events: npt.NDArray[np.void], name: str) -> Numbers:
    return np.asarray(events[name], dtype=np.int64)


def _works(events: npt.NDArray[np.void]) -> Numbers:
    """Work and budget of each poll, what completions were told, and errors of redirects."""
    polls = events[events["kind"] == Kind.POLL]
    completed = events[events["kind"] == Kind.COMPLETE]
    refused = events[(events["kind"] == Kind.REDIRECT) & (events["a"] < 0)]
    return np.concatenate(
        [
            _place(1, _column(polls, "a"), _column(polls, "b")),
            _place(2, _column(completed, "a"), _column(completed, "b")),
            _place(3, _column(refused, "a")),
        ]
    )


def _levels(events: npt.NDArray[np.void]) -> Numbers:
    """How full each ring was when it was looked at, and whether it asked for a wakeup."""
    rings = events[events["kind"] == Kind.RING]
    entries = _column(rings, "c") & 0xFFFFFFFF
    used = (_column(rings, "a") - _column(rings, "b")) & 0xFFFFFFFF
    level = np.where(used >= entries, _LEVELS + 1, -(-used * _LEVELS // np.maximum(entries, 1)))
    return _place(4, _column(rings, "subject"), level, _column(rings, "c") >> 32)


def _told_apart(events: npt.NDArray[np.void]) -> Numbers:
    """A number for each row: its kind, and what of its values makes another event of it."""
    kind = _column(events, "kind")
    value: Numbers = np.select(
        [
            kind == Kind.POLL,
            kind == Kind.COMPLETE,
            kind == Kind.REDIRECT,
            kind == Kind.NEED_WAKEUP,
            kind == Kind.STEP_BEGIN,
        ],
        [
            np.sign(_column(events, "a")) + 2 * (events["a"] == events["b"]),
            _column(events, "b"),
            _column(events, "a") < 0,
            2 * _column(events, "subject") + _column(events, "a"),
            _column(events, "a"),
        ],
        0,
    )
    return kind * 64 + value


def _pairs(events: npt.NDArray[np.void]) -> Numbers:
    """Which event followed which, those that come once for each chunk left out."""
    rows = _told_apart(events[~np.isin(events["kind"], _PER_CHUNK)])
    return _place(5, rows[:-1], rows[1:])


def _streaks(events: npt.NDArray[np.void]) -> Numbers:
    """How many events of one kind there were, in powers of two."""
    kinds, counts = np.unique(_column(events, "kind"), return_counts=True)
    return _place(6, kinds, np.floor(np.log2(counts)).astype(np.int64))


def _judged(rules: Iterable[RuleResult]) -> Numbers:
    pairs = [(rule.number, _OUTCOMES.index(rule.outcome)) for rule in rules]
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return _place(7, table[:, 0], table[:, 1])
