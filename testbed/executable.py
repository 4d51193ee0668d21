"""The user's own program: is it one that a guest can run?"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from testbed.errors import UsageError
from testbed.guest.execute import MAX_PROGRAM_BYTES

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_program"]

_REMEDY = "build it for x86-64 with -static"
_EXECUTABLE = {"ET_EXEC", "ET_DYN"}


def read_program(path: Path) -> bytes:
    """Return a program's file.

    :raise UsageError: it is missing, may not be executed, or is not a static x86-64 program.
    """
    data = _read(path)
    if data.startswith(b"#!"):
        raise UsageError(
            f"{path} is a script, and the guest has no interpreters", f"{_REMEDY}, or use testbed shell"
        )
    if not data.startswith(b"\x7fELF"):
        raise UsageError(f"{path} is not a program: it does not begin as an ELF file", _REMEDY)
    try:
        unfit = _unfit(ELFFile(io.BytesIO(data)))
    except (
        ELFError,
        ValueError,
        UnicodeDecodeError,
        KeyError,
        AttributeError,
        TypeError,
        OverflowError,
    ) as error:
        raise UsageError(f"{path} is a damaged ELF file: {error or type(error).__name__}", _REMEDY) from error
    if unfit:
        raise UsageError(f"{path} {unfit}", _REMEDY)
    return data


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a file", "name a program")
        size = path.stat().st_size
        if size > MAX_PROGRAM_BYTES:
            limit = f"at most {MAX_PROGRAM_BYTES >> 20} MiB fit into a guest"
            raise UsageError(f"{path} has {size >> 20} MiB, {limit}", "strip it")
        if not os.access(path, os.X_OK):
            raise UsageError(f"{path} is not executable", f"chmod +x {path}")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "name a program") from error


def _unfit(elf: ELFFile) -> str:
    """Return what is wrong with it, or nothing."""
    machine = str(elf.header["e_machine"])
    if machine != "EM_X86_64" or elf.elfclass != 64:
        bits = f"{elf.elfclass}-bit {machine.removeprefix('EM_')}"
        return f"is for another machine: {bits}, expected 64-bit X86_64"
    if elf.header["e_type"] not in _EXECUTABLE:
        return f"is not a program but of type {str(elf.header['e_type']).removeprefix('ET_')}"
    interpreter = next((each for each in elf.iter_segments() if each["p_type"] == "PT_INTERP"), None)
    if interpreter is not None:
        return f"is linked dynamically: it needs {interpreter.get_interp_name()} and libraries"
    return _unloadable(elf)


def _unloadable(elf: ELFFile) -> str:
    entry = elf.header["e_entry"]
    loaded = [each for each in elf.iter_segments() if each["p_type"] == "PT_LOAD"]
    if not entry:
        return "is not a program but a library"
    if not any(each["p_vaddr"] <= entry < each["p_vaddr"] + each["p_memsz"] for each in loaded):
        return "is not a program: its entry point lies in no segment"
    if any(each["p_offset"] + each["p_filesz"] > elf.stream_len for each in loaded):
        return "is a damaged ELF file: it ends before its last segment"
    return ""
