"""Both directions of the EQOS model, with a test in the driver's place."""

import zlib

import pytest
from dwmac_driver import BUFFERS, CONTEXT, FIRST, LAST, OWN, Driver, frame

RI, RBU, TI, TBU, FBE = 1 << 6, 1 << 7, 1, 1 << 2, 1 << 12
RX_VECTOR, TX_VECTOR, COMMON = 0, 1, 29


@pytest.fixture
def driver() -> Driver:
    return Driver().up()


def test_a_frame_leaves_as_it_was_and_its_descriptor_comes_back(driver: Driver) -> None:
    driver.send(frame(64), interrupt=True)
    assert driver.host.wire.sent == [frame(64)]
    assert driver.tx_status(0) == FIRST | LAST
    assert driver.host.vectors == [TX_VECTOR]
    assert driver.read("DMA_CH_STATUS") & (TI | TBU) == TI | TBU


def test_short_frames_are_padded(driver: Driver) -> None:
    driver.send(frame(20))
    assert driver.host.wire.sent == [frame(20).ljust(60, b"\0")]


def test_without_interrupt_on_completion_nothing_is_told(driver: Driver) -> None:
    driver.send(frame())
    assert driver.host.vectors == []


def test_a_frame_of_several_descriptors_is_one_frame(driver: Driver) -> None:
    data = frame(300, fill=7)
    for start, end, flags in ((0, 100, FIRST), (100, 200, 0), (200, 300, LAST)):
        address = driver.tx_buffer(driver.tx_next)
        driver.host.memory.data[address : address + end - start] = data[start:end]
        driver.queue_words(address, 0, end - start, OWN | flags | len(data))
    driver.kick()
    assert driver.host.wire.sent == [data]
    assert [driver.tx_status(index) & OWN for index in range(3)] == [0, 0, 0]


def test_a_frame_waits_until_all_its_descriptors_are_there(driver: Driver) -> None:
    data = frame(100)
    first = driver.queue(data[:60])
    driver.set_words(driver.tx_at(first), driver.tx_buffer(first), 0, 60, OWN | FIRST | 100)
    driver.kick()
    assert driver.host.wire.sent == []
    second = driver.queue(data[60:])
    driver.set_words(driver.tx_at(second), driver.tx_buffer(second), 0, 40, OWN | LAST)
    driver.kick()
    assert driver.host.wire.sent == [data]


def test_the_ring_wraps(driver: Driver) -> None:
    for number in range(40):
        driver.send(frame(64, fill=number))
    assert [sent[-1] for sent in driver.host.wire.sent] == list(range(40))


def test_extended_descriptors_are_twice_as_long(driver: Driver) -> None:
    driver.stride = 32
    driver.write("DMA_CH_TX_CONTROL", 1 << 28 | 1)
    driver.send(frame(64, fill=1), frame(64, fill=2))
    assert [sent[-1] for sent in driver.host.wire.sent] == [1, 2]


def test_nothing_is_sent_while_the_channel_or_the_mac_is_off() -> None:
    driver = Driver().up()
    driver.write("DMA_CH_TX_CONTROL", 0)
    driver.send(frame())
    driver.write("MAC_CONFIGURATION", 1)
    driver.write("DMA_CH_TX_CONTROL", 1)
    driver.run()
    assert driver.host.wire.sent == []
    driver.write("MAC_CONFIGURATION", 3)
    driver.run()
    assert driver.host.wire.sent == [frame()]


def test_a_frame_is_received_with_its_fcs(driver: Driver) -> None:
    driver.give(4)
    driver.arrive(frame(64, fill=3))
    data = frame(64, fill=3)
    assert driver.received(0) == data + zlib.crc32(data).to_bytes(4, "little")
    assert driver.rx_status(0) & (OWN | FIRST | LAST) == FIRST | LAST


def test_the_watchdog_interrupts_200_us_after_the_first_frame(driver: Driver) -> None:
    driver.give(4)
    driver.arrive(frame())
    driver.run(199_000)
    assert driver.host.vectors == []
    driver.run(2_000)
    assert driver.host.vectors == [RX_VECTOR]
    assert driver.read("DMA_CH_STATUS") & RI


def test_a_descriptor_that_asks_for_it_interrupts_at_once(driver: Driver) -> None:
    driver.give(1, interrupt=True)
    driver.arrive(frame())
    assert driver.host.vectors == [RX_VECTOR]


def test_a_starved_channel_says_so_and_goes_on_when_it_gets_buffers(driver: Driver) -> None:
    driver.arrive(frame(64, fill=1))
    assert driver.read("DMA_CH_STATUS") & RBU
    assert driver.host.vectors == [COMMON]
    driver.give(1)
    assert driver.received(0)[:64] == frame(64, fill=1)


def test_a_long_frame_takes_several_descriptors() -> None:
    driver = Driver().up()
    data = frame(5000, fill=9)
    driver.write("MAC_CONFIGURATION", 1 << 16 | 3)
    driver.give(4)
    driver.arrive(data)
    lengths = [driver.rx_status(index) & 0x7FFF for index in range(3)]
    assert lengths == [2048, 4096, 5004]  # what is there so far
    flags = [driver.rx_status(index) & (FIRST | LAST) for index in range(3)]
    assert flags == [FIRST, 0, LAST]
    held = bytes(driver.host.memory.data[BUFFERS : BUFFERS + 5000])
    assert held == data


def test_the_second_buffer_is_used_when_it_is_valid(driver: Driver) -> None:
    data = frame(3000, fill=5)
    second = driver.rx_buffer(8)
    driver.set_words(driver.rx_at(0), driver.rx_buffer(0), 0, second, OWN | 3 << 24)
    driver.rx_next = 1
    driver.write("DMA_CH_RXDESC_TAIL_POINTER", driver.rx_at(1))
    driver.arrive(data)
    held = driver.host.memory.data[driver.rx_buffer(0) : driver.rx_buffer(0) + 2048]
    held += driver.host.memory.data[second : second + 952]
    assert bytes(held) == data
    assert driver.rx_status(0) & (FIRST | LAST) == FIRST | LAST


def test_a_full_fifo_pauses_the_link_partner_and_loses_nothing(driver: Driver) -> None:
    driver.write("MAC_Q0_TX_FLOW_CTRL", 2)
    driver.arrive(*(frame(1000, fill=number) for number in range(16)))
    driver.give(16)
    assert [driver.received(index)[999] for index in range(16)] == list(range(16))
    assert driver.read("MMC_TX_PAUSE") >= 1


def test_the_wire_is_read_no_further_when_very_much_waits(driver: Driver) -> None:
    driver.write("MAC_Q0_TX_FLOW_CTRL", 2)
    driver.arrive(*(frame(1500) for _ in range(12_000)))
    assert driver.host.wire.paused
    for _ in range(100):
        driver.give(16)
    assert not driver.host.wire.paused


def test_without_flow_control_what_finds_no_room_is_lost_and_counted(driver: Driver) -> None:
    driver.arrive(*(frame(1000, fill=number) for number in range(16)))
    driver.give(16)
    kept = sum(not driver.rx_status(index) & OWN for index in range(16))
    assert kept == 4  # of 1004 bytes each, in 4 KiB
    assert driver.read("MMC_RX_FIFO_OVERFLOW") == 12
    assert driver.read("DMA_CH_MISS_FRAME_CNT") == 12
    assert driver.read("DMA_CH_MISS_FRAME_CNT") == 0


def test_loopback_brings_back_what_was_sent(driver: Driver) -> None:
    driver.write("MAC_CONFIGURATION", 1 << 16 | 1 << 12 | 3)
    driver.give(2)
    driver.send(frame(80, fill=4))
    assert driver.received(0)[:80] == frame(80, fill=4)
    assert driver.host.wire.sent == []


def test_a_software_reset_forgets_rings_and_registers(driver: Driver) -> None:
    driver.send(frame())
    driver.write("DMA_MODE", 1)
    assert driver.read("DMA_MODE") == 0
    assert driver.read("DMA_CH_TXDESC_LIST_ADDRESS") == 0
    assert driver.device.transmitters[0].position == 0


def test_other_channels_have_rings_and_vectors_of_their_own() -> None:
    driver = Driver(number=2).up()
    driver.write("MAC_RXQ_CTRL1", 2 << 12)
    driver.give(1, interrupt=True)
    driver.arrive(frame(fill=6))
    driver.send(frame(fill=5), interrupt=True)
    assert driver.received(0)[:64] == frame(fill=6)
    assert driver.host.wire.sent == [frame(fill=5)]
    assert driver.host.vectors == [4, 5]


def test_a_snapshot_goes_on_where_it_was(driver: Driver) -> None:
    driver.give(8)
    driver.arrive(frame(fill=1))
    driver.send(frame(fill=1))
    state = driver.device.save()
    restored = Driver()
    restored.host.memory.data[:] = driver.host.memory.data
    restored.device.load(state)
    restored.tx_next, restored.rx_next = driver.tx_next, driver.rx_next
    assert restored.device.save() == state
    restored.send(frame(fill=2))
    restored.arrive(frame(fill=2))
    restored.run(300_000)
    assert restored.host.wire.sent == [frame(fill=2)]
    assert restored.received(1)[:64] == frame(fill=2)
    assert restored.host.vectors == [RX_VECTOR]


def test_a_state_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="expected the state of a DesignWare EQOS"):
        Driver().device.load(b"\x93\x01\x02\x03")


def test_the_mss_context_takes_a_descriptor(driver: Driver) -> None:
    index = driver.queue_words(0, 0, 1000, OWN | CONTEXT | 1 << 26)
    driver.send(frame())
    assert driver.tx_status(index) == CONTEXT
    assert driver.host.wire.sent == [frame()]
