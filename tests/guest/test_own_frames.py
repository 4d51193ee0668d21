"""Frames of the user's own in a real guest: each has a fate, and the right one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from testbed.nic import GUEST_MAC
from testbed.scenario import load

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.pytest_plugin import RunScenario

SCENARIO = """\
name: own
must_exercise: [verdict-conservation]
settings: {verdict: by_frame}
steps:
  - fill: all
  - wakeup: rx
  - snapshot_rings
  - inject: {frames: 'Ether()/IP()/UDP(dport=(1, 30))/Raw("x" * 40)', verdict: redirect}
  - inject: {frames: ['Ether()/ARP()', 'Ether()/IP()/TCP()'], count: 20, verdict: drop}
  - inject: {pcap: ping.pcap, verdict: pass}
  - inject: {hex: ["02000000000202000000000188b6"], count: 5, verdict: tx}
  - inject: {count: 3, verdict: redirect}
  - sleep_us: 3000
  - rx_drain: all
  - snapshot_rings
"""


def test_frames_from_text_and_captures_are_told_apart_and_counted(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    pings = [Ether(src="02:00:00:00:00:09", dst=GUEST_MAC) / IP() / ICMP(seq=n) / ("x" * n) for n in range(7)]
    wrpcap(str(tmp_path / "ping.pcap"), pings)
    (tmp_path / "own.yaml").write_text(SCENARIO)
    done = run_scenario(load(tmp_path / "own.yaml"), nic="igb")
    assert done.result.verdict == "pass", done.result.error
    counters = done.result.counters
    assert counters is not None
    assert (counters.frames_injected, counters.frames_to_driver, counters.frames_lost) == (65, 65, 0)
    assert (counters.frames_to_socket, counters.frames_dropped_by_program) == (33, 20)
    assert (counters.frames_to_stack, counters.frames_on_wire) == (7, 5)
