"""A run that is larger than most: what pages and pictures must cope with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from test_report import STOCK
from test_report_page import kept

from testbed.result import TraceRecord, load_result, save_result
from testbed.trace import save_events
from testbed.trace.events import EVENT, Kind, Ring

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = 100_000


def large(path: Path) -> Path:
    """A run of EVENTS events at random times, with marks in every lane."""
    kept(path, STOCK)
    random = np.random.default_rng(7)
    kinds = [
        Kind.IRQ,
        Kind.POLL,
        Kind.COMPLETE,
        Kind.REDIRECT,
        Kind.RING,
        Kind.WATCHDOG,
        Kind.TAIL,
        Kind.MASK,
    ]
    events = np.zeros(EVENTS, dtype=EVENT)
    events["kind"] = random.choice(kinds, EVENTS, p=[0.15, 0.2, 0.15, 0.2, 0.1, 0.02, 0.1, 0.08])
    events["time_ns"] = np.cumsum(random.integers(100, 9000, EVENTS))
    events["a"], events["b"] = random.integers(0, 65, EVENTS), 64
    for kind, name, choice in (
        (Kind.REDIRECT, "a", [0, -105, -28]), (Kind.COMPLETE, "b", [0, 1]), (Kind.RING, "subject", list(Ring)),
    ):  # fmt: skip
        own = events["kind"] == kind
        events[name][own] = random.choice(choice, int(own.sum()))
    save_events(path / "trace.npy", events)
    result = load_result(path)
    record = TraceRecord(events=EVENTS, lost=0, sequence_digest="")
    save_result(path, msgspec.structs.replace(result, trace=record))
    return path
