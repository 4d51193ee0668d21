"""What QEMU is to boot: the kernel proper, taken out of its bzImage.

Under TCG a guest takes seconds to decompress its own kernel. QEMU can also enter an ELF kernel that carries the PVH
entry note, and then the host decompresses it once, in the cache.
Source: Documentation/arch/x86/boot.rst (payload_offset), include/xen/interface/elfnote.h (XEN_ELFNOTE_PHYS32_ENTRY).
"""

from __future__ import annotations

import gzip
import lzma
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import NoteSegment

from testbed.cache import Origin, build_once, cache_dir, content_key
from testbed.errors import BuildError
from testbed.kernel.kernel import entry_of

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.kernel.kernel import Kernel
    from testbed.toolchain import Toolchain

__all__ = ["bootable"]

_SETUP_SECTORS = 0x1F1
_PAYLOAD = struct.Struct(
    "<II"
)  # offset from the protected-mode code, and length with 4 bytes of size behind it
_PAYLOAD_AT = 0x248
_PHYS32_ENTRY = 18
_ZSTD, _XZ, _GZIP = b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"\x1f\x8b"
_LIMIT_S = 60.0


def bootable(kernel: Kernel, toolchain: Toolchain) -> Path:
    """Return the kernel proper of a bzImage; the bzImage itself where that cannot be booted on its own."""
    stock = "".join(entry_of(kernel)) or kernel.identity  # a variant of a module changes nothing here
    directory = cache_dir() / "vmlinux" / content_key(stock)

    def unpack(target: Path) -> None:
        image = target / "vmlinux"
        _decompress(_payload(kernel.vmlinuz.read_bytes()), image, toolchain)
        if image.exists() and not _has_pvh_entry(image):
            image.unlink()

    origin = Origin(kernel.release, (f"toolchain:{toolchain.identity}", *entry_of(kernel)))
    unpacked = build_once(directory, unpack, origin) / "vmlinux"
    return unpacked if unpacked.exists() else kernel.vmlinuz


def _payload(bzimage: bytes) -> bytes:
    start = ((bzimage[_SETUP_SECTORS] or 4) + 1) * 512
    offset, length = _PAYLOAD.unpack_from(bzimage, _PAYLOAD_AT)
    return bzimage[start + offset : start + offset + length - 4]


def _decompress(packed: bytes, image: Path, toolchain: Toolchain) -> None:
    """Write the kernel proper to ``image``; write nothing when it cannot be unpacked."""
    with suppress(lzma.LZMAError, OSError, EOFError, BuildError):
        if packed.startswith(_XZ):
            image.write_bytes(lzma.LZMADecompressor().decompress(packed))
        elif packed.startswith(_GZIP):
            image.write_bytes(gzip.decompress(packed))
        elif packed.startswith(_ZSTD):
            source = image.with_name("payload")
            source.write_bytes(packed)
            command = ["zstd", "-q", "-d", str(source), "-o", str(image)]
            toolchain.run(command, write=[image.parent], timeout_s=_LIMIT_S)
            source.unlink()


def _has_pvh_entry(image: Path) -> bool:
    with image.open("rb") as file, suppress(ELFError):
        return any(
            note["n_name"] == "Xen" and note["n_type"] in {_PHYS32_ENTRY, "XEN_ELFNOTE_PHYS32_ENTRY"}
            for segment in ELFFile(file).iter_segments()
            if isinstance(segment, NoteSegment)
            for note in segment.iter_notes()
        )
    return False
