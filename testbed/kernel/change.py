"""What a change of a kernel is, and what applying one to a kernel takes: new modules, or a new kernel."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

from testbed.cache import content_key
from testbed.errors import BuildError, Unsupported
from testbed.kernel.build import ModuleFolder, build_modules, stock_identity
from testbed.kernel.kbuild import place_by_name, place_of
from testbed.kernel.source import source_with
from testbed.kernel.tree import source_tree
from testbed.kernel.variant import find_variant
from testbed.kernel.whole import Recipe, build_kernel
from testbed.toolchain import open_toolchain
from testbed.toolchain.host import quiet

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from testbed.kernel.kernel import Kernel
    from testbed.toolchain import Toolchain
    from testbed.toolchain.host import Progress

__all__ = ["Change", "Plan", "plan", "with_changes", "with_variants"]


class Change(Protocol):
    """Something that changes a kernel's source."""

    @property
    def kind(self) -> Literal["variant", "patch", "reverse-patch", "tree"]:
        """Return what it is called in a KERNEL."""

    @property
    def name(self) -> str:
        """Return the name that results record."""

    @property
    def asked(self) -> str:
        """Return what follows ``@KIND=`` in a KERNEL."""

    @property
    def key(self) -> str:
        """Return what stands for its content; it is part of what names a build."""

    def touched(self, source: Path) -> list[str]:
        """Return the paths, in the kernel's tree, of the files it changes or may change.

        :param source: the tree, or the part of it that is at hand.
        """

    def apply(self, toolchain: Toolchain, root: Path, inside: str = "") -> None:
        """Change a folder of the tree in place.

        :param root: where the folder lies.
        :param inside: its path in the tree; empty for the whole tree.
        :raise BuildError: it does not apply; the message says which part.
        """


@dataclass
class Plan:
    """What changes take.

    :param folders: the folders whose modules they touch, with the changes of each, in order.
    :param built_in: files they touch that are part of the kernel itself.
    :param unused: files they touch that this kernel is not built from.
    """

    folders: dict[ModuleFolder, list[Change]] = field(default_factory=dict)
    built_in: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def add(self, change: Change, folder: ModuleFolder) -> None:
        """Let a folder be built with the change; modules of one path are built together."""
        known = next((each for each in self.folders if each.path == folder.path), folder)
        changes = self.folders.pop(known, [])
        if known.modules is not None and folder.modules is not None:
            known = replace(known, modules=known.modules | folder.modules)
        self.folders[known] = changes if change in changes else [*changes, change]


def plan(kernel: Kernel, changes: Sequence[Change], toolchain: Toolchain, progress: Progress = quiet) -> Plan:
    """Find out what each file that the changes touch becomes a part of in this kernel.

    :raise Unsupported: the kernel has no source, or not this driver.
    :raise BuildError: the changes touch nothing that this kernel is built from.
    """
    if kernel.headers is None or kernel.source is None:
        raise Unsupported(
            f"the kernel {kernel.name} brings no headers and source, which changing it needs",
            "choose a kernel of testbed list kernels",
        )
    found = Plan()
    for change in changes:
        for path in change.touched(kernel.source):
            root = kernel.source if place_by_name(path) else source_with(kernel, path, progress)
            where = place_of(toolchain, root, path, kernel.config)
            if where.kind == "modules":
                found.add(change, ModuleFolder(root, where.folder, where.modules))
            else:
                (found.built_in if where.kind == "kernel" else found.unused).append(path)
    if not found.folders and not found.built_in:
        names, files = " + ".join(each.name for each in changes), ", ".join(found.unused[:3])
        raise BuildError(
            f"{names} changes nothing that {kernel.name} ({kernel.release}) is built from: {files}",
            "choose a kernel whose configuration has what it changes",
        )
    return found


def with_variants(kernel: Kernel, names: Sequence[str], toolchain: Toolchain | None = None) -> Kernel:
    """Return the kernel with the named variants, after the changes it already has; see :func:`with_changes`.

    :raise UsageError: unknown variant.
    """
    return with_changes(kernel, [find_variant(name) for name in names], toolchain) if names else kernel


def with_changes(
    kernel: Kernel,
    changes: Sequence[Change],
    toolchain: Toolchain | None = None,
    progress: Progress = quiet,
) -> Kernel:
    """Return the kernel with changes, applied in this order after those it already has.

    What touches modules only gives modules built against the kernel's headers; what touches the kernel itself gives
    a kernel built from its source. Both are taken from the cache when they are there.

    :param progress: told which of the two it is, and why.
    :raise BuildError: a change does not apply, touches nothing that is built, or does not compile.
    :raise Unsupported: nothing can be built for this kernel.
    """
    if not changes:
        return kernel
    toolchain = toolchain or open_toolchain()
    every = (*kernel.changes, *changes)
    if kernel.recipe:
        return build_kernel(replace(kernel.recipe, changes=every), toolchain, progress)
    found = plan(kernel, every, toolchain, progress)
    for path in found.unused:
        progress(kernel.name, f"{path} is left out: this kernel is not built from it")
    if found.built_in:
        progress(kernel.name, f"{found.built_in[0]} is part of the kernel, which is built from its source")
        return build_kernel(Recipe(source_tree(kernel, progress), every), toolchain, progress)
    return _with_modules(kernel, every, found, toolchain, progress)


def _with_modules(
    kernel: Kernel, changes: tuple[Change, ...], found: Plan, toolchain: Toolchain, progress: Progress
) -> Kernel:
    assert kernel.headers  # noqa: S101 - plan() made sure
    replaced: dict[str, Path] = {}
    for folder, own in found.folders.items():
        if any(change.kind != "variant" for change in own):
            progress(kernel.name, f"{folder.path} is built against the headers of {kernel.release}")
        replaced |= build_modules(kernel, kernel.headers, folder, own, toolchain)
    built = [part for name, path in sorted(replaced.items()) for part in (name, path)]
    identity = f"{stock_identity(kernel)}+{content_key(*built)}"
    return replace(kernel, changes=changes, replaced=replaced, identity=identity)
