"""The trace: one numpy table of everything that happened in a run, and what is derived from it."""

from __future__ import annotations

from testbed.trace.counters import Counters, count
from testbed.trace.device import with_device_rows
from testbed.trace.digest import sequence_digest, sequence_values
from testbed.trace.kernel_log import Splat, find_splats, with_splat_rows
from testbed.trace.polls import Polls
from testbed.trace.streams import STREAMS, Stream, streams_of
from testbed.trace.table import Trace, decode_events, load_events, save_events
from testbed.trace.text import event_lines

__all__ = [
    "STREAMS",
    "Counters",
    "Polls",
    "Splat",
    "Stream",
    "Trace",
    "count",
    "decode_events",
    "event_lines",
    "find_splats",
    "load_events",
    "save_events",
    "sequence_digest",
    "sequence_values",
    "streams_of",
    "with_device_rows",
    "with_splat_rows",
]
