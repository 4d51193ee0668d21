"""What a folder of the kernel's tree becomes with a configuration: modules, parts of the kernel, or nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from testbed.toolchain import Toolchain

__all__ = ["Folder", "Place", "makefile_of", "place_by_name", "place_of", "read_folder"]

# Source: scripts/Makefile.build and scripts/Makefile.lib, where obj-y, obj-m and NAME-y are read.
_EVALUATE = """\
include {config}
srctree := {root}
src := {root}/{folder}
obj := $(src)
include {makefile}
parts = $($(1:.o=-objs)) $($(1:.o=-y)) $($(1:.o=-m))
$(foreach object,$(obj-y) $(lib-y),$(info kernel $(object) $(call parts,$(object))))
$(foreach object,$(obj-m),$(info module $(object) $(call parts,$(object))))
all: ;@:
"""
_NO_CODE = frozenset({"Documentation", "LICENSES", "rust", "samples", "tools"})
# Of tools/, what the kernel's own build runs or includes.
_TOOLS_OF_THE_BUILD = (
    "tools/objtool/",
    "tools/lib/",
    "tools/include/",
    "tools/build/",
    "tools/bpf/resolve_btfids/",
)
_COMPILED = (".c", ".S")
_HEADERS = ("include/", "arch/x86/include/")
_LIMIT_S = 30.0


@dataclass(frozen=True)
class Place:
    """What a file of the tree becomes a part of.

    :param folder: for modules, the folder whose Makefile makes them.
    :param modules: for modules, their names; None for all that the folder makes.
    """

    kind: Literal["modules", "kernel", "nothing"]
    folder: str = ""
    modules: frozenset[str] | None = None


@dataclass(frozen=True)
class Folder:
    """What a Makefile makes.

    :param kernel: objects and folders that become part of the kernel.
    :param modules: module to its objects, all named relative to the folder and without ``.o``.
    """

    kernel: frozenset[str] = frozenset()
    modules: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def is_one_driver(self) -> bool:
        """Whether nothing but modules are made of it, and none in a folder below: it can be built whole."""
        return bool(self.modules) and not self.kernel and not any(name.endswith("/") for name in self.modules)

    def modules_of(self, name: str) -> frozenset[str]:
        """Return the modules that a file of the folder (``en/tx.c``) becomes a part of."""
        if not name.endswith(_COMPILED):
            return frozenset(self.modules) if self.is_one_driver else frozenset()
        return frozenset(module for module, objects in self.modules.items() if name[:-2] in objects)


def makefile_of(root: Path, path: str) -> Path | None:
    """Return the Makefile or Kbuild that decides over a file: the nearest one above it."""
    folder = root / path
    while folder != root:
        folder = folder.parent
        for name in ("Kbuild", "Makefile"):
            if (folder / name).is_file():
                return folder / name
    return None


def read_folder(toolchain: Toolchain, root: Path, makefile: Path, config: Path) -> Folder:
    """Return what a Makefile of the tree in ``root`` makes with a configuration.

    :raise BuildError: make cannot read it.
    """
    folder = makefile.parent.relative_to(root)
    text = _EVALUATE.format(config=config, root=root, folder=folder, makefile=makefile)
    told = toolchain.run(
        ["make", "-s", "-f", "-", "all"], read=[root, config], timeout_s=_LIMIT_S, stdin=text.encode()
    )
    kernel, modules = set(), {}
    for line in told.splitlines():
        kind, *names = (word.removesuffix(".o") for word in line.split()) if line.strip() else ("",)
        if kind == "kernel":
            kernel.update(names)
        elif kind == "module":
            modules[names[0]] = frozenset(names[1:] or names)
    return Folder(frozenset(kernel), modules)


def place_by_name(path: str) -> Place | None:
    """Return what a file becomes a part of, when its path alone says so."""
    top, _, below = path.partition("/")
    if path.startswith((*_TOOLS_OF_THE_BUILD, *_HEADERS)) or path in {"Makefile", "Kbuild"}:
        return Place("kernel")
    if top in _NO_CODE or not below or (top == "arch" and not below.startswith("x86/")):
        return Place("nothing")
    return Place("nothing") if path.endswith((".rst", ".txt", ".gitignore", "/Kconfig")) else None


def place_of(toolchain: Toolchain, root: Path, path: str, config: Path) -> Place:
    """Return what a file of the tree in ``root`` becomes a part of with a configuration.

    :raise BuildError: its Makefile cannot be read.
    """
    named = place_by_name(path)
    makefile = makefile_of(root, path)
    if named or makefile is None:
        return named or Place("kernel")
    folder = read_folder(toolchain, root, makefile, config)
    name = str((root / path).relative_to(makefile.parent))
    where, modules = str(makefile.parent.relative_to(root)), folder.modules_of(name)
    if modules:
        return Place("modules", where, None if folder.is_one_driver else modules)
    if name.endswith(_COMPILED) and name[:-2] not in folder.kernel and not _is_part_of_others(root / path):
        return Place("nothing")
    return Place("modules", where) if folder.is_one_driver else Place("kernel")


def _is_part_of_others(file: Path) -> bool:
    """Whether a source file that no Makefile names may matter: it is new, or a neighbour includes it."""
    if not file.exists():
        return True
    named = f'"{file.name}"'.encode()
    return any(named in each.read_bytes() for each in file.parent.glob("*.[chS]"))
