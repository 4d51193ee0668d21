"""Interrupts of the EQOS model, and the test's hand on it."""

from typing import Union

import msgspec
import pytest
from dwmac_driver import FIRST, LAST, OWN, Driver, frame

from testbed.dwmac import StmmacPci
from testbed.dwmac.commands import (
    COMMANDS,
    BusError,
    Complete,
    Delay,
    Hold,
    Pause,
    Release,
    Resume,
    Spoil,
    Spurious,
    Stall,
    Steer,
    Tail,
    Unplug,
)
from testbed.vfio_user import Command, DeviceEvent

RI, TI, RIE, TIE, NIS, FBE = 1 << 6, 1, 1 << 6, 1, 1 << 15, 1 << 12
RX_VECTOR, TX_VECTOR, COMMON = 0, 1, 29
ENABLE_ALL = 0xD0C1


@pytest.fixture
def driver() -> Driver:
    return Driver().up()


def tell(driver: Driver, command: Command) -> None:
    driver.device.command(command)
    driver.run()


def test_a_masked_cause_is_kept_and_told_when_unmasked(driver: Driver) -> None:
    driver.write("DMA_CH_INTERRUPT_ENABLE", ENABLE_ALL & ~TIE)
    driver.send(frame(), interrupt=True)
    assert driver.read("DMA_CH_STATUS") & (TI | NIS) == TI
    assert driver.host.vectors == []
    driver.write("DMA_CH_INTERRUPT_ENABLE", ENABLE_ALL)
    assert driver.host.vectors == [TX_VECTOR]
    assert driver.read("DMA_CH_STATUS") & NIS


def test_a_cause_is_told_once_until_the_guest_clears_it(driver: Driver) -> None:
    driver.send(frame(), interrupt=True)
    driver.send(frame(), interrupt=True)
    assert driver.host.vectors == [TX_VECTOR]
    driver.write("DMA_CH_STATUS", TI | NIS)
    driver.send(frame(), interrupt=True)
    assert driver.host.vectors == [TX_VECTOR, TX_VECTOR]


def test_clearing_the_summary_for_one_direction_leaves_the_others_cause(driver: Driver) -> None:
    driver.give(1, interrupt=True)
    driver.send(frame(), interrupt=True)
    driver.arrive(frame())
    driver.write("DMA_CH_STATUS", TI | NIS)
    assert driver.read("DMA_CH_STATUS") & (RI | NIS) == RI


def test_one_pin_follows_the_level_of_all_causes() -> None:
    driver = Driver(model=StmmacPci)
    driver.host.interrupts = "intx"
    driver.up()
    driver.write("DMA_MODE", 0)
    driver.send(frame(), interrupt=True)
    assert driver.host.high
    assert driver.read("DMA_INTERRUPT_STATUS") == 1
    driver.write("DMA_CH_STATUS", TI)
    assert not driver.host.high


def test_held_interrupts_come_when_they_are_released(driver: Driver) -> None:
    tell(driver, Hold())
    driver.give(1, interrupt=True)
    driver.arrive(frame())
    driver.send(frame(), interrupt=True)
    assert driver.host.vectors == []
    driver.write("DMA_CH_STATUS", TI)
    tell(driver, Release())
    assert driver.host.vectors == [RX_VECTOR]


@pytest.mark.parametrize("count", [1, 3, 8])
def test_exactly_so_many_received_frames_complete(driver: Driver, count: int) -> None:
    driver.give(12)
    tell(driver, Complete("rx", count))
    driver.arrive(*(frame(fill=number) for number in range(10)))
    assert sum(not driver.rx_status(index) & OWN for index in range(12)) == count
    tell(driver, Resume("rx"))
    assert sum(not driver.rx_status(index) & OWN for index in range(12)) == 10


def test_exactly_so_many_sent_frames_complete(driver: Driver) -> None:
    tell(driver, Stall("tx"))
    driver.send(*(frame(fill=number) for number in range(6)))
    assert driver.host.wire.sent == []
    tell(driver, Complete("tx", 4))
    assert len(driver.host.wire.sent) == 4
    assert driver.tx_status(4) & OWN
    tell(driver, Resume("tx"))
    assert len(driver.host.wire.sent) == 6


def test_sent_descriptors_come_back_late_but_in_order(driver: Driver) -> None:
    tell(driver, Delay("tx", 50))
    driver.send(*(frame(fill=number) for number in range(3)), interrupt=True)
    assert len(driver.host.wire.sent) == 3
    assert driver.tx_status(0) & OWN
    driver.run(49_000)
    assert driver.host.vectors == []
    driver.run(2_000)
    assert [driver.tx_status(index) for index in range(3)] == [FIRST | LAST] * 3
    assert driver.host.vectors == [TX_VECTOR]


def test_a_delayed_ring_is_never_sent_twice(driver: Driver) -> None:
    tell(driver, Delay("tx", 50))
    driver.send(*(frame(fill=number) for number in range(16)))
    driver.kick()
    assert len(driver.host.wire.sent) == 16


def test_received_frames_arrive_late(driver: Driver) -> None:
    driver.give(2)
    tell(driver, Delay("rx", 30))
    driver.arrive(frame())
    driver.run(29_000)
    assert driver.rx_status(0) & OWN
    driver.run(2_000)
    assert not driver.rx_status(0) & OWN


@pytest.mark.parametrize(
    ("what", "bit"), [("crc", 24), ("overrun", 21), ("length", 23), ("watchdog", 22), ("receive", 20)]
)
def test_a_spoiled_frame_shows_its_error(driver: Driver, what: str, bit: int) -> None:
    driver.give(3)
    tell(driver, Spoil("rx", what, after=1))  # type: ignore[arg-type] # parametrised
    driver.arrive(frame(), frame(), frame())
    assert [driver.rx_status(index) >> 15 & 1 for index in range(3)] == [0, 1, 0]
    assert driver.rx_status(1) & 1 << bit


def test_dropped_and_corrupted_frames(driver: Driver) -> None:
    driver.give(3)
    tell(driver, Spoil("rx", "drop"))
    tell(driver, Spoil("rx", "corrupt"))
    driver.arrive(frame(fill=1), frame(fill=2), frame(fill=3))
    assert [driver.received(index)[63] for index in range(2)] == [2 ^ 0xFF, 3]
    tell(driver, Spoil("tx", "drop"))
    tell(driver, Spoil("tx", "underflow"))
    driver.send(frame(fill=4), frame(fill=5), frame(fill=6))
    assert driver.host.wire.sent == [frame(fill=6)]
    assert [driver.tx_status(index) & 1 << 15 for index in range(3)] == [0, 1 << 15, 0]


def test_a_spurious_interrupt_has_no_cause(driver: Driver) -> None:
    before = driver.read("DMA_CH_STATUS")
    tell(driver, Spurious("tx", 1))
    assert driver.host.vectors == [3]
    assert driver.read("DMA_CH_STATUS") == before


def test_a_bus_error_stops_the_channel_until_it_is_set_up_anew(driver: Driver) -> None:
    tell(driver, BusError("tx"))
    assert driver.read("DMA_CH_STATUS") & FBE
    assert driver.host.vectors == [COMMON]
    driver.send(frame())
    assert driver.host.wire.sent == []
    driver.write("DMA_CH_TXDESC_LIST_ADDRESS", 0x10000)
    driver.tx_next = 0
    driver.send(frame())
    assert driver.host.wire.sent == [frame()]


def test_the_cable_comes_out_in_the_middle_of_a_burst(driver: Driver) -> None:
    driver.give(8)
    tell(driver, Unplug(3))
    driver.arrive(*(frame(fill=number) for number in range(6)))
    assert sum(not driver.rx_status(index) & OWN for index in range(8)) == 3
    assert [row.a for row in driver.host.rows if row.kind == DeviceEvent.LINK] == [0]
    driver.device.plug(connected=True)
    driver.arrive(frame())
    assert sum(not driver.rx_status(index) & OWN for index in range(8)) == 4


def test_reception_stops_at_the_tail(driver: Driver) -> None:
    driver.give(4)
    for index in range(4, 8):  # given by OWN alone: the tail stays
        driver.set_words(driver.rx_at(index), driver.rx_buffer(index), 0, 0, OWN | 1 << 24)
    driver.arrive(*(frame() for _ in range(6)))
    assert [driver.rx_status(index) & OWN for index in range(6)] == [0, 0, 0, 0, OWN, OWN]
    driver.rx_next = 8
    driver.write("DMA_CH_RXDESC_TAIL_POINTER", driver.rx_at(8))
    driver.run()
    assert not driver.rx_status(5) & OWN


def test_a_tail_at_the_current_descriptor_means_the_whole_ring(driver: Driver) -> None:
    driver.give(16)
    driver.arrive(*(frame() for _ in range(16)))
    assert not any(driver.rx_status(index) & OWN for index in range(16))


@pytest.mark.parametrize("given", [0, 5, 16])
def test_before_the_start_the_tail_says_how_many_there_are(driver: Driver, given: int) -> None:
    driver.write("DMA_CH_RX_CONTROL", 2048)
    for index in range(16):
        driver.set_words(driver.rx_at(index), driver.rx_buffer(index), 0, 0, OWN | 1 << 24)
    driver.write("DMA_CH_RXDESC_RING_LENGTH", 0)
    driver.write("DMA_CH_RXDESC_LIST_ADDRESS", driver.rx_at(0))
    driver.write("DMA_CH_RXDESC_TAIL_POINTER", driver.rx_at(0) + 16 * given)
    driver.write("DMA_CH_RXDESC_RING_LENGTH", 15)  # as late as the kernel's driver writes it
    driver.write("DMA_CH_RX_CONTROL", 2049)
    driver.arrive(*(frame() for _ in range(16)))
    assert sum(not driver.rx_status(index) & OWN for index in range(16)) == given


def test_a_device_may_go_by_own_alone(driver: Driver) -> None:
    tell(driver, Tail(honoured=False))
    driver.give(1)
    driver.set_words(driver.rx_at(1), driver.rx_buffer(1), 0, 0, OWN | 1 << 24)
    driver.arrive(frame(), frame())
    assert not driver.rx_status(1) & OWN


def test_frames_are_steered_by_hand(driver: Driver) -> None:
    other = Driver(number=3)
    other.device, other.host = driver.device, driver.host
    other.up()
    other.give(2)
    tell(driver, Steer(3))
    driver.arrive(frame(fill=8))
    assert other.received(0)[63] == 8
    tell(driver, Steer(None))
    other.arrive(frame(fill=9))
    assert other.rx_status(1) & OWN


def test_a_partner_that_does_not_pause_loses_frames(driver: Driver) -> None:
    driver.write("MAC_Q0_TX_FLOW_CTRL", 2)
    tell(driver, Pause(on=False))
    driver.arrive(*(frame(1000) for _ in range(16)))
    assert driver.read("MMC_RX_FIFO_OVERFLOW") == 12
    assert [row.a for row in driver.host.rows if row.kind == DeviceEvent.DROPPED] == [2] * 12


def test_the_trace_shows_what_the_device_did(driver: Driver) -> None:
    driver.host.rows.clear()
    driver.send(frame(), interrupt=True)
    kinds = [row.kind for row in driver.host.rows]
    assert kinds == [DeviceEvent.TAIL, DeviceEvent.TX_DONE, DeviceEvent.CAUSE]  # TBU is set since the start
    assert driver.host.rows[0].a == 1
    assert driver.host.rows[0].b == 1
    assert driver.host.rows[1].b == 64


def test_the_words_of_the_step_are_checked() -> None:
    decoder = msgspec.json.Decoder(Union[COMMANDS])  # type: ignore[valid-type] # noqa: UP007 - a tuple of types
    assert decoder.decode(b'{"command": "complete", "direction": "tx", "count": 3}') == Complete("tx", 3)
    assert decoder.decode(b'{"command": "steer", "queue": null}') == Steer(None)
    for wrong in (b'{"command": "steer", "queue": 4}', b'{"command": "stall", "direction": "up"}', b"{}"):
        with pytest.raises(msgspec.ValidationError):
            decoder.decode(wrong)
