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

__all__ = ["MILLISECOND_NS", "Answer", "answer", "disturbances", "wakeup_limit_ns"]

MILLISECOND_NS = 1_000_000


class Answer(enum.Enum):
    """What became of a question; UNDECIDED when the trace ended, or the driver started anew, in between."""

    IN_TIME = enum.auto()
    LATE = enum.auto()
    UNDECIDED = enum.auto()


def answer(trace: Trace, asked: int, answers: Rows, limit_ns: int, disturbing: Rows) -> Answer:
    """Say whether one of ``answers`` (ascending) comes within the limit behind the row ``asked``."""
    deadline = trace.time_ns(asked) + limit_ns
    after = int(np.searchsorted(answers, asked, side="right"))
    if after < len(answers) and trace.time_ns(int(answers[after])) <= deadline:
        return Answer.IN_TIME
    disturbed = int(np.searchsorted(disturbing, asked, side="right"))
    if disturbed < len(disturbing) and trace.time_ns(int(disturbing[disturbed])) <= deadline:
        return Answer.UNDECIDED
    return Answer.LATE if trace.end_ns > deadline else Answer.UNDECIDED


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
