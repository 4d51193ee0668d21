"""What a knob of the interface stood at: the ``set`` steps of a program, as far as the trace shows them done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.scenario.program import Setting, StepKind
from testbed.trace.events import Kind

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace.table import Trace

    Rows = npt.NDArray[np.intp]
    Numbers = npt.NDArray[np.int64]

__all__ = ["UNKNOWN", "deferred_ns", "knob_at"]

UNKNOWN = -1  #: before the first ``set`` of a knob, while one is under way, and when the program is not known


def knob_at(trace: Trace, setting: Setting, rows: npt.ArrayLike) -> Numbers:
    """Return what a knob stood at when each of ``rows`` happened, or :data:`UNKNOWN`; shape as ``rows``."""
    begins = trace.rows(Kind.STEP_BEGIN, a=StepKind.SET)
    begins = begins[trace.events["c"][begins] == setting]
    ends = trace.rows(Kind.STEP_END)
    changes: list[tuple[int, int]] = [(-1, UNKNOWN)]
    for begin in begins.tolist():
        changes.append((begin, UNKNOWN))
        after = int(np.searchsorted(ends, begin))
        step = int(trace.events["subject"][begin])
        if trace.steps is not None and after < len(ends) and trace.events["a"][ends[after]] == 0:
            changes.append((int(ends[after]), int(trace.steps["b"][step])))
    at = np.array([row for row, _ in changes])
    values = np.array([value for _, value in changes], dtype=np.int64)
    found: Numbers = values[np.searchsorted(at, np.asarray(rows), side="right") - 1]
    return found


def deferred_ns(trace: Trace) -> int | None:
    """Return the longest time for which this run's settings let a NAPI be left alone with its interrupt
    masked: the largest gro_flush_timeout; None when it was set to something unknown.
    """
    begins = trace.rows(Kind.STEP_BEGIN, a=StepKind.SET)
    steps = trace.field("subject", begins[trace.events["c"][begins] == Setting.GRO_FLUSH_TIMEOUT])
    if not len(steps):
        return 0
    return None if trace.steps is None else int(trace.steps["b"][steps].max())
