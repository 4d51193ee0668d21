"""Where the device reads and writes: rule 30."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.rules.outcome import Finding, hold, not_exercised, violated
from testbed.rules.registry import rule
from testbed.trace.events import Kind

if TYPE_CHECKING:
    from testbed.trace import Trace

__all__ = ["dma_valid"]


@rule(
    "dma-valid",
    30,
    statement="No descriptor that the device uses names the address 0.",
    sources=["Documentation/core-api/dma-api-howto.rst"],
    needs="a device that tells of the descriptors it completed",
    exceptions=["descriptors that carry no buffer, and frames that the device did not move"],
    unit="descriptors",
)
def dma_valid(trace: Trace) -> Finding:
    """Count the descriptors with data at address 0."""
    done = np.sort(np.concatenate([trace.rows(Kind.RX_DONE), trace.rows(Kind.TX_DONE)]))
    done = done[trace.field("b", done) > 0]
    if not len(done):
        return not_exercised("the device tells of no descriptor that it completed")
    nowhere = done[trace.events["c"][done] == 0]
    if not len(nowhere):
        return hold(f"{len(done)} descriptors named memory")
    return violated(
        f"{len(nowhere)} of {len(done)} descriptors that the device used named the address 0",
        observed=len(nowhere),
        events=nowhere,
    )
