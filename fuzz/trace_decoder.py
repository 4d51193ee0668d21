"""Atheris target: any bytes as a guest's table of events, in this process.

    python fuzz/trace_decoder.py -runs=100000 [CORPUS]

Nothing may escape the decoder but :class:`GuestLost`; whatever it lets through has a digest, counters and an outcome of
every rule.
"""

from __future__ import annotations

import sys

import atheris
import numpy as np

with atheris.instrument_imports(include=["testbed.trace", "testbed.rules"]):
    from testbed.errors import GuestLost
    from testbed.rules import all_rules, judge
    from testbed.trace import Trace, count, decode_events, sequence_digest
    from testbed.trace.events import EVENT, Kind

COVERS = [f"testbed.trace.{name}" for name in ("table", "polls", "digest", "counters")]
KINDS = np.array([int(kind) for kind in Kind], dtype=np.uint16)
SETTINGS = {"mode": "zerocopy", "need_wakeup": True, "umem_chunks": 16, "rx_ring": 64}


def one(data: bytes) -> None:
    """Run one input: as it is, and once more with known kinds and times that go on."""
    try:
        decode_events(data)
    except GuestLost as error:
        assert error.remedy
    events = np.frombuffer(data[: len(data) // EVENT.itemsize * EVENT.itemsize], dtype=EVENT).copy()
    events["kind"] = KINDS[events["kind"] % len(KINDS)]
    events["subject"] %= 16
    events["time_ns"] = np.cumsum(events["time_ns"] % 10_000_000)
    trace = Trace(decode_events(events.tobytes()), settings=SETTINGS, kernel=(7, 3), driver="igb", nic="igb")
    assert len(sequence_digest(trace.events)) == 64
    count(trace, 0)
    assert len(judge(trace)) == len(all_rules())


def main() -> None:
    """Fuzz; the arguments are libFuzzer's."""
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
