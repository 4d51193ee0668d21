"""Frames of the user's own in a scenario: scapy expressions, captures, hexadecimal text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap, wrpcapng

from testbed.errors import UsageError
from testbed.nic import GUEST_MAC
from testbed.scenario import jittered, load, load_text, save
from testbed.scenario.expression import GUEST_IP, HOST_IP, ExpressionError, frames_of
from testbed.scenario.expression import GUEST_MAC as DEFAULT_MAC
from testbed.scenario.own_frames import TRAILER_BYTES
from testbed.scenario.steps import Inject, describe
from testbed.scenario.unroll import totals
from testbed.traffic.frames import HOST_MAC, TRAILER

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "name: x\nsteps:\n"


def injected(inject: str, origin: str = "f.yaml") -> Inject:
    step = load_text(f"{HEAD}- inject: {inject}\n", origin).steps[0]
    assert isinstance(step, Inject)
    return step


def told(inject: str, origin: str = "f.yaml") -> str:
    with pytest.raises(UsageError) as caught:
        injected(inject, origin)
    return str(caught.value)


# Expressions


def test_an_expression_gives_what_scapy_gives() -> None:
    (frame,) = frames_of('Ether(src="02:00:00:00:00:09")/IP(ttl=7)/TCP(flags="S")/Raw(b"ab" * 2 + b"c")', 9)
    packet = Ether(frame)
    assert (packet.src, packet[IP].ttl, packet[TCP].flags) == ("02:00:00:00:00:09", 7, "S")
    assert bytes(packet[TCP].payload) == b"ababc"


def test_addresses_not_given_are_those_of_the_wire_and_not_of_the_host() -> None:
    packet = Ether(frames_of("Ether()/IP()/UDP()", 1)[0])
    assert (packet.dst, packet.src) == (GUEST_MAC, HOST_MAC) == (DEFAULT_MAC, "02:00:00:00:00:01")
    assert (packet[IP].dst, packet[IP].src) == (GUEST_IP, HOST_IP)


def test_a_range_makes_several_frames_in_order() -> None:
    ports = [Ether(frame)[UDP].dport for frame in frames_of("Ether()/IP()/UDP(dport=(5, 8))", 4)]
    assert ports == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a scapy expression such as"),
        ("Ether()/IP(", "'(' was never closed"),
        ("(" * 500, "too many nested parentheses"),
        ("Ether()" + "/IP()" * 500, "expected at most 2000 characters"),
        ('__import__("os").system("id")', "expected layers of scapy, literals, / and *"),
        ("Ether().__class__", "expected layers of scapy, literals, / and *"),
        ("[Ether() for _ in (1,)]", "expected layers of scapy, literals, / and *"),
        ("Ether()/RandIP()", "expected a layer of scapy, seen 'RandIP'"),
        ("open('/etc/passwd')", "expected a layer of scapy, seen 'open'"),
        ("Ether(**{})", "expected a field of Ether out of dst, src, type, seen **"),
        ("Ether(dest=1)", "expected a field of Ether out of dst, src, type, seen dest"),
        ("Ether(1, 2)", "expected Ether(field=value, ...) or Ether(bytes), seen 2 values"),
        ("Ether(3)", "expected bytes as the value of Ether, seen int"),
        ("IP()/UDP()", "expected Ether() or Dot3() as the first layer, seen IP"),
        ("3", "expected Ether() or Dot3() as the first layer, seen int"),
        ("b'x'/Ether()", "expected layer/layer, or at most 9000 bytes by * or +, seen bytes div Ether"),
        ('Ether()/Raw("x" * 9001)', "expected layer/layer, or at most 9000 bytes"),
        ("Ether(dst='here')", "expected a MAC address, seen 'here'"),
        ("Ether()/IP(dst='localhost')", "expected an IP address or network, as names are not looked up"),
        ("Ether()/IP(dst=['192.0.2.2', 'cafe'])", "seen 'cafe'"),
        ("Ether()/ARP(pdst='localhost')", "expected an IP address or network"),
        ("Ether()/IP(ttl=256)", "expected what scapy can build, seen ValueError"),
        ("Ether(b'short')", "expected what scapy can build"),
        ("Ether()/IP()/UDP()/NTP()", "expected the same bytes each time"),
        ('Ether()/IP(dst="10.0.0.0/8")', "expected at most 9 frames, seen more"),
    ],
)
def test_what_is_no_expression_of_ours_is_told(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        frames_of(text, 9)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# In a scenario


def test_each_frame_comes_once_or_in_turn_until_there_are_enough() -> None:
    once = injected('{frames: ["Ether()/IP()/UDP(dport=(1, 2))", "Ether()/ARP()"]}')
    ports = [Ether(frame)[UDP].dport for frame in once.own() if UDP in Ether(frame)]
    assert (once.total, ports) == (3, [1, 2])
    turned = injected('{count: 7, frames: ["Ether()/IP()/UDP(dport=(1, 2))", "Ether()/ARP()"]}')
    assert turned.own() == [once.own()[index % 3] for index in range(7)]
    assert describe(turned) == "inject 7 frames of your own"


def test_what_is_read_is_bytes_that_read_back_equal() -> None:
    text = HEAD + '- inject: {hex: ["0200 0000 0002 0200 0000 0001 0800", "02000000000202000000000108e5"]}\n'
    scenario = load_text(text, "f.yaml")
    assert load_text(save(scenario), "x") == scenario
    assert totals(scenario).frames == 2


def test_a_capture_lies_beside_its_scenario(tmp_path: Path) -> None:
    packets = [Ether() / IP(dst=GUEST_IP) / UDP(dport=port) for port in (7, 9)]
    for packet in packets:
        packet.src, packet.dst = HOST_MAC, GUEST_MAC
    wrpcap(str(tmp_path / "a.pcap"), packets)
    wrpcapng(str(tmp_path / "a.pcapng"), packets)
    (tmp_path / "x.yaml").write_text(HEAD + "- inject: {pcap: a.pcap}\n- inject: {pcap: a.pcapng}\n")
    first, second = load(tmp_path / "x.yaml").steps
    assert isinstance(first, Inject)
    assert isinstance(second, Inject)
    assert first.own() == second.own() == [bytes(packet) for packet in packets]


def test_jitter_loses_and_doubles_none_of_them() -> None:
    scenario = load_text(
        HEAD + "- inject: {frames: 'Ether()/IP()/UDP(dport=(1, 50))', count: 60}\n", "f.yaml"
    )
    (written,) = scenario.steps
    assert isinstance(written, Inject)
    for seed in range(20):
        parts = [step for step in jittered(scenario, seed).steps if isinstance(step, Inject)]
        assert [frame for part in parts for frame in part.own()] == written.own()


@pytest.mark.parametrize(
    ("inject", "message"),
    [
        ("{frames: 'Ether(/'}", "f.yaml:3: steps[0].inject.frames: expected a scapy expression such as"),
        ("{frames: 3}", "f.yaml:3: steps[0].inject.frames: expected a scapy expression or a list of them"),
        ("{frames: []}", "steps[0].inject.frames: expected 1 to 10000 frames of 4 MiB together, seen 0"),
        (
            "{frames: 'Ether()/Raw(b\"x\" * 1481)'}",
            "frames: expected frames of 14 to 1494 bytes, seen 1495 in",
        ),
        (
            "{frames: 'Ether(type=0x88b5)'}",
            "frames: expected another EtherType than 0x88b5, seen that in frame 1",
        ),
        ("{frames: 'Ether()', pcap: a}", "inject.pcap: expected one of frames, pcap, hex, seen frames too"),
        ("{frames: 'Ether()', bytes: 65}", "inject.bytes: expected none beside frames of your own, seen 65"),
        ("{frames: 'Ether()', count: 0}", "inject.count: expected an integer, 1 to 10000, seen 0"),
        (
            "{frames: 'Ether()', verdict: tx}",
            "inject.verdict: expected none, because the verdict is redirect",
        ),
        ("{hex: [020]}", "inject.hex: expected frames as pairs of hexadecimal digits"),
        ("{hex: ['02']}", "inject.hex: expected frames of 14 to 1494 bytes, seen 1 in frame 1"),
        ("{pcap: 3}", "inject.pcap: expected the path of a capture, seen 3"),
        (
            "{pcap: gone.pcap}",
            "inject.pcap: expected a capture that can be read, seen gone.pcap: No such file",
        ),
    ],
)
def test_what_is_wrong_with_them_is_one_line_with_its_place(inject: str, message: str) -> None:
    said = told(inject)
    assert message in said
    assert "\n" not in said


def test_in_a_repeat_the_place_is_that_of_the_inject() -> None:
    text = HEAD + "- repeat:\n    times: 2\n    steps:\n    - inject:\n        frames: Ether(\n"
    with pytest.raises(UsageError, match=r"f.yaml:7: steps\[0\].repeat.steps\[0\].inject.frames: expected"):
        load_text(text, "f.yaml")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04 no capture at all, but long enough", "a capture in pcap or pcapng"),
        (b"", "a capture in pcap or pcapng"),
        (
            bytes.fromhex("d4c3b2a1020004000000000000000000ffff000065000000") + bytes(16),
            "a capture of Ethernet",
        ),
        (bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"), "1 to 10000 frames"),
        (
            bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
            + bytes.fromhex("00000000000000000e0000003c000000")
            + bytes(14),
            "whole frames, seen 14 of 60 bytes of frame 1",
        ),
    ],
    ids=["a zip", "empty", "raw IP", "no frames", "cut"],
)
def test_a_file_that_is_no_such_capture_is_told(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "a.pcap").write_bytes(data)
    said = told("{pcap: a.pcap}", str(tmp_path / "f.yaml"))
    assert f"f.yaml:3: steps[0].inject.pcap: expected {message}" in said
    assert "\n" not in said


def test_the_trailer_is_as_long_as_the_check_says() -> None:
    assert TRAILER.size == TRAILER_BYTES
