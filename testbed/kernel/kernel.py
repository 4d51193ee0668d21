"""What a kernel is to the rest of testbed: something bootable, and its modules in load order."""

from __future__ import annotations

import lzma
import re
import subprocess
import zlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from testbed.cache import cache_dir
from testbed.errors import HostError, Unsupported
from testbed.toolchain.host import program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from testbed.kernel.change import Change
    from testbed.kernel.whole import Recipe

__all__ = ["Kernel", "Module", "entry_of", "plain_name"]


@dataclass(frozen=True)
class Module:
    """A kernel module as it is loaded.

    :param name: with underscores, as in /proc/modules.
    :param data: the ELF file, decompressed.
    """

    name: str
    data: bytes


@dataclass(frozen=True)
class Kernel:
    """A bootable kernel and its modules.

    :param name: what it is asked for by, such as ``debian:trixie-backports``, variants not included.
    :param release: what ``uname -r`` says.
    :param package: name and version of the package it comes from, empty for the user's own image.
    :param vmlinuz: the bzImage.
    :param modules: the directory ``lib/modules/RELEASE``, with modules.dep in it.
    :param config: the configuration it was built from; need not exist for the user's own image.
    :param headers: what modules are built against (with a BTF vmlinux in it), None when there is none.
    :param identity: content id; kernels of equal identity behave alike.
    :param changes: the variants and patches it has, in the order they were applied.
    :param replaced: module name to the file that takes the stock module's place.
    :param source: folders of its source tree, for building variants; None when there are none.
    :param recipe: what it was built from by testbed itself; None for one that was built elsewhere.
    """

    name: str
    release: str
    package: str
    vmlinuz: Path
    modules: Path
    config: Path
    headers: Path | None
    identity: str
    changes: tuple[Change, ...] = ()
    replaced: Mapping[str, Path] = field(default_factory=dict)
    source: Path | None = None
    recipe: Recipe | None = None

    @property
    def variants(self) -> list[str]:
        """Names of its variants, in order."""
        return [change.name for change in self.changes if change.kind == "variant"]

    @property
    def patches(self) -> list[str]:
        """Names of its patches, in order."""
        return [change.name for change in self.changes if change.kind in {"patch", "reverse-patch"}]

    @property
    def asked(self) -> str:
        """The KERNEL that asks for it, changes and all."""
        parts = [f"{each.kind}={each.asked}" for each in self.changes if each.kind != "tree"]
        if self.recipe:
            parts += [
                *(f"config={file}" for file in self.recipe.configs),
                "debug" if self.recipe.debug else "built",
            ]
        return "@".join([self.name, *parts])

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor of the release.

        :raise HostError: the release does not begin with them.
        """
        match = re.match(r"(\d+)\.(\d+)", self.release)
        if not match:
            raise HostError(
                f"expected a kernel release like 6.12.1, seen '{self.release}'", "name another kernel"
            )
        return int(match[1]), int(match[2])

    def module_closure(self, names: Sequence[str]) -> list[Module]:
        """Return the named modules and what they depend on, in load order; what is built in is left out.

        :raise Unsupported: the kernel has no such module.
        """
        ordered: dict[str, str] = {}
        for name in map(plain_name, names):
            path = self._paths.get(name)
            if path:
                for needed in (*reversed(self._dependencies[path]), path):
                    ordered.setdefault(plain_name(needed), needed)
            elif name not in self._builtin:
                raise Unsupported(
                    f"the kernel {self.name} ({self.release}) has no module {name}", "choose another kernel"
                )
        return [Module(name, self._read(name, path)) for name, path in ordered.items()]

    def module_path(self, name: str) -> Path | None:
        """Return where the module's file lies, None when it is built in or there is none."""
        replaced = self.replaced.get(plain_name(name))
        path = self._paths.get(plain_name(name))
        return replaced or (self.modules / path if path else None)

    @cached_property
    def _dependencies(self) -> dict[str, list[str]]:
        """Module path to the paths it needs, the directly needed first, as modules.dep has them."""
        lines = (line.partition(":") for line in (self.modules / "modules.dep").read_text().splitlines())
        return {path: needed.split() for path, _, needed in lines}

    @cached_property
    def _paths(self) -> dict[str, str]:
        return {plain_name(path): path for path in self._dependencies}

    @cached_property
    def _builtin(self) -> frozenset[str]:
        listed = self.modules / "modules.builtin"
        return frozenset(map(plain_name, listed.read_text().splitlines())) if listed.exists() else frozenset()

    def _read(self, name: str, path: str) -> bytes:
        return read_module(self.replaced.get(name) or self.modules / path)


def entry_of(kernel: Kernel) -> tuple[str, ...]:
    """Return the entry of the cache that holds the kernel; nothing for one that lies elsewhere."""
    entry = kernel.vmlinuz.parent
    kind = entry.parent.name
    return (f"{kind}/{entry.name}",) if entry.parent == cache_dir() / kind else ()


def plain_name(path: str) -> str:
    """Return a module's name as the kernel has it: ``dwmac_intel`` for ``a/dwmac-intel.ko.xz``."""
    return path.rpartition("/")[2].split(".ko")[0].replace("-", "_")


def read_module(path: Path) -> bytes:
    """Return a module's ELF file, decompressed by what its name ends in.

    :raise HostError: it cannot be read or is damaged.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".xz":
            return lzma.decompress(data)
        if path.suffix == ".gz":
            return zlib.decompress(data, wbits=31)
        if path.suffix == ".zst":
            argv = [program("zstd"), "-dc"]
            return subprocess.run(argv, input=data, capture_output=True, check=True, timeout=60).stdout
    except (OSError, lzma.LZMAError, zlib.error, subprocess.SubprocessError) as error:
        raise HostError(f"cannot read the module {path}: {error}", "run: testbed setup --refresh") from error
    return data
