"""Which files testbed exec takes as programs, and how they are cut into pieces for the mailbox."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from testbed.errors import UsageError
from testbed.executable import read_program
from testbed.guest.execute import MAX_PROGRAM_BYTES, TERMINAL, Command, _pieces, _steps
from testbed.scenario.program import StepKind

if TYPE_CHECKING:
    from pathlib import Path

LOAD, DYNAMIC_LOADER = 1, 3
EXEC, DYN, REL = 2, 3, 1
X86_64, AARCH64 = 62, 183
LOADER = b"/lib64/ld-linux-x86-64.so.2\0"
ENTRY = 0x400080


def elf(
    kind: int = EXEC, machine: int = X86_64, entry: int = ENTRY, segment: int = LOAD, size: int = 64
) -> bytes:
    """Return an ELF file with one segment of its last 64 bytes, loaded at ENTRY."""
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, kind, machine, 1, entry, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    program = struct.pack("<IIQQQQQQ", segment, 5, 120, ENTRY, ENTRY, size, size, 1)
    return header + program + LOADER.ljust(64, b"\0")


def program(directory: Path, data: bytes, mode: int = 0o755) -> Path:
    path = directory / "program"
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("kind", [EXEC, DYN], ids=["static", "static-pie"])
def test_a_static_program_is_taken(tmp_path: Path, kind: int) -> None:
    data = elf(kind)
    assert read_program(program(tmp_path, data)) == data


WRONG = {
    "dynamic": (elf(segment=DYNAMIC_LOADER), "is linked dynamically: it needs /lib64/ld-linux-x86-64.so.2"),
    "another machine": (
        elf(machine=AARCH64),
        "is for another machine: 64-bit AARCH64, expected 64-bit X86_64",
    ),
    "32 bits": (b"\x7fELF\x01\x01\x01" + elf()[7:], "is for another machine: 32-bit"),
    "big-endian": (b"\x7fELF\x02\x02\x01" + elf()[7:], "is for another machine"),
    "object": (elf(REL), "is not a program but of type REL"),
    "library": (elf(DYN, entry=0), "is not a program but a library"),
    "entry outside": (elf(entry=1), "its entry point lies in no segment"),
    "cut off": (elf(size=65), "it ends before its last segment"),
    "header only": (elf()[:40], "is a damaged ELF file"),
    "magic only": (elf()[:4], "is a damaged ELF file"),
    "script": (b"#!/bin/sh\n", "is a script"),
    "text": (b"int main", "does not begin as an ELF file"),
    "nothing": (b"", "does not begin as an ELF file"),
}


@pytest.mark.parametrize(("data", "text"), WRONG.values(), ids=WRONG)
def test_anything_else_is_wrong_usage(tmp_path: Path, data: bytes, text: str) -> None:
    with pytest.raises(UsageError, match="program ") as caught:
        read_program(program(tmp_path, data))
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_executed_or_read_is_wrong_usage(tmp_path: Path) -> None:
    for path, text in (
        (tmp_path / "nope", "No such file or directory"),
        (tmp_path, "is not a file"),
        (program(tmp_path, elf(), 0o644), "is not executable; chmod"),
    ):
        with pytest.raises(UsageError) as caught:
            read_program(path)
        assert text in str(caught.value)


def test_what_is_too_large_is_not_even_read(tmp_path: Path) -> None:
    path = program(tmp_path, b"")
    with path.open("wb") as file:
        file.truncate(MAX_PROGRAM_BYTES + 1)
    with pytest.raises(UsageError, match="at most 64 MiB"):
        read_program(path)


def test_files_are_cut_into_pieces_that_give_them_back() -> None:
    command = Command({"/run/program": b"0123456789", "/run/empty": b""}, "/run/program", ("a", "ü", ""))
    pieces = list(_pieces(command.all_files(), 4))
    assert {path: b"".join(p.data for p in pieces if p.path == path) for path in command.all_files()} == {
        "/run/program": b"0123456789",
        "/run/empty": b"",
        "/run/arguments": b"/run/program\0/dev/null\0a\0\xc3\xbc\0\0",
    }
    assert [piece.append for piece in pieces if piece.path == "/run/program"] == [False, True, True]


def test_each_piece_is_a_barrier_and_a_step_and_the_program_comes_last() -> None:
    pieces = list(_pieces({"/bin/busybox": b"01234567"}, 4))
    steps = _steps(pieces, on_terminal=True)
    kinds = [StepKind(kind).name for kind in steps["kind"].tolist()]
    assert kinds == ["HOST", "FILE", "HOST", "FILE", "EXEC"]
    assert steps["a"][[0, 2, 4]].tolist() == [0, 1, 1]
    assert steps["count"][[1, 3]].tolist() == [4, 4]
    assert steps["queue"][[1, 3]].tolist() == [0, 1]
    path = b"".join(int(steps[1][name]).to_bytes(8, "little") for name in "abc")
    assert path.rstrip(b"\0") == b"/bin/busybox"


def test_a_debugger_is_waited_for_when_all_files_are_there() -> None:
    pieces = list(_pieces({"/bin/busybox": b""}, 4))
    steps = _steps(pieces, on_terminal=True, debugged=True)
    assert [StepKind(kind).name for kind in steps["kind"].tolist()] == ["HOST", "FILE", "HOST", "EXEC"]
    assert steps["a"][2] == len(pieces)


def test_the_largest_program_fits_before_the_payload() -> None:
    command = Command({"/run/program": bytes(MAX_PROGRAM_BYTES)}, "/run/program", ("x",), TERMINAL)
    assert len(_steps(list(_pieces(command.all_files(), 450_000)), on_terminal=False)) < 1000


@pytest.mark.parametrize("arguments", [("x" * 131072,), ("x",) * 4094], ids=["long", "many"])
def test_more_arguments_than_the_agent_takes_are_wrong_usage(arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="expected at most 4093 arguments of 131071 bytes"):
        Command({}, "/run/program", arguments)


def test_a_path_too_long_for_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 23 bytes"):
        _steps(list(_pieces({"/run/" + "x" * 19: b""}, 4)), on_terminal=False)
