"""The vfio-user server against a client without QEMU: what it answers, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from typing import TYPE_CHECKING

import pytest
from vfio_devices import Probe, descriptors, probe, refused

from testbed.vfio_user import DmaFault
from testbed.vfio_user.connection import Disconnected
from testbed.vfio_user.fake_client import Client, memory_file
from testbed.vfio_user.protocol import (
    DMA_MAP,
    HEADER,
    INFO,
    MAX_DMA_MAPS,
    REGION_INFO,
    REGION_RW,
    VERSION,
    Command,
    Irq,
    MessageFlags,
    Region,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    before = descriptors()
    with Client(Probe, tmp_path) as connected:
        yield connected
    assert descriptors() == before, "descriptors were left open"


# Hello, and what there is


def test_the_version_is_answered_with_capabilities_that_end_in_nul(client: Client) -> None:
    answer = client.version()
    assert VERSION.unpack_from(answer) == (0, 0)
    assert answer.endswith(b"\0")
    assert json.loads(answer[4:-1])["capabilities"]["write_multiple"] is True


def test_the_answer_to_version_is_never_longer_than_the_request(client: Client) -> None:
    assert client.version(capabilities=b"{}\0") == VERSION.pack(0, 0)


def test_another_major_version_is_refused(client: Client) -> None:
    with refused(errno.EINVAL):
        client.request(Command.VERSION, VERSION.pack(1, 0))


def test_the_device_says_what_it_is(client: Client) -> None:
    assert INFO.unpack(client.request(Command.DEVICE_GET_INFO, bytes(16))) == (16, 3, 9, 5)


@pytest.mark.parametrize(
    ("region", "size"), [(0, 4096), (1, 0), (2, 4096), (3, 0), (4, 64), (5, 0), (6, 0), (7, 4096), (8, 0)]
)
def test_regions_have_their_declared_sizes(client: Client, region: int, size: int) -> None:
    answer = client.request(Command.DEVICE_GET_REGION_INFO, REGION_INFO.pack(32, 0, region, 0, 0, 0))
    assert REGION_INFO.unpack(answer) == (32, 3 if size else 0, region, 0, size, 0)


@pytest.mark.parametrize(("index", "flags", "count"), [(0, 7, 1), (1, 9, 4), (2, 9, 20)])
def test_interrupts_have_their_declared_numbers(client: Client, index: int, flags: int, count: int) -> None:
    answer = client.request(Command.DEVICE_GET_IRQ_INFO, INFO.pack(16, 0, index, 0))
    assert INFO.unpack(answer) == (16, flags, index, count)


def test_regions_and_interrupts_that_are_not_there_are_refused(client: Client) -> None:
    with refused(errno.EINVAL):
        client.request(Command.DEVICE_GET_REGION_INFO, REGION_INFO.pack(32, 0, 9, 0, 0, 0))
    with refused(errno.EINVAL):
        client.request(Command.DEVICE_GET_IRQ_INFO, INFO.pack(16, 0, 5, 0))


@pytest.mark.parametrize("command", [0, 6, 11, 12, 14, 16, 0xFFFF])
def test_other_commands_are_refused(client: Client, command: int) -> None:
    with refused(errno.ENOTSUP):
        client.request(command, bytes(64))


@pytest.mark.parametrize("command", sorted({*Command} - {6, 11, 12, 13}))
def test_a_message_too_short_for_its_command_is_refused(client: Client, command: int) -> None:
    with refused(errno.EINVAL):
        client.request(command, b"\0")


# The configuration space


def test_the_guest_finds_identity_and_capabilities(client: Client) -> None:
    config = client.request(Command.REGION_READ, REGION_RW.pack(0, Region.CONFIG, 256))[REGION_RW.size :]
    assert struct.unpack_from("<HH", config) == (0x1234, 0x5678)
    assert config[8:12] == bytes((3, 0, 0, 2))
    assert struct.unpack_from("<HH", config, 0x2C) == (0x1AF4, 9)
    found, at = [], config[0x34]
    while at:
        found.append(config[at])
        at = config[at + 1]
    assert found == [0x01, 0x05, 0x11, 0x10]


def test_a_bar_tells_its_size_when_ones_are_written(client: Client) -> None:
    for bar in (0, 2, 4):
        client.write(Region.CONFIG, 0x10 + 4 * bar, 4, 0xFFFFFFFF)
    sizes = [client.read(Region.CONFIG, 0x10 + 4 * bar, 4) for bar in (0, 2, 4)]
    assert sizes == [0xFFFFF000, 0xFFFFF004, 0xFFFFFFC1]


def test_read_only_bits_stay(client: Client) -> None:
    client.write(Region.CONFIG, 0, 4, 0)
    client.write(Region.CONFIG, 4, 2, 0xFFFF)
    assert client.read(Region.CONFIG, 0, 4) == 0x56781234
    assert client.read(Region.CONFIG, 4, 2) == 0x0547


# Registers


def test_registers_are_read_and_written(client: Client) -> None:
    client.write(0, 8, 4, 0xCAFE)
    assert client.read(0, 8, 4) == 0xCAFE
    assert probe(client).written == [(0, 8, 4, 0xCAFE)]


def test_posted_writes_come_before_a_later_read_and_have_no_answer(client: Client) -> None:
    for value in range(5):
        client.post(0, 16, 2, value)
    assert client.read(0, 16, 2) == 4
    assert client.receive() is None


def test_several_writes_in_one_message_come_in_their_order(client: Client) -> None:
    client.write_multi((0, 0, 4, 1), (0, 0, 8, 2), (0, 4, 1, 3))
    assert probe(client).written == [(0, 0, 4, 1), (0, 0, 8, 2), (0, 4, 1, 3)]


@pytest.mark.parametrize(
    ("region", "offset", "size"),
    [
        *[(0, 4096, 4), (0, 4094, 4), (0, 1 << 63, 4), (0, 0, 3), (0, 2, 4), (0, 0, 16), (0, 0, 0)],
        *[(1, 0, 4), (8, 0, 4), (9, 0, 4), (0xFFFFFFFF, 0, 4)],
        *[(7, 4096, 1), (7, 4090, 16), (7, 0, 4097)],
    ],
)
def test_accesses_outside_a_region_or_across_words_are_refused(
    client: Client, region: int, offset: int, size: int
) -> None:
    with refused(errno.EINVAL):
        client.request(Command.REGION_READ, REGION_RW.pack(offset, region, size))
    with refused(errno.EINVAL):
        client.request(Command.REGION_WRITE, REGION_RW.pack(offset, region, size) + bytes(min(size, 5000)))
    assert not probe(client).written


def test_a_write_that_brings_other_than_it_announces_is_refused(client: Client) -> None:
    with refused(errno.EINVAL):
        client.request(Command.REGION_WRITE, REGION_RW.pack(0, 0, 4) + b"\0\0\0")
    with refused(errno.EINVAL):
        client.request(Command.REGION_WRITE_MULTI, struct.pack("<Q", 1 << 60) + bytes(48))
    with refused(errno.EINVAL):
        client.write_multi((0, 0, 9, 0))


def test_qemus_tables_of_msix_are_not_the_models(client: Client) -> None:
    client.write(2, 16, 4, 0xFFFFFFFF)
    assert (client.read(2, 16, 4), client.read(2, 2048, 8)) == (0, 0)
    assert client.read(2, 320, 4) == 2  # behind the table
    assert not probe(client).written


def test_a_reset_takes_back_configuration_and_registers(client: Client) -> None:
    client.write(Region.CONFIG, 4, 2, 7)
    client.write(0, 0, 4, 1)
    client.request(Command.DEVICE_RESET)
    assert (client.read(Region.CONFIG, 4, 2), client.read(0, 0, 4), probe(client).resets) == (0, 0, 1)


# Memory


def test_the_device_reaches_what_is_mapped(client: Client) -> None:
    client.map_memory(8192, address=0x100000)
    view = probe(client).host.memory.view(0x101FF0, 16)
    view.cast("I")[3] = 0x01020304
    assert bytes(client.memory[8188:]) == b"\4\3\2\1"


@pytest.mark.parametrize(
    ("address", "length"), [(0xFFFFF, 1), (0x102000, 1), (0x101FFF, 2), (0, 4), (1 << 64, 1)]
)
def test_what_is_not_mapped_is_a_fault(client: Client, address: int, length: int) -> None:
    client.map_memory(8192, address=0x100000)
    with pytest.raises(DmaFault):
        probe(client).host.memory.view(address, length)


def test_a_negative_length_is_a_fault(client: Client) -> None:
    client.map_memory(8192)
    assert len(probe(client).host.memory.view(4096, 0)) == 0
    with pytest.raises(DmaFault):
        probe(client).host.memory.view(4096, -1)


def test_without_bus_mastering_there_is_no_memory(client: Client) -> None:
    client.map_memory(8192)
    memory = probe(client).host.memory
    memory.view(0, 1)
    client.write(Region.CONFIG, 4, 2, 0x0003)
    with pytest.raises(DmaFault):
        memory.view(0, 1)


def test_what_was_unmapped_is_gone_at_once(client: Client) -> None:
    client.map_memory(8192)
    memory = probe(client).host.memory
    generation = memory.generation
    memory.view(0, 1)
    assert len(client.unmap(0, 8192)) == 24
    assert memory.generation != generation
    with pytest.raises(DmaFault):
        memory.view(0, 1)


def test_unmapping_asks_for_the_exact_range(client: Client) -> None:
    client.map_memory(8192)
    for address, size in ((0, 4096), (4096, 4096), (0, 8193)):
        with refused(errno.ENOENT):
            client.unmap(address, size)
    probe(client).host.memory.view(0, 8192)


def test_memory_of_two_files_does_not_join(client: Client) -> None:
    client.map_memory(4096)
    client.map_memory(4096, address=4096)
    with pytest.raises(DmaFault):
        probe(client).host.memory.view(4095, 2)


def test_a_range_without_descriptor_is_taken_and_never_reached(client: Client) -> None:
    client.map_memory(4096)
    client.map(0xF0000, 65536, None)
    with pytest.raises(DmaFault):
        probe(client).host.memory.view(0xF0000, 1)
    client.unmap(0xF0000, 65536)


@pytest.mark.parametrize(
    ("address", "size", "offset", "number"),
    [
        (0, 0, 0, errno.EINVAL),
        (1 << 63, 1 << 63, 4096, errno.EINVAL),
        ((1 << 64) - 4096, 8192, 0, errno.EINVAL),
        (0, 8192, 4096, errno.EINVAL),
        (0, 4096, 1, errno.EINVAL),
        (0, 4096, 1 << 63, errno.EINVAL),
    ],
)
def test_mappings_that_cannot_be_are_refused(
    client: Client, address: int, size: int, offset: int, number: int
) -> None:
    fd = memory_file(8192)
    try:
        with refused(number):
            client.map(address, size, fd, offset)
    finally:
        os.close(fd)


def test_overlapping_mappings_are_refused(client: Client) -> None:
    client.map_memory(8192, address=4096)
    for address, size in ((0, 4097), (4096, 8192), (8191, 1), (0, 1 << 40)):
        with refused(errno.EEXIST):
            client.map(address, size, None)


def test_memory_that_could_shrink_under_the_device_is_refused(client: Client, tmp_path: Path) -> None:
    unsealed = memory_file(4096, sealed=False)
    ordinary = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    os.ftruncate(ordinary, 4096)
    for fd in (unsealed, ordinary):
        with refused(errno.EPERM):
            client.map(0, 4096, fd)
        os.close(fd)


def test_there_is_a_limit_to_mappings(client: Client) -> None:
    for number in range(MAX_DMA_MAPS):
        client.map(number << 20, 4096, None)
    with refused(errno.ENOSPC):
        client.map(1 << 40, 4096, None)


# The stream


def test_descriptors_belong_to_the_last_message_of_their_chunk(client: Client) -> None:
    fd = memory_file(4096)
    read = HEADER.pack(1, Command.REGION_READ, 32, 0, 0) + REGION_RW.pack(0, 0, 4)
    mapping = HEADER.pack(2, Command.DMA_MAP, 48, 0, 0) + DMA_MAP.pack(32, 3, 0, 0, 4096)
    client.send_raw(read)
    client.send_raw(mapping, [fd])
    client.send_raw(read)
    os.close(fd)
    answers = [client.receive() for _ in range(3)]
    assert [answer and answer[0].error for answer in answers] == [0, 0, 0]
    client.write(Region.CONFIG, 4, 2, 4)
    probe(client).host.memory.view(0, 4096)


def test_a_message_may_come_in_pieces_and_keeps_its_descriptor(client: Client) -> None:
    fd = memory_file(4096)
    mapping = HEADER.pack(2, Command.DMA_MAP, 48, 0, 0) + DMA_MAP.pack(32, 3, 0, 0, 4096)
    client.send_raw(mapping[:20], [fd])
    assert client.receive() is None
    client.send_raw(mapping[20:] + HEADER.pack(3, Command.DEVICE_RESET, 16, 0, 0))
    os.close(fd)
    answers = [client.receive() for _ in range(2)]
    assert [answer and (answer[0].id, answer[0].error) for answer in answers] == [(2, 0), (3, 0)]


def test_descriptors_that_nobody_wants_are_closed(client: Client) -> None:
    fds = [memory_file(4096) for _ in range(20)]
    before = descriptors()
    client.request(Command.DEVICE_RESET, fds=fds)
    with refused(errno.EINVAL):
        client.request(Command.DMA_MAP, DMA_MAP.pack(32, 3, 0, 0, 4096), fds)
    client.request(Command.REGION_READ, REGION_RW.pack(0, 0, 4), fds)
    assert descriptors() == before
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize("size", [0, 15, 8193, 0xFFFFFFFF])
def test_an_absurd_length_ends_the_connection(client: Client, size: int) -> None:
    client.send_raw(HEADER.pack(1, 1, size, 0, 0))
    with pytest.raises(Disconnected):
        client.receive()


def test_answers_to_nothing_and_unknown_kinds_of_message_are_let_pass(client: Client) -> None:
    for flags in (1, 2, 15, 0x21):
        client.send(Command.DMA_READ, bytes(16), flags=flags)
    assert client.receive() is None
    assert client.read(0, 0, 4) == 0


def test_a_refused_message_without_reply_stays_without_reply(client: Client) -> None:
    client.send(Command.REGION_WRITE, b"", flags=MessageFlags.NO_REPLY)
    assert client.receive() is None


def test_a_second_client_is_turned_away(client: Client, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.connect(str(tmp_path / "nic"))
        client.server.turn()
        assert other.recv(1) == b""
    assert client.read(0, 0, 4) == 0


def test_when_the_client_goes_its_memory_and_eventfds_go_too(client: Client) -> None:
    client.map_memory(4096)
    client.listen(Irq.MSIX, 20)
    client.sock.close()
    with pytest.raises(Disconnected):
        client.server.turn()
    client.server.close()
    assert probe(client).host.interrupts == "none"
    with pytest.raises(DmaFault):
        probe(client).host.memory.view(0, 1)
