import runpy
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.config import conf
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import ARP, Ether, arping
from scapy.packet import Raw
from scapy.sendrecv import AsyncSniffer, sendp, sniff, sr1, srp1

from testbed.errors import UsageError
from testbed.traffic.fake import FakeQemu
from testbed.traffic.frames import HOST_MAC, numbered_frames
from testbed.traffic.layer import TestbedFrame
from testbed.traffic.supersocket import WireSuperSocket
from testbed.traffic.wire import Wire

GUEST = "02:00:00:00:00:02"


def answer(frame: bytes) -> Iterator[bytes]:
    """Play a guest of address 192.0.2.7 that answers ARP and ping."""
    packet = Ether(frame)
    if ARP in packet and packet[ARP].op == 1 and packet[ARP].pdst == "192.0.2.7":
        asked = packet[ARP]
        reply = ARP(op=2, hwsrc=GUEST, psrc=asked.pdst, hwdst=asked.hwsrc, pdst=asked.psrc)
        yield bytes(Ether(src=GUEST, dst=packet.src) / reply)
    elif ICMP in packet and packet.dst == GUEST:
        echo = ICMP(type="echo-reply", id=packet[ICMP].id, seq=packet[ICMP].seq) / packet[ICMP].payload
        yield bytes(Ether(src=GUEST, dst=packet.src) / IP(src=packet[IP].dst, dst=packet[IP].src) / echo)


@pytest.fixture
def qemu() -> Iterator[FakeQemu]:
    with FakeQemu(answer).start() as qemu:
        yield qemu


@pytest.fixture
def wire(qemu: FakeQemu) -> Iterator[Wire]:
    with Wire(qemu.host_end) as wire, wire.scapy():
        yield wire


def test_an_ordinary_arp_ping_is_answered(wire: Wire) -> None:
    reply = srp1(Ether(dst="ff:ff:ff:ff:ff:ff") / ARP(pdst="192.0.2.7"), timeout=5, verbose=False)
    assert reply is not None
    assert reply[ARP].hwsrc == GUEST
    assert reply.dst == HOST_MAC
    assert wire.frames_sent == 1


SCRIPT = """
from scapy.all import *

reply = srp1(Ether(dst="ff:ff:ff:ff:ff:ff")/ARP(pdst="192.0.2.7"), timeout=5, verbose=0)
found = reply[ARP].hwsrc
"""


@pytest.mark.filterwarnings(
    r"ignore::UserWarning:scapy\..*"
)  # cryptography's, about ciphers that scapy names
@pytest.mark.usefixtures("wire")
def test_a_script_of_anybodys_runs_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "ping.py"
    script.write_text(SCRIPT)
    assert runpy.run_path(str(script))["found"] == GUEST


def test_arping_works_although_it_brings_a_filter(wire: Wire) -> None:
    answered, _ = arping("192.0.2.7", timeout=5, verbose=False)
    assert [reply.hwsrc for _, reply in answered] == [GUEST]
    assert wire.frames_sent == 1


def test_a_ping_of_layer_3_finds_the_mac_by_itself(wire: Wire, qemu: FakeQemu) -> None:
    reply = sr1(IP(dst="192.0.2.7") / ICMP(seq=9) / b"data", timeout=5, verbose=False)
    assert reply is not None
    assert (reply[ICMP].type, reply[ICMP].seq, bytes(reply[ICMP].payload)[:4]) == (0, 9, b"data")
    assert len(qemu.received) == wire.frames_sent == 2


def test_sendp_puts_frames_on_the_wire(wire: Wire, qemu: FakeQemu) -> None:
    packet = Ether(src=HOST_MAC, dst=GUEST, type=0x9000) / Raw(b"x" * 46)
    sendp(packet, count=3, verbose=False)
    assert qemu.wait_for(3) == [bytes(packet)] * 3
    assert wire.frames_sent == 3


def test_sniff_sees_what_the_guest_sends(wire: Wire, qemu: FakeQemu) -> None:
    started = threading.Event()
    sniffer = AsyncSniffer(count=3, started_callback=started.set)
    sniffer.start()
    assert started.wait(5)
    qemu.send(numbered_frames(5, 3, 64, GUEST))
    sniffer.join(5)
    assert [packet[TestbedFrame].sequence for packet in sniffer.results] == [5, 6, 7]
    assert wire.frames_received == 3


def test_an_opened_socket_serves_sniff_and_sendp(wire: Wire, qemu: FakeQemu) -> None:
    with WireSuperSocket(wire) as socket:
        assert socket.recv() is None
        question = Ether(dst="ff:ff:ff:ff:ff:ff") / ARP(pdst="192.0.2.7")
        sendp(question, socket=socket, verbose=False)
        assert qemu.wait_for(1) == [bytes(question)]
        seen = sniff(opened_socket=socket, count=1, timeout=5)
    assert [packet[ARP].op for packet in seen] == [2]


def test_sniff_ends_when_qemu_does(wire: Wire, qemu: FakeQemu) -> None:
    qemu.close()
    assert len(sniff(timeout=5)) == 0
    assert wire.ended


def test_a_filter_that_would_not_filter_is_refused(wire: Wire) -> None:
    with pytest.raises(UsageError, match="seen 'arp'; give sniff lfilter"):
        sniff(filter="arp", timeout=1)
    assert wire.frames_sent == 0


def test_no_route_leads_to_the_host_and_all_is_as_before_afterwards() -> None:
    def state() -> tuple[object, ...]:
        return conf.iface, list(conf.route.routes), list(conf.route6.routes), set(conf.ifaces)

    before = state()
    with (
        FakeQemu() as qemu,
        Wire(qemu.host_end) as wire,
        wire.scapy(name="wire7", ip="192.0.2.9") as interface,
    ):
        for address in ("192.0.2.7", "10.0.0.1", "198.51.100.1"):
            assert conf.route.route(address)[:2] == ("wire7", "192.0.2.9")
        assert conf.route6.route("2001:db8::1")[0] == "wire7"
        conf.ifaces.reload()
        assert conf.iface is interface
    assert state() == before


def test_scapy_builds_the_frames_that_we_count_as_numbered() -> None:
    (frame,) = numbered_frames(77, 1, 64, GUEST)
    built = Ether(src="02:00:00:00:00:01", dst=GUEST) / TestbedFrame(sequence=77) / Raw(frame[30:])
    assert bytes(built) == frame
    dissected = Ether(frame)[TestbedFrame]
    assert (dissected.magic, dissected.sequence, dissected.bytes) == (0x44454254, 77, 64)
