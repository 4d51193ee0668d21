"""Which accelerator QEMU can use here: KVM when a guest really runs under it, else TCG, with the reason.

/dev/kvm may exist, be opened, create a machine, and still hang every guest (seen on nested clouds). So a
boot sector of nine bytes is booted through the firmware under KVM with a short limit. The answer is kept in
the cache until the machine is booted again or QEMU changes.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from testbed.cache import cache_dir, content_key, host_errors
from testbed.toolchain.host import first_error

if TYPE_CHECKING:
    from testbed.toolchain import Toolchain

__all__ = ["Accelerator", "probe"]

_LIMIT_S = 3.0  # a boot sector is reached after 0.3 s, also under TCG
_KVM = Path("/dev/kvm")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_VALUE = 0x10
_EXIT_STATUS = _VALUE << 1 | 1  # what isa-debug-exit makes of it
_CODE = bytes((0xBA, 0x01, 0x05, 0xB0, _VALUE, 0xEE, 0xF4, 0xEB, 0xFD))
"""``mov dx, 0x501; mov al, 0x10; out dx, al`` ends QEMU; ``hlt`` and a jump to it follow."""
_DISK_BYTES = 65536


class Accelerator(msgspec.Struct, frozen=True):
    """What QEMU runs guests with.

    :param name: ``kvm`` or ``tcg``.
    :param why: one line for a person.
    """

    name: Literal["kvm", "tcg"]
    why: str


def probe(toolchain: Toolchain) -> Accelerator:
    """Return the accelerator to use, found out by booting something tiny, once per boot of the machine.

    :raise HostError: QEMU cannot be started at all.
    """
    if not _KVM.exists():
        return Accelerator("tcg", "this machine has no /dev/kvm")
    if not os.access(_KVM, os.R_OK | os.W_OK):
        return Accelerator("tcg", "/dev/kvm is there, and this user may not open it (join the group kvm)")
    key = content_key(_BOOT_ID.read_text(), toolchain.identity)
    remembered = cache_dir() / "accelerator" / f"{key}.json"
    try:
        return msgspec.json.decode(remembered.read_bytes(), type=Accelerator)
    except (OSError, msgspec.MsgspecError):
        found = _try_kvm(toolchain)
    with host_errors(remembered):
        remembered.parent.mkdir(exist_ok=True)
        fresh = remembered.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(msgspec.json.encode(found))
        fresh.replace(remembered)
    return found


def _try_kvm(toolchain: Toolchain) -> Accelerator:
    with tempfile.TemporaryDirectory(prefix="testbed-") as directory:
        disk = Path(directory) / "disk"
        disk.write_bytes((_CODE.ljust(510, b"\0") + b"\x55\xaa").ljust(_DISK_BYTES, b"\0"))
        argv = [
            *(
                "qemu-system-x86_64",
                "-machine",
                "pc",
                "-accel",
                "kvm",
                "-m",
                "32",
                "-nodefaults",
                "-no-reboot",
            ),
            *("-display", "none", "-device", "isa-debug-exit,iobase=0x501,iosize=2"),
            *("-drive", f"file={disk},format=raw,if=ide"),
        ]
        try:
            done = subprocess.run(
                toolchain.argv(argv, write=[disk]),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Accelerator("tcg", f"/dev/kvm is there, and a guest under it hung for {_LIMIT_S:.0f} s")
    if done.returncode == _EXIT_STATUS:
        return Accelerator("kvm", "a guest ran under KVM")
    said = first_error(done.stderr.decode(errors="replace"))
    return Accelerator("tcg", f"/dev/kvm is there, and QEMU cannot use it: {said}")
