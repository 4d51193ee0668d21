"""A kernel image that the user hands in: ``image:VMLINUZ,MODULES_DIR``."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from testbed.cache import content_key
from testbed.errors import HostError, Unsupported, UsageError
from testbed.kernel.config import options_of
from testbed.kernel.kernel import Kernel, read_module

__all__ = ["from_image", "image_release"]

# Documentation/arch/x86/boot.rst: "HdrS", and the offset of the version text from the second sector on
_MAGIC_OFFSET = 0x202
_VERSION_OFFSET = 0x20E
_SECTOR = 0x200
#: What a kernel cannot be judged without, and what is lost without it.
_NEEDED = {
    "CONFIG_XDP_SOCKETS": "it has no AF_XDP",
    "CONFIG_BPF_SYSCALL": "no program can observe the driver",
    "CONFIG_DEBUG_INFO_BTF": "the observer cannot find polls, completions and redirects",
    "CONFIG_FUNCTION_TRACER": "the observer cannot be attached to functions",
}


def from_image(text: str) -> Kernel:
    """Return the kernel of ``VMLINUZ,MODULES_DIR``; the latter is a lib/modules/RELEASE with modules.dep.

    :raise UsageError: a path is missing or not there.
    :raise HostError: the file is not an x86 kernel image.
    :raise Unsupported: its configuration, where there is one, lacks what a run needs.
    """
    image, comma, folder = text.partition(",")
    if not comma or not image or not folder:
        raise UsageError(f"image:{text} names no two paths", "write image:VMLINUZ,MODULES_DIR")
    vmlinuz, modules = Path(image).absolute(), Path(folder).absolute()
    if not vmlinuz.is_file():
        raise UsageError(f"image: there is no file {vmlinuz}", "write image:VMLINUZ,MODULES_DIR")
    if not (modules / "modules.dep").is_file():
        raise UsageError(
            f"image: there is no modules.dep in {modules}", "name a lib/modules/RELEASE, after depmod"
        )
    release = image_release(vmlinuz)
    _check_modules(modules, release)
    config = _config(vmlinuz, modules, release)
    _check(config, vmlinuz)
    return Kernel(
        name=f"image:{text}",
        release=release,
        package="",
        vmlinuz=vmlinuz,
        modules=modules,
        config=config,
        headers=None,
        identity=content_key("image", vmlinuz, str(modules), modules / "modules.dep", _module_times(modules)),
    )


def _config(vmlinuz: Path, modules: Path, release: str) -> Path:
    """Return where the image's configuration lies: beside the image, with its modules, or in what it was built in."""
    beside = vmlinuz.with_name(f"config-{release}")
    places = (beside, modules / "config", modules / "build/.config", vmlinuz.with_name("config"))
    return next((place for place in places if place.is_file()), beside)


def _check(config: Path, vmlinuz: Path) -> None:
    if not config.is_file():
        return  # then the guest says what it lacks
    have = options_of(config.read_text(errors="replace"))
    lost = next(((name, why) for name, why in _NEEDED.items() if have.get(name, "n") == "n"), None)
    if lost:
        raise Unsupported(
            f"{vmlinuz} was built without {lost[0]} (says {config}): {lost[1]}, and no run can be judged",
            "build it with images/kernel/required.config",
        )


def _check_modules(modules: Path, release: str) -> None:
    """See that the modules are the image's: the kernel refuses others when the guest has booted.

    :raise UsageError: they are of another release.
    """
    for module in sorted(modules.rglob("*.ko*"))[:1]:
        found = re.search(rb"vermagic=(\S+)", read_module(module))
        if found and found[1].decode(errors="replace") != release:
            raise UsageError(
                f"image: the modules in {modules} are of {found[1].decode(errors='replace')}, the image is {release}",
                "name the lib/modules/RELEASE of the image",
            )


def _module_times(modules: Path) -> str:
    """Return text that changes when a module is rebuilt in place."""
    stats = [(path, path.stat()) for path in sorted(modules.rglob("*.ko*"))]
    return "".join(f"{path} {stat.st_size} {stat.st_mtime_ns}\n" for path, stat in stats)


def image_release(vmlinuz: Path) -> str:
    """Return the release that a bzImage's header names.

    :raise HostError: the file is not an x86 kernel image.
    """
    try:
        with vmlinuz.open("rb") as file:
            head = file.read(0x10000)
    except OSError as error:
        raise HostError(f"cannot read {vmlinuz}: {error.strerror}", "check its permissions") from error
    if head[_MAGIC_OFFSET : _MAGIC_OFFSET + 4] != b"HdrS":
        seen = head[_MAGIC_OFFSET : _MAGIC_OFFSET + 4].hex() or "the end of the file"
        raise HostError(
            f"{vmlinuz} is not an x86 kernel image: expected HdrS at 0x202, seen {seen}",
            "name a bzImage, such as arch/x86/boot/bzImage or a vmlinuz",
        )
    (start,) = struct.unpack_from("<H", head, _VERSION_OFFSET)
    text = head[start + _SECTOR :].partition(b"\0")[0].decode(errors="replace")
    return text.split(" ")[0] or "unknown"
