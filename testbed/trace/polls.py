"""Which events belong to which NAPI poll.

The start of a poll has no hook (__napi_poll is static), so a poll is known by its POLL record, which the
tracepoint napi_poll writes after the driver's poll function returned. On one CPU polls do not interleave:
they run with bottom halves disabled in softirq, in threaded NAPI and in busy polling alike. So the events of
a poll are those the observer saw on its CPU since that CPU's previous POLL. What the agent records is process
context and belongs to no poll.

One event lies after the POLL it belongs to: the core itself completes a NAPI after a full poll, when it is
being disabled (net/core/dev.c: napi_disable_pending) or when busy polling is preferred
(napi_prefer_busy_poll). It looks like a completion of the next poll; :meth:`Polls.of` tells them apart.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from testbed.scenario.program import StepKind
from testbed.trace.events import Kind

if TYPE_CHECKING:
    import numpy.typing as npt

    Rows = npt.NDArray[np.intp]
    Numbers = npt.NDArray[np.int64]

__all__ = ["RECONFIGURING", "Polls", "during_reconfiguration"]

#: Steps during which a driver takes its rings down and disables NAPI.
RECONFIGURING = (
    StepKind.RINGS,
    StepKind.XDP_ATTACH,
    StepKind.XDP_DETACH,
    StepKind.BIND,
    StepKind.UNBIND,
    StepKind.MTU,
    StepKind.INTERFACE,
    StepKind.COALESCE,
)
FRAME_KINDS = (Kind.REDIRECT, Kind.XDP_EXCEPTION, Kind.VERDICT, Kind.FLUSH)


@dataclasses.dataclass(frozen=True, eq=False)
class Polls:
    """The polls of a trace, in the order of their POLL rows; every array of polls has shape ``(p,)``.

    :param row: the POLL row of each.
    :param napi: its napi_id.
    :param work: what the driver's poll function returned.
    :param budget: what it was given.
    :param cpu: where it ran.
    :param owner: shape ``(n,)``: for each event the poll it happened in, or -1.
    :param whole: whether the poll's beginning is surely in the trace: not for the first poll of a CPU, unless
        its NAPI was seen scheduled there before.
    :param reconfigured: whether at its end its NAPI was being disabled and not yet enabled again, or a step that
        disables NAPI (:data:`RECONFIGURING`) was under way and had not enabled it.
    :param completes: how many COMPLETE of its own NAPI its driver made in it.
    :param complete_row: the row of the first of them, or -1.
    """

    row: Rows
    napi: Numbers
    work: Numbers
    budget: Numbers
    cpu: Numbers
    owner: Rows
    whole: npt.NDArray[np.bool_]
    reconfigured: npt.NDArray[np.bool_]
    completes: Numbers
    complete_row: Rows

    def __len__(self) -> int:
        return len(self.row)

    @property
    def full(self) -> npt.NDArray[np.bool_]:
        """Which polls said that work remains: work is the whole budget, and the budget is not 0."""
        return (self.work >= self.budget) & (self.budget > 0)

    def members(self, poll: int) -> Rows:
        """Return the rows of one poll, ascending; the last is its POLL."""
        return np.flatnonzero(self.owner == poll)

    def count(self, rows: Rows) -> Numbers:
        """Return for each poll how many of ``rows`` happened in it."""
        owner = self.owner[rows]
        return np.bincount(owner[owner >= 0], minlength=len(self)).astype(np.int64)

    def first(self, rows: Rows) -> Rows:
        """Return for each poll the first of ``rows`` (ascending) that happened in it, or -1."""
        return self._latest(rows[::-1])

    def last(self, rows: Rows) -> Rows:
        """Return for each poll the last of ``rows`` (ascending) that happened in it, or -1."""
        return self._latest(rows)

    def _latest(self, rows: Rows) -> Rows:
        found = np.full(len(self), -1, dtype=np.intp)
        rows = rows[self.owner[rows] >= 0]
        found[self.owner[rows]] = rows  # where indices repeat, numpy keeps the last value
        return found

    @classmethod
    def of(cls, events: npt.NDArray[np.void], *, busy_poll: bool) -> Polls:
        """Find the polls of an event table.

        :param busy_poll: whether user space prefers busy polling, so that the core completes after full
            polls.
        """
        row = np.flatnonzero(events["kind"] == Kind.POLL)
        owner = _owners(events, row)
        none = np.zeros(len(row), dtype=np.int64)
        polls = cls(
            row=row,
            napi=events["subject"][row].astype(np.int64),
            work=events["a"][row].astype(np.int64),
            budget=events["b"][row].astype(np.int64),
            cpu=events["cpu"][row].astype(np.int64),
            owner=owner,
            whole=np.ones(len(row), dtype=np.bool_),
            reconfigured=_reconfigured(events, row),
            completes=none,
            complete_row=none.astype(np.intp),
        )
        completes = polls._driver_completes(events, busy_poll=busy_poll)
        return dataclasses.replace(
            polls,
            whole=polls._whole(events),
            completes=polls.count(completes),
            complete_row=polls.first(completes),
        )

    def _previous(self) -> Rows:
        """Return for each poll the poll before it on its CPU, or -1."""
        order = np.argsort(self.cpu, kind="stable")
        previous = np.full(len(self), -1, dtype=np.intp)
        if len(self) > 1:
            same = self.cpu[order][1:] == self.cpu[order][:-1]
            previous[order[1:][same]] = order[:-1][same]
        return previous

    def _whole(self, events: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        scheduled = np.flatnonzero(events["kind"] == Kind.SCHEDULE)
        scheduled = scheduled[self._of_own_napi(events, scheduled)]
        seen: npt.NDArray[np.bool_] = (self._previous() >= 0) | (self.count(scheduled) > 0)
        return seen

    def _of_own_napi(self, events: npt.NDArray[np.void], rows: Rows) -> npt.NDArray[np.bool_]:
        """Say which of ``rows`` lie in a poll of the NAPI they name."""
        owner = self.owner[rows]
        if not len(self):
            return np.zeros(len(rows), dtype=np.bool_)
        same: npt.NDArray[np.bool_] = events["subject"][rows] == self.napi[owner]
        return same & (owner >= 0)

    def _driver_completes(self, events: npt.NDArray[np.void], *, busy_poll: bool) -> Rows:
        """Return the COMPLETE rows that a driver's poll function made for its own NAPI.

        Left out is what the core did after the poll before: the first COMPLETE behind a full poll of the same
        NAPI, before any frame was handled, of the work that full poll returned or of 0, while NAPI may be
        disabled or busy polling is preferred. Without such a cause every COMPLETE is the driver's, and so is
        the only one of a poll that returned less than its budget.
        """
        rows = np.flatnonzero(events["kind"] == Kind.COMPLETE)
        rows = rows[self._of_own_napi(events, rows)]
        if not len(rows):
            return rows
        owner = self.owner[rows]
        disabling = during_reconfiguration(events)[rows] | _being_disabled(events, rows)
        cause = np.full(len(rows), fill_value=True) if busy_poll else disabling
        before = self._previous()[owner]
        after_full = (before >= 0) & self.full[before] & (self.napi[before] == self.napi[owner])
        work_done = events["a"][rows].astype(np.int64)
        plausible = (work_done == 0) | (work_done == self.work[before])
        frames = self.first(np.flatnonzero(np.isin(events["kind"], FRAME_KINDS)))[owner]
        untouched = (frames < 0) | (frames > rows)
        first = rows == self.first(rows)[owner]
        needless = self.full[owner] | (self.count(rows)[owner] > 1)
        cores: npt.NDArray[np.bool_] = cause & after_full & plausible & untouched & first & needless
        return rows[~cores]


def _owners(events: npt.NDArray[np.void], polls: Rows) -> Rows:
    """Return for each event the number of the poll on its CPU that ends at or after it, or -1."""
    owner = np.full(len(events), -1, dtype=np.intp)
    cpu = events["cpu"]
    observed = (events["kind"] >= Kind.IRQ) & (events["kind"] < Kind.LOG)
    for number in np.unique(cpu[polls]):
        here = np.flatnonzero(cpu[polls] == number)
        rows = np.flatnonzero(observed & (cpu == number))
        at = np.searchsorted(polls[here], rows)
        inside = at < len(here)
        owner[rows[inside]] = here[at[inside]]
    return owner


def _being_disabled(events: npt.NDArray[np.void], rows: Rows) -> npt.NDArray[np.bool_]:
    """Say for rows that name a NAPI whether it was being disabled, and not enabled again before them."""
    changes = np.flatnonzero(np.isin(events["kind"], (Kind.DISABLE, Kind.ENABLE)))
    disabled = np.zeros(len(rows), dtype=np.bool_)
    for napi in np.unique(events["subject"][changes]):
        own = changes[events["subject"][changes] == napi]
        named = events["subject"][rows] == napi
        before = np.searchsorted(own, rows[named]) - 1
        last = events["kind"][own[before.clip(min=0)]]
        disabled[named] = (before >= 0) & (last == Kind.DISABLE)
    return disabled


def _reconfigured(events: npt.NDArray[np.void], rows: Rows) -> npt.NDArray[np.bool_]:
    """Say for rows that name a NAPI whether its driver was about to disable it, or had not enabled it again."""
    begins = np.flatnonzero((events["kind"] == Kind.STEP_BEGIN) & np.isin(events["a"], RECONFIGURING))
    enables = np.flatnonzero(events["kind"] == Kind.ENABLE)
    begun = np.append(begins, -1)[np.searchsorted(begins, rows) - 1]
    anew = np.zeros(len(rows), dtype=np.bool_)
    for napi in np.unique(events["subject"][enables]):
        own = enables[events["subject"][enables] == napi]
        named = events["subject"][rows] == napi
        anew[named] = np.append(own, -1)[np.searchsorted(own, rows[named]) - 1] > begun[named]
    under_way: npt.NDArray[np.bool_] = during_reconfiguration(events)[rows] & ~anew
    return under_way | _being_disabled(events, rows)


def during_reconfiguration(events: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Say for each row whether a step of :data:`RECONFIGURING` has begun before it and not ended."""
    begins = np.flatnonzero((events["kind"] == Kind.STEP_BEGIN) & np.isin(events["a"], RECONFIGURING))
    ends = np.flatnonzero(events["kind"] == Kind.STEP_END)
    change = np.zeros(len(events) + 1, dtype=np.int64)
    change[begins] += 1
    at = np.searchsorted(ends, begins)
    change[ends[at[at < len(ends)]]] -= 1  # steps do not nest: the next STEP_END ends it
    under_way: npt.NDArray[np.bool_] = np.cumsum(change[:-1]) > 0
    return under_way
