"""Whether something was answered in time, for rules with a limit in time."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import numpy as np

from testbed.scenario.program import StepKind
from testbed.trace.events import Kind
from testbed.trace.knobs import deferred_ns
from testbed.trace.polls import RECONFIGURING

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["MILLISECOND_NS", "Answer", "answer", "disturbances", "wakeup_limit_ns", "wakeups"]

MILLISECOND_NS = 1_000_000


class Answer(enum.Enum):
    """What became of a question; UNDECIDED when the trace ended, or the driver started anew, in between."""

    IN_TIME = enum.auto()
    LATE = enum.auto()
    UNDECIDED = enum.auto()


def answer(
    trace: Trace, asked: int, answers: Rows, limit_ns: int, disturbing: Rows, since: int | None = None
) -> Answer:
    """Say whether one of ``answers`` (ascending) comes behind the row ``asked``, and within the limit.

    :param since: the row that the limit counts from, when that is not ``asked``: a system call that has not returned is
        on its way, and in real time that takes as long as the host lets it.
    """
    deadline = trace.time_ns(asked if since is None else since) + limit_ns
    after = int(np.searchsorted(answers, asked, side="right"))
    if after < len(answers) and trace.time_ns(int(answers[after])) <= deadline:
        return Answer.IN_TIME
    disturbed = int(np.searchsorted(disturbing, asked, side="right"))
    if disturbed < len(disturbing) and trace.time_ns(int(disturbing[disturbed])) <= deadline:
        return Answer.UNDECIDED
    return Answer.LATE if trace.end_ns > deadline else Answer.UNDECIDED


def wakeups(trace: Trace, *kinds: StepKind) -> tuple[Rows, Rows]:
    """Return the rows at which wakeups of some kinds began, and those at which they returned.

    The agent leaves one out where need_wakeup is clear: then its step did nothing, and it is none.
    """
    begins, ends = trace.rows(Kind.STEP_BEGIN), trace.rows(Kind.STEP_END)
    begins = begins[np.isin(trace.events["a"][begins], kinds)]
    after = np.searchsorted(ends, begins)
    begins, returns = begins[after < len(ends)], ends[after[after < len(ends)]]
    done = trace.events["c"][returns] > 0
    return begins[done], returns[done]


def disturbances(trace: Trace) -> Rows:
    """Return the rows, ascending, at which a driver may have to start anew: whoever waits, waits in vain."""
    begins = trace.rows(Kind.STEP_BEGIN)
    begins = begins[np.isin(trace.events["a"][begins], [*RECONFIGURING, StepKind.UMEM])]
    return np.sort(np.concatenate([begins, trace.rows(Kind.DISABLE), trace.rows(Kind.CARRIER, a=0)]))


def wakeup_limit_ns(trace: Trace) -> int | None:
    """Return within what time a wakeup must have been served: 10 ms, and gro_flush_timeout where it may keep
    the interrupt masked; None when the latter is not known.
    """
    deferred = deferred_ns(trace)
    return None if deferred is None else trace.patience_ns(10 * MILLISECOND_NS) + deferred
