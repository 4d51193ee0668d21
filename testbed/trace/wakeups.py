"""The need_wakeup flags of a zero-copy socket's rings, by the driver's own changes to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.scenario.program import StepKind
from testbed.trace.events import Kind, Ring

if TYPE_CHECKING:
    import numpy.typing as npt

    from testbed.trace.table import Trace

    Rows = npt.NDArray[np.intp]

__all__ = ["need_wakeup_at"]


def need_wakeup_at(trace: Trace, ring: Ring, rows: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return for each row whether the flag of FILL or TX was set then.

    A bind sets that of TX and clears that of FILL (net/xdp/xsk_buff_pool.c, xp_assign_dev()).
    """
    at = np.asarray(rows, dtype=np.intp)
    changes = trace.rows(Kind.NEED_WAKEUP, subject=ring)
    last = np.concatenate([[-1], changes])[np.searchsorted(changes, at, side="right")]
    binds = np.concatenate([[-1], trace.rows(Kind.STEP_BEGIN, a=StepKind.BIND)])
    bind = binds[np.searchsorted(binds[1:], at)]
    initial = 1 if ring == Ring.TX else 0
    flag: npt.NDArray[np.int64] = np.where(
        (last >= 0) & (last > bind), trace.field("a", last.clip(min=0)) if len(trace.events) else 0, initial
    )
    return flag
