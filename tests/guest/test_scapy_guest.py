"""Ordinary scapy against a real guest in real time: ping its stack by ARP and ICMP, sniff, and read the pcap."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import ARP, Ether
from scapy.sendrecv import AsyncSniffer, sr1, srp1
from scapy.utils import rdpcap

from testbed import nic
from testbed.errors import GuestLost
from testbed.guest import Guest, conduct, running
from testbed.kernel import resolve
from testbed.nic import GUEST_MAC
from testbed.preparation import ready_guest, shape_of
from testbed.scenario import compile_program, load_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.toolchain import Toolchain

GUEST, HOST = "192.0.2.2", "192.0.2.1"
ANSWER_LIMIT_S = 20
SLEEP = "name: sleep\nsettings: {mode: copy}\nsteps:\n  - sleep_us: 1000\n"


@pytest.fixture(scope="module")
def pcap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wire") / "wire.pcap"


@pytest.fixture(scope="module")
def guest(toolchain: Toolchain, pcap: Path) -> Iterator[Guest]:
    shape = shape_of(toolchain, "real")
    with ready_guest(toolchain, resolve(), nic.get("igb"), shape, pcap=pcap) as ready:
        yield ready


def who_has() -> Ether:
    return Ether(dst="ff:ff:ff:ff:ff:ff") / ARP(pdst=GUEST)


def test_an_arp_ping_is_answered_by_the_guests_stack(guest: Guest) -> None:
    with running(guest), guest.machine.wire.scapy():
        answer = srp1(who_has(), timeout=ANSWER_LIMIT_S, verbose=False)
    assert answer is not None
    assert (answer[ARP].op, answer[ARP].psrc, answer[ARP].hwsrc) == (2, GUEST, GUEST_MAC)


def test_an_icmp_ping_finds_the_guest_by_itself(guest: Guest) -> None:
    with running(guest), guest.machine.wire.scapy():
        answer = sr1(IP(dst=GUEST) / ICMP(id=7, seq=3) / b"testbed", timeout=ANSWER_LIMIT_S, verbose=False)
    assert answer is not None
    assert (answer[IP].src, answer[ICMP].type, answer[ICMP].seq) == (GUEST, 0, 3)
    assert bytes(answer[ICMP].payload).startswith(b"testbed")


def test_sniff_sees_what_the_guest_sends(guest: Guest) -> None:
    with running(guest), guest.machine.wire.scapy():
        listening = threading.Event()
        sniffer = AsyncSniffer(count=1, lfilter=lambda packet: ARP in packet, started_callback=listening.set)
        sniffer.start()
        assert listening.wait(ANSWER_LIMIT_S)
        srp1(who_has(), timeout=ANSWER_LIMIT_S, verbose=False)
        sniffer.join(ANSWER_LIMIT_S)
    assert [packet[Ether].src for packet in sniffer.results] == [GUEST_MAC]


def test_the_pcap_holds_both_directions_in_their_order(guest: Guest, pcap: Path) -> None:
    before = len(rdpcap(str(pcap)))
    with running(guest), guest.machine.wire.scapy():
        assert srp1(who_has(), timeout=ANSWER_LIMIT_S, verbose=False)
    frames = [packet for packet in rdpcap(str(pcap))[before:] if ARP in packet]
    assert [(packet[ARP].op, packet[ARP].pdst) for packet in frames] == [(1, GUEST), (2, HOST)]


def test_a_guest_that_ran_by_itself_takes_a_program_afterwards(guest: Guest) -> None:
    with running(guest):
        pass
    outcome = conduct(guest, compile_program(load_text(SLEEP, "sleep")), 30.0)
    assert outcome.end
    assert outcome.end.error == 0


def test_a_guest_in_virtual_time_is_told_not_to_run_by_itself(toolchain: Toolchain) -> None:
    shape = shape_of(toolchain, "virtual")
    with ready_guest(toolchain, resolve(), nic.get("igb"), shape) as guest:
        block = running(guest, 1.0)
        with pytest.raises(GuestLost, match="the 1 s given to it are over"), block:
            guest.machine.monitor.wait_for("GUEST_PANICKED", 30.0)
