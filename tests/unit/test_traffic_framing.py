import pytest
from numpy.random import default_rng

from testbed.errors import UsageError
from testbed.traffic.framing import CHUNK_BYTES, MAX_WIRE_BYTES, Deframer, stream_of


def some_frames(seed: int, count: int = 200) -> list[bytes]:
    chance = default_rng(seed)
    return [chance.bytes(int(size)) for size in chance.choice([1, 14, 60, 64, 1514, 9000], count)]


@pytest.mark.parametrize("seed", range(20))
def test_frames_survive_any_split_of_the_stream(seed: int) -> None:
    frames = some_frames(seed)
    stream = b"".join(piece for piece, _ in stream_of(frames))
    chance, deframer, seen, at = default_rng(seed), Deframer(), [], 0
    while at < len(stream):
        step = int(chance.choice([1, 2, 3, 5, 1000, 70000]))
        seen += deframer.feed(stream[at : at + step])
        at += step
    assert seen == frames
    assert deframer.pending_bytes == 0
    assert deframer.garbage is None


def test_the_length_is_four_big_endian_bytes() -> None:
    assert [piece for piece, _ in stream_of([b"ab"])] == [b"\0\0\0\2ab"]


def test_pieces_hold_whole_frames_and_stay_near_the_chunk() -> None:
    frames = [bytes([n % 256]) * 1514 for n in range(500)]
    pieces = list(stream_of(frames))
    assert [frame for _, held in pieces for frame in held] == frames
    assert len(pieces) > 2
    assert all(len(piece) <= CHUNK_BYTES + len(held) * 4 + 1514 for piece, held in pieces)
    assert all(Deframer().feed(piece) == held for piece, held in pieces)


@pytest.mark.parametrize("length", [0, MAX_WIRE_BYTES + 1, 0x7F454C46, 0xFFFFFFFF])
def test_an_absurd_length_ends_the_stream_after_the_frames_before_it(length: int) -> None:
    deframer = Deframer()
    good = b"".join(piece for piece, _ in stream_of([b"x" * 60]))
    assert deframer.feed(good + length.to_bytes(4, "big") + good) == [b"x" * 60]
    assert deframer.garbage == length
    assert deframer.feed(good) == []


def test_an_unfinished_frame_is_known() -> None:
    deframer = Deframer()
    assert deframer.feed(b"\0\0\0\5abc") == []
    assert deframer.pending_bytes == 7


@pytest.mark.parametrize("length", [0, MAX_WIRE_BYTES + 1])
def test_frames_that_qemu_would_not_take_are_refused(length: int) -> None:
    with pytest.raises(UsageError, match=f"seen {length}"):
        list(stream_of([bytes(length)]))
