"""The guest's health: rules 36 and 37."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.trace.events import Kind
from testbed.trace.kernel_log import find_splats

if TYPE_CHECKING:
    from testbed.trace import Trace

__all__ = ["guest_alive", "kernel_clean"]


@rule(
    "kernel-clean",
    36,
    statement="The kernel log shows no warning, BUG, oops, sanitizer or lockdep report, stall or hung task, "
    "and no complaint about a poll, a flush or a Tx timeout.",
    sources=["lib/bug.c", "net/core/dev.c, __napi_poll()", "net/core/filter.c, xdp_do_check_flushed()"],
    needs="the kernel log of the run",
    unit="splats",
)
def kernel_clean(trace: Trace) -> Finding:
    """Count the splats; the message is the first one's headline and where it happened."""
    if trace.log is None:
        return not_exercised("the kernel log was not captured")
    splats = find_splats(trace.log)
    if not splats:
        return hold(f"{len(trace.log)} lines of kernel log, no splat")
    rows = trace.rows(Kind.LOG)
    rows = rows[np.isin(trace.events["subject"][rows], [splat.line for splat in splats])]
    more = f" (and {len(splats) - 1} more)" if len(splats) > 1 else ""
    return violated(
        f"line {splats[0].line + 1} of the kernel log: {splats[0]}{more}", observed=len(splats), events=rows
    )


@rule(
    "guest-alive",
    37,
    statement="After the first step the guest keeps answering: no poll and no lock takes all its time.",
    sources=["kernel/watchdog.c", "Documentation/admin-guide/lockup-watchdogs.rst"],
    needs="a step that began",
    exceptions=["QEMU or a device model that died: that is no verdict, the run is broken"],
    unit="deaths",
)
def guest_alive(trace: Trace) -> Finding:
    """Say whether the agent answered to the end of the program; the proof is the trace's last rows."""
    steps = trace.rows(Kind.STEP_BEGIN)
    if not trace.alive:
        last = np.arange(max(0, len(trace.events) - 8), len(trace.events))
        return violated(trace.death or "the guest stopped answering", observed=1, events=last)
    if not len(steps):
        return not_exercised("no step began")
    return hold(f"the guest answered through {len(steps)} steps")
