"""Where basic blocks begin, in the guest's driver and in the kernel's NAPI, GRO, XDP and AF_XDP code.

Addresses are the guest's own: the kernel is not relocated, and a restored guest has its modules where they were. The
guest says where its functions and the module are; the kernel's code is read in its memory, the module's in its file.
"""

from __future__ import annotations

import io
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from elftools.elf.elffile import ELFFile

from testbed.cache import Origin, build_once, content_key
from testbed.errors import GuestLost
from testbed.guest import Command, execute, restored, runtime_directory, save

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from testbed.guest import Blueprint, Guest
    from testbed.kernel import Module
    from testbed.toolchain import Toolchain

__all__ = ["Text", "block_leaders", "leaders_of"]

KERNEL_MAP = 0xFFFFFFFF80000000  # where x86-64 maps the kernel's text (Documentation/arch/x86/x86_64/mm.rst)
FUNCTIONS = (
    "napi_|__napi_|net_rx_action|process_backlog|dev_gro|gro_|skb_gro|xdp_|__xdp_|xsk_|__xsk_|xp_|__xp_"
)
_BUSYBOX = "/bin/busybox"
_ASK_LIMIT_S = 120.0
_DUMP_LIMIT_S = 120.0
_SYMBOL = re.compile(r"^([0-9a-f]{16}) (\w) (\S+)$", re.MULTILINE)
_ADDRESS = re.compile(r"^\s*([0-9a-f]+):", re.MULTILINE)
_TRANSFER = re.compile(
    r"^\s*([0-9a-f]+):\s+(?:(?:notrack|bnd|cs|ds|repz) )*(call|j\w+|ret)\w*(?:,\w+)?(?: +0x([0-9a-f]+))?",
    re.MULTILINE,
)
_MOST_BYTES = 1 << 16  # of a function


class Text(NamedTuple):
    """Machine code, where the guest has it, and where functions begin in it."""

    address: int
    code: bytes
    functions: tuple[int, ...]


def leaders_of(toolchain: Toolchain, blueprint: Blueprint, driver: Module) -> Path:
    """Return the file of addresses, ascending, 8 bytes each; made when the cache lacks it.

    :param driver: the module of the NIC under test.
    :raise GuestLost: the guest does not say where its code is.
    """
    ready = save(toolchain, blueprint)

    def find(target: Path) -> None:
        texts = _texts(toolchain, blueprint, driver)
        found = block_leaders(toolchain, texts, target)
        (target / "leaders").write_bytes(found.astype("<u8").tobytes())

    directory = ready.parent.parent / "leaders" / content_key(ready.name, Path(__file__))
    origin = Origin(f"basic blocks of {driver.name} and the kernel's NAPI", (f"snapshots/{ready.name}",))
    return build_once(directory, find, origin) / "leaders"


def _texts(toolchain: Toolchain, blueprint: Blueprint, driver: Module) -> list[Text]:
    """Return the machine code to watch, with one guest that tells where all of it is."""
    ask = f"cat /sys/module/{driver.name}/sections/.text; grep -E -A1 ' [tT] ({FUNCTIONS})' /proc/kallsyms"
    busybox = toolchain.file("/usr/bin/busybox").read_bytes()
    said: list[bytes] = []
    with runtime_directory() as directory, restored(toolchain, blueprint, directory) as guest:
        what = Command(
            {_BUSYBOX: busybox}, _BUSYBOX, ("busybox", "sh", "-c", f"busybox --install -s /bin; {ask}")
        )
        execute(guest, what, lambda _stream, data: said.append(data), _ASK_LIMIT_S)
        answer = b"".join(said).decode(errors="replace")
        first, _, symbols = answer.partition("\n")
        if not first.startswith("0x") or not _SYMBOL.search(symbols):
            raise GuestLost(
                f"expected addresses of {driver.name} and the kernel, the guest said: {answer[:80]!r}",
                "use a kernel with symbols (CONFIG_KALLSYMS), or --no-coverage",
            )
        return [_module_text(driver, int(first, 16)), *_kernel_texts(guest, symbols)]


def _module_text(driver: Module, address: int) -> Text:
    file = ELFFile(io.BytesIO(driver.data))
    index, section = next(
        (index, section) for index, section in enumerate(file.iter_sections()) if section.name == ".text"
    )
    symbols = file.get_section_by_name(".symtab").iter_symbols()
    functions = (
        symbol["st_value"]
        for symbol in symbols
        if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] == index
    )
    return Text(address, section.data(), tuple(address + offset for offset in functions))


def _kernel_texts(guest: Guest, symbols: str) -> Iterator[Text]:
    """Yield each function that is watched: from its symbol to the next one."""
    wanted = re.compile(FUNCTIONS)
    rows = [(int(address, 16), kind, name) for address, kind, name in _SYMBOL.findall(symbols)]
    for (start, kind, name), (end, _, _) in pairwise(rows):
        if kind in "tT" and wanted.match(name) and KERNEL_MAP < start < end < start + _MOST_BYTES:
            yield Text(start, guest.machine.memory.read(start - KERNEL_MAP, end - start), (start,))


def block_leaders(toolchain: Toolchain, texts: Sequence[Text], directory: Path) -> npt.NDArray[np.uint64]:
    """Return where basic blocks begin: functions, targets of jumps and calls, and what follows a jump.

    :param directory: for the machine code, where objdump reads it.
    :return: ascending, shape (n,).
    """
    code = directory / "code"
    code.mkdir()
    for text in texts:
        (code / f"{text.address:#x}").write_bytes(text.code)
    each = "objdump -D -b binary -m i386:x86-64 --no-show-raw-insn --adjust-vma=$code $code"
    script = f"for code in 0x*; do {each} || exit 1; done"
    listing = toolchain.run(("sh", "-c", script), read=[code], cwd=code, timeout_s=_DUMP_LIMIT_S)
    shutil.rmtree(code)
    starts = [int(found[1], 16) for found in _ADDRESS.finditer(listing)]
    after = dict(pairwise(starts))
    leaders = {function for text in texts for function in text.functions}
    for at, word, target in _TRANSFER.findall(listing):
        leaders |= {int(target, 16)} if target else set()
        leaders |= {after[int(at, 16)]} if word != "call" and int(at, 16) in after else set()
    return np.array(sorted(leaders & set(starts)), dtype=np.uint64)
