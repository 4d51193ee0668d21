"""What the EQOS model does to frames besides moving them: checksums, segments, tags, filters, PTP, counters, MDIO."""

import logging

import pytest
from dwmac_driver import CONTEXT, FIRST, LAST, MAC, OWN, PEER, Driver, frame

logging.getLogger("scapy").setLevel(logging.ERROR)
from scapy.layers.inet import ICMP, IP, TCP, UDP  # noqa: E402
from scapy.layers.inet6 import IPv6  # noqa: E402
from scapy.layers.l2 import Dot1Q, Ether  # noqa: E402

ETHER = {"dst": "02:00:00:00:00:02", "src": "02:00:00:00:00:01"}
PACKETS = {
    "tcp4": Ether(**ETHER) / IP(src="192.0.2.1", dst="192.0.2.2") / TCP(sport=1, dport=2) / (b"x" * 77),
    "udp4": Ether(**ETHER) / IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=1, dport=2) / (b"y" * 80),
    "icmp4": Ether(**ETHER) / IP(src="192.0.2.1", dst="192.0.2.2") / ICMP() / (b"z" * 64),
    "tcp6": Ether(**ETHER) / IPv6(src="2001:db8::1", dst="2001:db8::2") / TCP() / (b"x" * 31),
    "udp6": Ether(**ETHER) / IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP() / (b"y" * 40),
    "tagged": Ether(**ETHER) / Dot1Q(vlan=5) / IP(src="192.0.2.1", dst="192.0.2.2") / UDP() / (b"t" * 50),
}
BAD = {"tcp4": TCP, "udp4": UDP, "tcp6": TCP, "udp6": UDP, "tagged": UDP, "icmp4": ICMP}


@pytest.fixture
def driver() -> Driver:
    return Driver().up()


@pytest.mark.parametrize("name", PACKETS)
def test_checksums_are_filled_in(driver: Driver, name: str) -> None:
    right = bytes(PACKETS[name])
    packet = Ether(right)
    packet[BAD[name]].chksum = 0x1234
    if IP in packet:
        packet[IP].chksum = 0x4321
    driver.queue(bytes(packet), word3=3 << 16)
    driver.kick()
    assert driver.host.wire.sent == [right]


def test_without_request_checksums_stay(driver: Driver) -> None:
    packet = Ether(bytes(PACKETS["udp4"]))
    packet[UDP].chksum = 0x1234
    driver.send(bytes(packet))
    assert driver.host.wire.sent == [bytes(packet)]


@pytest.mark.parametrize("name", PACKETS)
def test_received_checksums_are_verified(driver: Driver, name: str) -> None:
    driver.write("MAC_CONFIGURATION", 1 << 27 | 1 << 16 | 3)
    driver.give(2)
    good = bytes(PACKETS[name])
    bad = good[:-1] + bytes([good[-1] ^ 1])
    driver.arrive(good, bad)
    status = [driver.words(driver.rx_at(index))[1] for index in range(2)]
    assert [value >> 7 & 1 for value in status] == [0, 1]
    assert status[0] & 0x30 == (0x20 if name.endswith("6") else 0x10)
    assert status[0] & 0x40 == 0


def test_a_wrong_ip_header_is_told(driver: Driver) -> None:
    driver.write("MAC_CONFIGURATION", 1 << 27 | 1 << 16 | 3)
    driver.give(1)
    packet = bytearray(bytes(PACKETS["udp4"]))
    packet[24] ^= 1
    driver.arrive(bytes(packet))
    assert driver.words(driver.rx_at(0))[1] & 8
    assert driver.read("MMC_RX_IPV4_HEADER_ERROR") == 1


@pytest.mark.parametrize("version", [4, 6])
def test_a_large_tcp_segment_is_cut_up(driver: Driver, version: int) -> None:
    network = IP(src="192.0.2.1", dst="192.0.2.2", id=7) if version == 4 else IPv6()
    packet = Ether(**ETHER) / network / TCP(seq=1000, flags="PA")
    header, payload = bytes(packet), bytes(range(256)) * 10
    driver.write("DMA_CH_TX_CONTROL", 1 << 12 | 1)
    driver.queue_words(0, 0, 1000, OWN | CONTEXT | 1 << 26)
    address = driver.tx_buffer(driver.tx_next)
    driver.host.memory.data[address : address + len(header)] = header
    driver.queue_words(address, 0, len(header), OWN | FIRST | 1 << 18 | 5 << 19 | len(payload))
    address = driver.tx_buffer(driver.tx_next)
    driver.host.memory.data[address : address + len(payload)] = payload
    driver.queue_words(address, 0, len(payload), OWN | LAST)
    driver.kick()
    made = [Ether(sent) for sent in driver.host.wire.sent]
    assert b"".join(bytes(each[TCP].payload) for each in made) == payload
    assert [each[TCP].seq for each in made] == [1000, 2000, 3000]
    assert [str(each[TCP].flags) for each in made] == ["A", "A", "PA"]
    for each in made:
        again = Ether(bytes(each))
        del again[TCP].chksum
        if version == 4:
            del again[IP].chksum
        assert bytes(each) == bytes(again)


def test_a_vlan_tag_is_inserted_replaced_and_removed(driver: Driver) -> None:
    driver.queue_words(0, 0, 0, OWN | CONTEXT | 1 << 16 | 42)
    driver.write("MAC_VLAN_INCL", 1 << 20)
    plain, tagged = frame(80), frame(80, kind=b"\x81\x00\x00\x07\x88\xb5")
    driver.queue(plain, word2=2 << 14)
    driver.queue(tagged, word2=3 << 14)
    driver.queue(tagged, word2=1 << 14)
    driver.kick()
    assert driver.host.wire.sent == [
        plain[:12] + b"\x81\x00\x00\x2a" + plain[12:],
        tagged[:14] + b"\x00\x2a" + tagged[16:],
        tagged[:12] + tagged[16:],
    ]


def test_a_received_tag_is_stripped_into_the_descriptor(driver: Driver) -> None:
    driver.write("MAC_VLAN_TAG", 3 << 21 | 1 << 24)
    driver.give(1)
    driver.arrive(frame(80, kind=b"\x81\x00\x20\x07\x88\xb5"))
    assert driver.received(0)[12:14] == b"\x88\xb5"
    word0, _, _, word3 = driver.words(driver.rx_at(0))
    assert (word0, word3 >> 25 & 1, word3 & 0x7FFF) == (0x2007, 1, 80)


def test_the_mac_takes_its_own_and_what_the_filters_allow(driver: Driver) -> None:
    driver.give(8)
    group, stranger = bytes.fromhex("01005e000001"), bytes.fromhex("02ffffffffff")

    def taken(*frames: bytes) -> int:
        before = driver.read("DMA_CH_CURRENT_APP_RXDESC")
        driver.arrive(*frames)
        return (driver.read("DMA_CH_CURRENT_APP_RXDESC") - before) // 16

    assert taken(frame(), frame(to=b"\xff" * 6)) == 2
    assert taken(frame(to=stranger), frame(to=group)) == 0
    driver.write("MAC_PACKET_FILTER", 1 << 4)
    assert taken(frame(to=group)) == 1
    driver.write("MAC_PACKET_FILTER", 1 << 2)
    assert taken(frame(to=group)) == 0
    driver.write("MAC_HASH_TABLE_REG0", 0xFFFFFFFF)
    driver.write("MAC_HASH_TABLE_REG1", 0xFFFFFFFF)
    assert taken(frame(to=group)) == 1
    driver.write("MAC_PACKET_FILTER", 0)
    driver.write("MAC_ADDRESS1_HIGH", 1 << 31 | 0xFFFF)
    driver.write("MAC_ADDRESS1_LOW", 0xFFFFFF02)
    assert taken(frame(to=stranger)) == 1
    driver.write("MAC_ADDRESS1_HIGH", 0)
    driver.write("MAC_PACKET_FILTER", 1)
    assert taken(frame(to=stranger)) == 1
    driver.write("MAC_PACKET_FILTER", 1 << 5)
    assert taken(frame(to=b"\xff" * 6)) == 0


def test_the_multicast_hash_is_the_one_the_kernel_computes(driver: Driver) -> None:
    """dwmac4_set_filter(): the upper six bits of the reversed CRC; for 01:00:5e:00:00:01 that is bit 31 of 64."""
    driver.give(2)
    driver.write("MAC_PACKET_FILTER", 1 << 2)
    crc = 0xFFFFFFFF
    for byte in bytes.fromhex("01005e000001"):
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    bit = int(f"{~crc & 0xFFFFFFFF:032b}"[::-1], 2) >> 26
    driver.write(f"MAC_HASH_TABLE_REG{bit >> 5}", 1 << (bit & 31))
    driver.arrive(frame(to=bytes.fromhex("01005e000001")), frame(to=bytes.fromhex("01005e000002")))
    assert not driver.rx_status(0) & OWN
    assert driver.rx_status(1) & OWN


def test_vlan_filters_lie_behind_two_registers(driver: Driver) -> None:
    driver.give(4)
    driver.write("MAC_PACKET_FILTER", 1 << 16)
    driver.write("MAC_VLAN_TAG_DATA", 1 << 16 | 1 << 17 | 7)
    driver.write("MAC_VLAN_TAG", 2 << 2 | 1)
    assert driver.read("MAC_VLAN_TAG") & 1 == 0
    driver.arrive(*(frame(kind=b"\x81\x00" + tag + b"\x88\xb5") for tag in (b"\x00\x07", b"\x00\x08")))
    driver.arrive(frame())
    assert driver.received(0)[14:16] == b"\x00\x07"
    assert driver.received(1)[12:14] == b"\x88\xb5"
    driver.write("MAC_VLAN_TAG", 2 << 2 | 3)
    assert driver.read("MAC_VLAN_TAG_DATA") == 1 << 16 | 1 << 17 | 7


def test_priorities_choose_the_queue() -> None:
    driver = Driver(number=1).up()
    driver.write("MAC_RXQ_CTRL2", 1 << 5 << 8)
    driver.give(2)
    driver.arrive(frame(kind=b"\x81\x00\xa0\x01\x88\xb5", fill=5), frame(kind=b"\x81\x00\x20\x01\x88\xb5"))
    assert driver.received(0)[63] == 5
    assert driver.rx_status(1) & OWN


def test_ptp_time_runs_at_the_rate_that_is_set(driver: Driver) -> None:
    driver.write("MAC_SUB_SECOND_INCREMENT", 8 << 16)
    driver.write("MAC_TIMESTAMP_ADDEND", round((1 << 32) * 1e9 / 8 / 204.8e6))
    driver.write("MAC_TIMESTAMP_CONTROL", 1 | 1 << 1 | 1 << 9)
    driver.write("MAC_SYSTEM_TIME_SECONDS_UPDATE", 5)
    driver.write("MAC_SYSTEM_TIME_NANOSECONDS_UPDATE", 999_000_000)
    driver.write("MAC_TIMESTAMP_CONTROL", 1 | 1 << 1 | 1 << 9 | 1 << 2)
    assert driver.read("MAC_TIMESTAMP_CONTROL") & 4 == 0
    driver.run(2_000_000)
    assert driver.read("MAC_SYSTEM_TIME_SECONDS") == 6
    assert abs(driver.read("MAC_SYSTEM_TIME_NANOSECONDS") - 1_000_000) < 1000
    driver.write("MAC_SYSTEM_TIME_SECONDS_UPDATE", (-1) & 0xFFFFFFFF)
    driver.write("MAC_SYSTEM_TIME_NANOSECONDS_UPDATE", 1 << 31 | 1_000_000_000 - 500)
    driver.write("MAC_TIMESTAMP_CONTROL", 1 | 1 << 1 | 1 << 9 | 1 << 3)
    assert driver.read("MAC_SYSTEM_TIME_SECONDS") == 5
    assert abs(driver.read("MAC_SYSTEM_TIME_NANOSECONDS") - 999_500) < 1000


def test_frames_are_timestamped_both_ways(driver: Driver) -> None:
    driver.write("MAC_SUB_SECOND_INCREMENT", 4 << 16)
    driver.write("MAC_TIMESTAMP_CONTROL", 1 | 1 << 8 | 1 << 9)
    driver.run(1_000)
    driver.give(4)
    driver.queue(frame(), word2=1 << 30)
    driver.kick()
    nanoseconds, _, _, word3 = driver.words(driver.tx_at(0))
    assert word3 & 1 << 17
    assert nanoseconds > 0
    driver.arrive(frame())
    assert driver.words(driver.rx_at(0))[1] & 1 << 14
    assert driver.words(driver.rx_at(1)) == (nanoseconds, 0, 0, CONTEXT)


def test_only_ptp_is_timestamped_when_not_all_is_asked_for(driver: Driver) -> None:
    driver.write("MAC_TIMESTAMP_CONTROL", 1 | 1 << 9 | 1 << 10 | 1 << 11)
    driver.give(4)
    sync = (MAC + PEER + b"\x88\xf7\x00\x02").ljust(64, b"\0")
    driver.arrive(frame(), sync)
    assert driver.words(driver.rx_at(0))[1] & 1 << 14 == 0
    status = driver.words(driver.rx_at(1))[1]
    assert status & 1 << 14
    assert status >> 8 & 15 == 1  # Sync
    assert driver.rx_status(2) == CONTEXT


def test_counters_count_and_are_cleared_as_the_control_says(driver: Driver) -> None:
    driver.give(4)
    driver.send(frame(64), frame(200, to=b"\xff" * 6))
    driver.arrive(frame(1000))
    assert driver.read("MMC_TX_PACKETS_G") == 2
    assert driver.read("MMC_TX_OCTETS_G") == 272
    assert driver.read("MMC_TX_BROADCAST_G") == 1
    assert driver.read("MMC_TX_128_255_GB") == 1
    assert driver.read("MMC_RX_512_1023_GB") == 1
    assert driver.read("MMC_RX_UNICAST_G") == 1
    driver.write("MMC_CONTROL", 4)
    assert driver.read("MMC_TX_PACKETS_G") == 2
    assert driver.read("MMC_TX_PACKETS_G") == 0
    driver.write("MMC_CONTROL", 1)
    assert driver.read("MMC_TX_OCTETS_G") == 0


def mdio(driver: Driver, number: int, value: int | None = None, at: int = 1) -> int:
    driver.write("MAC_MDIO_DATA", value or 0)
    driver.write("MAC_MDIO_ADDRESS", at << 21 | number << 16 | (3 if value is None else 1) << 2 | 1)
    assert driver.read("MAC_MDIO_ADDRESS") & 1 == 0
    return driver.read("MAC_MDIO_DATA") & 0xFFFF


def test_the_phy_answers_at_its_address_only(driver: Driver) -> None:
    assert mdio(driver, 1) == 0x796D
    assert mdio(driver, 5) & 0x0C00
    assert mdio(driver, 2, at=7) == 0xFFFF


def test_a_lost_link_is_seen_once_although_it_came_back(driver: Driver) -> None:
    driver.device.plug(connected=False)
    driver.device.plug(connected=True)
    assert mdio(driver, 1) & 4 == 0
    assert mdio(driver, 1) & 4


def test_power_down_and_reset_of_the_phy(driver: Driver) -> None:
    mdio(driver, 0, 1 << 11)
    assert mdio(driver, 1) & 4 == 0
    mdio(driver, 0, 1 << 15)
    assert mdio(driver, 0) == 0x1140
