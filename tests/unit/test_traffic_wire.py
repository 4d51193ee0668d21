import threading
import time
from decimal import Decimal
from pathlib import Path

import pytest
from scapy.utils import rdpcap

from testbed.errors import GuestLost, HostError
from testbed.traffic.fake import FakeQemu
from testbed.traffic.frames import numbered_frames
from testbed.traffic.pcap import PcapFile
from testbed.traffic.wire import Wire

GUEST = "02:00:00:00:00:02"


def test_frames_reach_qemu_in_order() -> None:
    frames = numbered_frames(0, 5000, 64, GUEST)
    with FakeQemu().start() as qemu, Wire(qemu.host_end) as wire:
        assert wire.send(frames) == 5000
        wire.flush()
        assert wire.outstanding() == 0
        assert qemu.wait_for(5000) == frames
        assert wire.frames_sent == 5000


def test_frames_from_qemu_are_taken_in_order() -> None:
    frames = numbered_frames(0, 5000, 200, GUEST)
    with FakeQemu() as qemu, Wire(qemu.host_end) as wire:
        qemu.send(frames)
        wire.settle()
        assert wire.frames_received == 5000
        assert wire.take() == frames[0]
        assert wire.take_all() == frames[1:]
        assert wire.take() is None
        assert wire.take(timeout_s=0.01) is None


def test_take_waits_for_a_frame_that_is_late() -> None:
    with FakeQemu(lambda frame: [frame[::-1]]).start() as qemu, Wire(qemu.host_end) as wire:
        wire.send([b"abc"])
        assert wire.take(timeout_s=5) == b"cba"


def test_qemu_never_blocks_although_nobody_takes_frames() -> None:
    frames = numbered_frames(0, 10000, 1514, GUEST)  # 15 MB, far more than a socket holds
    with FakeQemu() as qemu, Wire(qemu.host_end) as wire:
        writer = threading.Thread(target=qemu.send, args=(frames,), daemon=True)
        writer.start()
        writer.join(timeout=10)
        assert not writer.is_alive()
        wire.settle()
        assert wire.frames_received == 10000


def test_frames_beyond_the_memory_limit_are_counted_not_kept() -> None:
    frames = numbered_frames(0, 100, 64, GUEST)
    with FakeQemu() as qemu, Wire(qemu.host_end, keep_bytes=10 * 128) as wire:
        qemu.send(frames)
        wire.settle()
        assert (wire.frames_received, wire.frames_not_kept) == (100, 90)
        assert wire.take_all() == frames[:10]
        qemu.send(frames[50:51])
        assert wire.take(timeout_s=5) == frames[50]


def test_a_qemu_that_takes_nothing_is_lost_after_the_limit() -> None:
    frames = numbered_frames(0, 2000, 1514, GUEST)
    with FakeQemu() as qemu, Wire(qemu.host_end) as wire:
        with pytest.raises(GuestLost, match=r"take frames from its wire within 0.05 s, seen \d+ bytes left"):
            wire.send(frames, timeout_s=0.05)
        assert wire.outstanding() > 0


def test_a_qemu_that_reads_late_gets_everything() -> None:
    frames = numbered_frames(0, 2000, 1514, GUEST)
    with FakeQemu() as qemu, Wire(qemu.host_end) as wire:
        sender = threading.Thread(target=wire.send, args=(frames,), daemon=True)
        sender.start()
        qemu.start()
        assert qemu.wait_for(2000) == frames
        sender.join(timeout=5)
        assert not sender.is_alive()


def test_flush_tells_what_qemu_has_not_read() -> None:
    with FakeQemu() as qemu, Wire(qemu.host_end) as wire:
        wire.send([bytes(60)])
        assert wire.outstanding() > 0
        with pytest.raises(GuestLost, match=r"read its wire within 0.01 s, seen \d+ bytes left"):
            wire.flush(timeout_s=0.01)
        qemu.start()
        wire.flush()
        assert wire.outstanding() == 0


@pytest.mark.parametrize("garbage", [b"\0\0\0\0", b"HTTP/1.1 200 OK"])
def test_garbage_ends_the_wire_and_is_told(garbage: bytes) -> None:
    with FakeQemu() as qemu, Wire(qemu.host_end) as wire:
        qemu.send([b"good"])
        qemu.send_bytes(garbage)
        assert wire.take(timeout_s=5) == b"good"
        assert wire.take(timeout_s=5) is None
        assert wire.ended
        assert isinstance(wire.failure, GuestLost)
        assert str(int.from_bytes(garbage[:4], "big")) in str(wire.failure)
        with pytest.raises(GuestLost, match="seen a length of"):
            wire.send([bytes(60)])
        qemu._sock.settimeout(5)
        assert qemu._sock.recv(1) == b""  # QEMU sees the end, and does not freeze


def test_a_qemu_that_exits_ends_the_wire_without_failure() -> None:
    with FakeQemu() as qemu, Wire(qemu.host_end) as wire:
        qemu.send([b"last"])
        qemu.close()
        assert wire.take(timeout_s=5) == b"last"
        assert wire.take(timeout_s=5) is None
        wire.settle()
        assert wire.ended
        assert wire.failure is None
        with pytest.raises(GuestLost, match="closed"):
            wire.send([bytes(60)])


def test_flush_ends_when_qemu_does() -> None:
    with FakeQemu() as qemu, Wire(qemu.host_end) as wire:
        wire.send([bytes(60)])
        qemu.close()
        with pytest.raises(GuestLost):
            wire.send([bytes(60)] * 100_000)


def test_every_tap_gets_every_frame() -> None:
    frames = numbered_frames(0, 100, 64, GUEST)
    with FakeQemu() as qemu, Wire(qemu.host_end) as wire, wire.tap() as one, wire.tap() as other:
        other.close()
        qemu.send(frames)
        wire.settle()
        seen = [item[1] for _ in range(100) if (item := one.take())]
        assert seen == frames
        assert one.take() is None
        assert other.fileno() == -1
        with pytest.raises(EOFError):
            other.take()
        assert wire.take_all() == frames


def test_closing_leaves_no_thread_and_no_descriptor() -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors(), threading.active_count()
    for _ in range(5):
        with FakeQemu().start() as qemu, Wire(qemu.host_end) as wire, wire.tap():
            wire.send([bytes(60)])
            wire.close()
            wire.close()
    assert (descriptors(), threading.active_count()) == before


def test_the_pcap_holds_both_directions_in_order(tmp_path: Path) -> None:
    path = tmp_path / "wire.pcap"
    frames = numbered_frames(0, 300, 64, GUEST)
    with FakeQemu(lambda frame: [frame[::-1]]).start() as qemu, Wire(qemu.host_end, path) as wire:
        for frame in frames:
            wire.send([frame])
            assert wire.take(timeout_s=5) == frame[::-1]

    packets = rdpcap(str(path))
    assert [bytes(packet) for packet in packets] == [data for f in frames for data in (f, f[::-1])]
    times = [packet.time for packet in packets]
    assert times == sorted(times)
    assert times[0] < times[-1]


def test_a_pcap_keeps_nanoseconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_456_789)
    with PcapFile(tmp_path / "x.pcap") as pcap:
        pcap.write([bytes(60)])
    (packet,) = rdpcap(str(tmp_path / "x.pcap"))
    assert packet.time == Decimal("1700000000.123456789")


def test_a_pcap_is_whole_at_any_moment(tmp_path: Path) -> None:

    with PcapFile(tmp_path / "x.pcap") as pcap:
        for count in range(1, 4):
            pcap.write([b"\x01" * 60])
            assert len(rdpcap(str(tmp_path / "x.pcap"))) == count


def test_a_pcap_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with FakeQemu() as qemu, pytest.raises(HostError, match="No such file or directory"):
        Wire(qemu.host_end, tmp_path / "missing" / "x.pcap")


def test_a_full_disk_under_the_pcap_is_told() -> None:
    with pytest.raises(HostError, match="No space left"):
        PcapFile(Path("/dev/full"))


def test_a_pcap_that_fails_later_is_told_by_the_wire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise HostError("disk full")

    with FakeQemu() as qemu, Wire(qemu.host_end, tmp_path / "x.pcap") as wire:
        monkeypatch.setattr(PcapFile, "write", full)
        qemu.send([bytes(60)])
        assert wire.take(timeout_s=5) == bytes(60)
        assert wire.take(timeout_s=5) is None
        assert isinstance(wire.failure, HostError)


def test_a_hundred_thousand_frames_pass_in_seconds() -> None:
    frames = numbered_frames(0, 100_000, 64, GUEST)
    with FakeQemu() as qemu, Wire(qemu.host_end) as wire, Wire(qemu._sock) as other:
        wire.send(frames, timeout_s=5)
        other.settle(timeout_s=5)
        assert other.take_all() == frames
