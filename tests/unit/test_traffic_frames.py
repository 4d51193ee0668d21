import itertools
import subprocess
import sys
import zlib

import pytest
from numpy.random import default_rng

from testbed.errors import UsageError
from testbed.traffic.frames import HOST_MAC, Numbered, numbered_behind, numbered_frames, parse

GUEST = "02:00:00:00:00:02"


def test_the_layout_is_that_of_protocol_h() -> None:
    (frame,) = numbered_frames(0x01020304, 1, 64, GUEST)
    assert frame[:14] == bytes.fromhex("020000000002 020000000001 88b5")
    assert frame[14:26] == bytes.fromhex("44454254 01020304 00000040")
    blank = frame[14:26] + bytes(4) + frame[30:]
    assert frame[26:30] == zlib.crc32(blank).to_bytes(4, "big")
    assert HOST_MAC == "02:00:00:00:00:01"


@pytest.mark.parametrize("seed", range(10))
def test_every_frame_reads_back_as_its_number(seed: int) -> None:
    first, count, size = (int(n) for n in default_rng(seed).integers([0, 0, 60], [2**32 - 9000, 9000, 1515]))
    frames = numbered_frames(first, count, size, GUEST)
    assert {len(frame) for frame in frames} <= {size}
    assert [parse(frame) for frame in frames] == [Numbered(first + n, intact=True) for n in range(count)]


def test_the_last_number_of_all_is_used() -> None:
    assert parse(numbered_frames(2**32 - 1, 1, 60, GUEST)[0]) == Numbered(2**32 - 1, intact=True)


def test_any_changed_byte_after_the_header_is_seen() -> None:
    (frame,) = numbered_frames(7, 1, 90, GUEST)
    for at in range(14, len(frame)):
        changed = bytearray(frame)
        changed[at] ^= 1 << at % 8
        numbered = parse(bytes(changed))
        assert numbered is not None
        assert not numbered.intact, at


def test_a_longer_or_shorter_frame_is_damaged() -> None:
    (frame,) = numbered_frames(7, 1, 90, GUEST)
    assert parse(frame + b"\0") == Numbered(7, intact=False)
    assert parse(frame[:-1]) == Numbered(7, intact=False)


@pytest.mark.parametrize("head", ["44454255 00000007 0000003c", "44454254 00000007 0000003d"])
def test_a_wrong_magic_or_length_is_damage_under_a_right_checksum(head: str) -> None:
    covered = bytes.fromhex(head), bytes(4), bytes(30)
    checksum = zlib.crc32(b"".join(covered)).to_bytes(4, "big")
    frame = bytes(12) + b"\x88\xb5" + covered[0] + checksum + covered[2]
    assert len(frame) == 60
    assert parse(frame) == Numbered(7, intact=False)


def test_the_filling_of_neighbours_differs_everywhere() -> None:
    frames = numbered_frames(0, 300, 120, GUEST)
    for one, other in itertools.pairwise(frames):
        assert all(a != b for a, b in zip(one[30:], other[30:], strict=True))


def test_the_agents_filling_is_intact_too() -> None:
    """images/agent/frame.c fills with the number's low byte: only the checksum counts."""
    head = bytes.fromhex("44454254 00000105 00000040")
    filling = b"\x05" * (64 - 30)
    checksum = zlib.crc32(head + bytes(4) + filling).to_bytes(4, "big")
    assert parse(bytes(12) + b"\x88\xb5" + head + checksum + filling) == Numbered(0x105, intact=True)


@pytest.mark.parametrize("frame", [b"", bytes(60), bytes(12) + b"\x88\xb5" + bytes(15)])
def test_other_frames_are_not_numbered(frame: bytes) -> None:
    assert parse(frame) is None


@pytest.mark.parametrize("size", [0, -1, 59, 9015, 10**9])
def test_lengths_that_no_frame_has_are_refused(size: int) -> None:
    with pytest.raises(UsageError, match=f"seen {size}"):
        numbered_frames(0, 1, size, GUEST)


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, -1), (2**32 - 1, 2), (2**32, 1)])
def test_numbers_beyond_32_bits_are_refused(first: int, count: int) -> None:
    with pytest.raises(UsageError, match="sequence numbers"):
        numbered_frames(first, count, 64, GUEST)


@pytest.mark.parametrize(
    "mac", ["", "02:00:00:00:00", "02:00:00:00:00:zz", "02:00:00:00:00:+2", "2:0:0:0:0:2"]
)
def test_what_is_no_mac_address_is_refused(mac: str) -> None:
    with pytest.raises(UsageError, match="MAC address"):
        numbered_frames(0, 1, 64, mac)


def test_importing_the_room_does_not_import_scapy() -> None:
    """It takes 0.3 to 1.4 s, and `testbed run` does not need it."""
    code = "import sys, testbed.traffic; sys.exit(any(name.startswith('scapy') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Frames of the user's own, with their number behind them

PLAIN = bytes.fromhex("0200000000020200000000010800") + bytes(range(100))
TAGGED = PLAIN[:12] + bytes.fromhex("81000005") + PLAIN[12:]
TWICE = PLAIN[:12] + bytes.fromhex("88a80007") + TAGGED[12:]


def test_a_frame_of_the_users_own_keeps_its_bytes_and_carries_its_number() -> None:
    first, second = numbered_behind(7, [PLAIN, PLAIN[:14]])
    assert first.startswith(PLAIN)
    assert (parse(first), parse(second)) == (Numbered(7, intact=True), Numbered(8, intact=True))
    assert (len(first), len(second)) == (len(PLAIN) + 20, 60)


@pytest.mark.parametrize("frame", [TAGGED, TWICE], ids=["802.1Q", "802.1ad"])
def test_a_tag_that_the_nic_strips_does_no_damage(frame: bytes) -> None:
    (whole,) = numbered_behind(3, [frame])
    assert parse(whole) == parse(whole[:12] + whole[16:]) == Numbered(3, intact=True)


@pytest.mark.parametrize("at", [14, 60, 113, 120, 124])
def test_a_changed_byte_of_it_is_seen(at: int) -> None:
    (frame,) = numbered_behind(3, [PLAIN])
    changed = frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]
    seen = parse(changed)
    assert seen is not None
    assert not seen.intact


def test_a_part_of_it_is_no_whole() -> None:
    (frame,) = numbered_behind(3, [PLAIN])
    assert parse(frame[:-1]) is None
    seen = parse(frame[:30] + frame[40:])
    assert seen is not None
    assert not seen.intact


def test_it_says_what_the_program_shall_do() -> None:
    assert [numbered_behind(0, [PLAIN], verdict)[0][-4:] for verdict in (None, 3)] == [
        b"\0\0\0\2",
        b"\0\0\0\3",
    ]
