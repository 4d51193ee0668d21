"""What testbed asks the process of a device model, and what that gives the model: steps, wire, snapshots, events."""

from __future__ import annotations

import os
import select
import socket
from typing import TYPE_CHECKING

import msgspec
import pytest
from vfio_devices import Probe, probe

from testbed.traffic.framing import Deframer, stream_of
from testbed.vfio_user import DeviceEvent
from testbed.vfio_user.control import (
    Advance,
    Answer,
    Freeze,
    Load,
    Ping,
    Plug,
    Question,
    RestoreTable,
    Run,
    Save,
    Start,
    Tell,
    encode,
    receive,
)
from testbed.vfio_user.events import ROW
from testbed.vfio_user.fake_client import Client
from testbed.vfio_user.loop import Loop, Restless
from testbed.vfio_user.protocol import DMA_RW, HEADER, Command, MessageFlags, Region
from testbed.vfio_user.recorder import HEADER as TABLE_HEADER
from testbed.vfio_user.recorder import HEADER_BYTES
from testbed.vfio_user.wire import CONGESTED_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MSIX_OFFSET = 0x58  # behind PM (8 bytes) and MSI (14, rounded up)
TABLE_BYTES = 20 * 16


class Bench:
    """A server with everything round it."""

    def __init__(self, directory: Path, rows: int = 8) -> None:
        self.wire, theirs = socket.socketpair()
        self.control, control = socket.socketpair()
        self.events = os.memfd_create("events")
        os.ftruncate(self.events, HEADER_BYTES + rows * ROW.size)
        self.client = Client(Probe, directory, theirs, control, self.events)
        self.device = probe(self.client)
        self._ends = (self.wire, theirs, self.control, control)
        self.control.settimeout(5)
        self.wire.settimeout(5)

    def close(self) -> None:
        self.client.close()
        os.close(self.events)
        for end in self._ends:
            end.close()

    def ask(self, question: Question) -> Answer:
        self.control.sendall(encode(question))
        self.client.server.turn()
        return self.answer()

    def answer(self) -> Answer:
        return msgspec.json.decode(receive(self.control), type=Answer)

    def turns(self, count: int = 4) -> None:
        for _ in range(count):
            self.client.server.turn()

    def rows(self) -> tuple[list[tuple[int, ...]], int]:
        data = os.pread(self.events, 1 << 16, 0)
        head, lost = TABLE_HEADER.unpack_from(data)
        return [ROW.unpack_from(data, HEADER_BYTES + row * ROW.size) for row in range(head)], lost


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def frames_of(*frames: bytes) -> bytes:
    return b"".join(piece for piece, _ in stream_of(frames))


# The clock


def test_a_frozen_device_does_nothing_until_it_is_advanced(bench: Bench) -> None:
    bench.ask(Freeze())
    now, host = bench.device.host.now_ns(), bench.device.host
    calls: list[int] = []
    for delay in (3000, 1000, 0):
        host.call_at(now + delay, lambda: calls.append(host.now_ns() - now))
    bench.turns()
    assert calls == []
    assert bench.ask(Advance(2000)).next_ns == 1000
    assert (calls, host.now_ns()) == ([0, 1000], now + 2000)
    assert bench.ask(Advance(1000)).next_ns is None
    assert calls == [0, 1000, 3000]


def test_calls_for_one_instant_come_in_their_order_and_may_ask_for_more(bench: Bench) -> None:
    bench.ask(Freeze())
    host, calls = bench.device.host, list[str]()

    def first() -> None:
        calls.append("first")
        host.call_at(0, lambda: calls.append("third"))

    host.call_at(0, first)
    host.call_at(0, lambda: calls.append("second"))
    host.call_at(0, lambda: calls.append("never")).cancel()
    bench.ask(Advance(0))
    assert calls == ["first", "second", "third"]


def test_time_stands_while_frozen_and_goes_on_from_there(bench: Bench) -> None:
    host = bench.device.host
    bench.ask(Freeze())
    frozen = host.now_ns()
    assert host.now_ns() == frozen
    bench.ask(Advance(10**15))
    bench.ask(Run())
    assert frozen + 10**15 <= host.now_ns() < frozen + 10**15 + 10**10


def test_a_device_that_never_comes_to_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.vfio_user.loop.MAX_TURNS", 50)
    loop = Loop()
    loop.freeze()

    def again() -> None:
        loop.call_at(0, again)

    again()
    with pytest.raises(Restless):
        loop.advance(0)
    loop.close()


def test_a_models_own_descriptors_are_served_only_when_it_may_act(bench: Bench) -> None:
    fd, seen = os.eventfd(1), list[int]()
    bench.device.host.watch(fd, lambda: seen.append(os.eventfd_read(fd)))
    bench.ask(Freeze())
    seen.clear()
    os.eventfd_write(fd, 5)
    bench.turns()
    assert seen == []
    bench.ask(Advance(0))
    assert seen in ([5], [6])  # with the first, when nobody had turned the loop before
    bench.device.host.unwatch(fd)
    os.close(fd)


# The wire


def test_frames_go_both_ways_however_they_are_cut(bench: Bench) -> None:
    stream = frames_of(b"one", b"two", b"three" * 300)
    for at in range(0, len(stream), 100):
        bench.wire.sendall(stream[at : at + 100])
        bench.turns(1)
    bench.turns()
    assert bench.device.frames == [b"one", b"two", b"three" * 300]
    bench.device.host.wire.send(b"four")
    bench.device.host.wire.send(memoryview(b"five"))
    bench.turns()
    assert Deframer().feed(bench.wire.recv(100)) == [b"four", b"five"]


@pytest.mark.parametrize("size", [0, 4096 + 65536 + 1])
def test_frames_that_no_wire_takes_are_refused(bench: Bench, size: int) -> None:
    with pytest.raises(ValueError, match="a frame of"):
        bench.device.host.wire.send(bytes(size))


def test_a_paused_device_gets_no_frames_and_all_of_them_later(bench: Bench) -> None:
    wire = bench.device.host.wire
    wire.pause()
    bench.wire.sendall(frames_of(b"one", b"two"))
    bench.turns()
    assert bench.device.frames == []
    wire.resume()
    bench.turns()
    assert bench.device.frames == [b"one", b"two"]


def test_a_frozen_server_takes_everything_off_the_wire_and_gives_the_device_nothing(bench: Bench) -> None:
    bench.ask(Freeze())
    frames = [bytes([number % 256]) * 1500 for number in range(1000)]
    for frame in frames:
        bench.wire.sendall(frames_of(frame))
        bench.turns(1)
    bench.turns(40)
    assert bench.device.frames == []
    bench.ask(Advance(0))
    assert bench.device.frames == frames


def test_a_device_learns_when_nobody_reads_and_when_somebody_does_again(bench: Bench) -> None:
    wire = bench.device.host.wire
    sent = 0
    while not wire.congested:
        wire.send(bytes(60000))
        sent += 1
        bench.turns(1)
    wire.send(b"lost")
    assert bench.client.server.wire.frames_lost == 1
    deframer, frames = Deframer(), list[bytes]()
    while len(frames) < sent:
        frames += deframer.feed(bench.wire.recv(1 << 20))
        bench.turns()
    assert (bench.device.readies, wire.congested, sent * 60000 >= CONGESTED_BYTES) == (1, False, True)


def test_garbage_on_the_wire_ends_the_wire_and_nothing_else(bench: Bench) -> None:
    bench.wire.sendall(frames_of(b"good") + b"\xff\xff\xff\xff")
    bench.turns()
    bench.wire.sendall(b"more")
    bench.turns()
    assert bench.device.frames == [b"good"]
    assert bench.ask(Ping()) == Answer()


# Commands and the cable


def test_a_command_reaches_the_device_with_its_checked_fields(bench: Bench) -> None:
    bench.client.map_memory()
    bench.client.write(0, 0, 8, 0x1234)
    assert bench.ask(Tell(msgspec.Raw(b'{"command": "fill", "byte": 7}'))) == Answer()
    assert bench.client.memory[0x1234] == 7


@pytest.mark.parametrize("words", [b'{"command": "fill", "byte": 256}', b'{"command": "dance"}', b"[]"])
def test_a_command_that_is_none_is_refused_in_one_line(bench: Bench, words: bytes) -> None:
    error = bench.ask(Tell(msgspec.Raw(words))).error
    assert error
    assert "\n" not in error


def test_a_device_without_a_link_says_so(bench: Bench) -> None:
    assert "no link" in bench.ask(Plug(connected=False)).error


def test_the_server_ends_with_testbed(bench: Bench) -> None:
    bench.control.shutdown(socket.SHUT_RDWR)
    bench.client.server.serve()  # returns


# Events


def test_events_lie_behind_the_guests_and_are_counted_when_there_is_no_room(bench: Bench) -> None:
    bench.client.map_memory()
    host = bench.device.host
    host.record(DeviceEvent.LINK, a=1)  # before anybody asked
    bench.ask(Start(0x2000))
    for number in range(10):
        bench.client.memory[0x2000] = number
        host.record(DeviceEvent.TAIL, queue=3, a=-1, b=number, c=1 << 63)
    rows, lost = bench.rows()
    assert ([row[1] for row in rows], lost) == ([0, 1, 2, 3, 4, 5, 6, 7], 2)
    assert rows[5][2:] == (DeviceEvent.TAIL, 3, 0xFFFFFFFF, 5, 1 << 63)
    bench.ask(Start(0))
    assert bench.rows() == ([], 0)


def test_interrupts_are_recorded_by_the_server(bench: Bench) -> None:
    bench.ask(Start(0))
    bench.client.listen(2, 20)
    bench.device.host.interrupt(19)
    bench.device.host.interrupt(20)
    assert [row[2:5] for row in bench.rows()[0]] == [(DeviceEvent.RAISED, 19, 1), (DeviceEvent.RAISED, 20, 0)]


# Snapshots


def test_a_device_is_saved_and_loaded(bench: Bench, tmp_path: Path) -> None:
    bench.client.write(0, 8, 4, 0xABCD)
    answer = bench.ask(Save())
    assert answer.error == ""
    assert answer.dwords[-1] == MSIX_OFFSET
    assert {0x04, 0x10, 0x3C} <= set(answer.dwords)
    other = Bench(tmp_path)
    assert other.ask(Load(answer.state)) == Answer()
    assert other.ask(RestoreTable()) == Answer()
    assert other.client.read(0, 8, 4) == 0xABCD
    other.close()


def test_a_loaded_device_stands_still_until_it_may_run(bench: Bench) -> None:
    state = bench.ask(Save()).state
    bench.ask(Load(state))
    done = list[int]()
    bench.device.host.call_at(0, lambda: done.append(1))
    bench.turns()
    assert done == []
    bench.ask(Run())
    bench.turns()
    assert done == [1]


@pytest.mark.parametrize("state", [b"", b"{}", b'{"device": "AAAA", "table": ""}'])
def test_a_state_that_is_none_is_refused(bench: Bench, state: bytes) -> None:
    assert bench.ask(Load(state)).error


def enable_msix(bench: Bench) -> None:
    bench.client.write(Region.CONFIG, 0x18, 4, 0xFEB00000)
    bench.client.write(Region.CONFIG, 4, 2, 6)
    bench.client.write(Region.CONFIG, MSIX_OFFSET + 2, 2, 0x8000)


def test_the_table_of_msix_is_asked_of_qemu_and_given_back(bench: Bench, tmp_path: Path) -> None:
    enable_msix(bench)
    table = os.urandom(TABLE_BYTES)
    bench.control.sendall(encode(Save()))
    header, body = bench.client.receive() or pytest.fail("the server asks nothing")
    assert (header.command, DMA_RW.unpack(body)) == (Command.DMA_READ, (0xFEB00000, TABLE_BYTES))
    assert not select.select([bench.control], [], [], 0)[0]
    bench.client.send(Command.DMA_READ, body + table, flags=MessageFlags.REPLY)
    bench.turns()
    answer = bench.answer()
    other = Bench(tmp_path)
    other.ask(Load(answer.state))
    other.client.write(Region.CONFIG, 0x18, 4, 0xFEC00000)
    other.control.sendall(encode(RestoreTable()))
    header, body = other.client.receive() or pytest.fail("the server writes nothing")
    assert (header.command, body) == (Command.DMA_WRITE, DMA_RW.pack(0xFEC00000, TABLE_BYTES) + table)
    other.client.send(Command.DMA_WRITE, flags=MessageFlags.REPLY)
    other.turns()
    assert other.answer() == Answer()
    other.close()


def test_a_table_that_qemu_does_not_give_is_told(bench: Bench) -> None:
    enable_msix(bench)
    bench.control.sendall(encode(Save()))
    assert bench.client.receive()
    bench.client.send_raw(HEADER.pack(0, Command.DMA_READ, HEADER.size, 0x21, 14))
    bench.turns()
    assert "does not let the device read" in bench.answer().error
