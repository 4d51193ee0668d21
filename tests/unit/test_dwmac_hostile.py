"""A guest that means harm: whatever it writes, the EQOS model neither fails nor turns for long."""

import random
import struct
import time

import pytest
from dwmac_driver import CONTEXT, FIRST, LAST, OWN, Driver, frame

from testbed.dwmac import StmmacPci
from testbed.dwmac.registers import BAR_BYTES, REGISTERS

NOWHERE = 0xFFFFFFF0


@pytest.fixture
def driver() -> Driver:
    return Driver().up()


def test_a_ring_outside_memory_is_a_bus_error(driver: Driver) -> None:
    driver.write("DMA_CH_TXDESC_LIST_ADDRESS", NOWHERE)
    driver.write("DMA_CH_TXDESC_TAIL_POINTER", 0)
    driver.run()
    assert driver.read("DMA_CH_STATUS") & 1 << 12


def test_a_buffer_outside_memory_is_a_bus_error(driver: Driver) -> None:
    driver.queue_words(NOWHERE, 0xFF, 64, OWN | FIRST | LAST | 64)
    driver.kick()
    assert driver.read("DMA_CH_STATUS") & 1 << 12
    assert driver.host.wire.sent == []


def test_a_receive_buffer_outside_memory_is_a_bus_error(driver: Driver) -> None:
    driver.set_words(driver.rx_at(0), NOWHERE, 0, 0, OWN | 1 << 24)
    driver.write("DMA_CH_RXDESC_TAIL_POINTER", driver.rx_at(1))
    driver.arrive(frame())
    assert driver.read("DMA_CH_STATUS") & 1 << 12


def test_a_frame_without_end_is_given_back_with_an_error(driver: Driver) -> None:
    for _ in range(16):
        driver.queue_words(driver.tx_buffer(0), 0, 0x3FFF, OWN | FIRST)
    driver.kick()
    assert driver.host.wire.sent == []
    assert not driver.tx_status(3) & OWN


def test_a_frame_longer_than_the_mac_sends_is_refused(driver: Driver) -> None:
    for flags in (FIRST, 0, LAST):
        driver.queue_words(driver.tx_buffer(0), 0, 16000, OWN | flags)
    driver.kick()
    assert driver.host.wire.sent == []
    assert driver.tx_status(2) & 1 << 15


def test_a_ring_that_refills_itself_does_not_hold_the_server(driver: Driver) -> None:
    """Another CPU of the guest gives every descriptor back at once: the model lets its host do other things between."""
    for index in range(16):
        driver.set_words(driver.tx_at(index), driver.tx_buffer(0), 0, 64, OWN | FIRST | LAST | 64)
    original = driver.host.wire.send

    def send(data: bytes) -> None:
        original(data)
        for index in range(16):
            driver.set_words(driver.tx_at(index), driver.tx_buffer(0), 0, 64, OWN | FIRST | LAST | 64)

    driver.host.wire.send = send  # type: ignore[assignment,method-assign]
    driver.write("DMA_CH_TXDESC_TAIL_POINTER", 0)
    with pytest.raises(RuntimeError, match="still acts"):
        driver.host.run(most=20)
    assert len(driver.host.wire.sent) == 21 * 16


def test_segments_are_never_smaller_than_64_bytes(driver: Driver) -> None:
    driver.write("DMA_CH_TX_CONTROL", 1 << 12 | 1)
    driver.queue_words(0, 0, 1, OWN | CONTEXT | 1 << 26)
    header = (
        bytes.fromhex("0200000000020200000000010800") + bytes.fromhex("4500") + bytes(7) + b"\x06" + bytes(30)
    )
    address = driver.tx_buffer(1)
    driver.host.memory.data[address : address + len(header)] = header
    driver.queue_words(address, 0, 54, OWN | FIRST | 1 << 18 | 16000)
    driver.queue_words(driver.tx_buffer(2), 0, 16000, OWN | LAST)
    driver.kick()
    assert len(driver.host.wire.sent) == 250


def test_every_register_can_be_read_and_written_in_every_width(driver: Driver) -> None:
    for offset in range(0, BAR_BYTES, 4):
        for size in (1, 2, 4, 8):
            if offset % size == 0:
                value = driver.device.read(0, offset, size)
                assert 0 <= value < 1 << 8 * size
                driver.device.write(0, offset, size, (1 << 8 * size) - 1)
    driver.device.write(2, 0, 4, 0xFFFFFFFF)
    assert driver.device.read(2, 0, 4) == 0
    driver.host.run(for_ns=10_000_000)


def test_what_is_read_only_stays(driver: Driver) -> None:
    driver.write("MAC_VERSION", 0)
    driver.write("MAC_HW_FEATURE1", 0)
    assert driver.read("MAC_VERSION") == 0x1051
    assert driver.device.read(0, 0x111, 1) == 0x10


@pytest.mark.parametrize("seed", range(20))
def test_random_registers_and_descriptors(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    driver = Driver(model=StmmacPci) if seed % 4 == 3 else Driver()
    if seed % 4 == 3:
        driver.host.interrupts = "intx"
    driver.up()
    offsets = [register.offset for register in REGISTERS.values()]
    flags = (OWN, OWN | FIRST, OWN | FIRST | LAST, OWN | LAST, OWN | CONTEXT, OWN | FIRST | 1 << 18)
    started = time.monotonic()
    for _ in range(300):
        for _ in range(chance.randrange(4)):
            driver.device.write(0, chance.choice(offsets), 4, chance.getrandbits(32))
            driver.device.read(0, chance.choice(offsets), 4)
        for index in range(32):
            at = 0x10000 + index * 16 + chance.choice((0, 0x8000))
            address = chance.choice((0x200000, 0x10000, NOWHERE, chance.getrandbits(32)))
            word3 = chance.choice(flags) | chance.getrandbits(28)
            struct.pack_into(
                "<4I",
                driver.host.memory.data,
                at,
                address,
                chance.choice((0, 0xFF)),
                chance.getrandbits(32),
                word3,
            )
        for name in ("DMA_CH_TXDESC_TAIL_POINTER", "DMA_CH_RXDESC_TAIL_POINTER"):
            driver.write(name, chance.getrandbits(32))
        driver.host.wire.arrive(
            *(chance.randbytes(chance.randrange(1, 3000)) for _ in range(chance.randrange(4)))
        )
        driver.host.run(for_ns=chance.randrange(300_000))
        driver.host.rows.clear()
        if chance.random() < 0.1:
            driver.up()
    assert time.monotonic() - started < 20
