"""A source tree that differs from a kernel at hand in its modules only: those are built, and nothing else.

That is what a tree from ``testbed kernel source`` is after a driver was worked on, and what a sparse checkout is: a few
seconds instead of a whole kernel.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from testbed.cache import content_key
from testbed.errors import UsageError
from testbed.kernel.mirror import digest_of
from testbed.kernel.source import source_with

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from testbed.kernel.kernel import Kernel
    from testbed.kernel.tree import Tree
    from testbed.toolchain import Toolchain

__all__ = ["Overlay", "overlay_of_digests", "overlay_on"]


@dataclass(frozen=True)
class Overlay:
    """The files of a tree that differ from those of a kernel's source, as a change of it."""

    tree: Tree
    files: tuple[str, ...]
    kind: Literal["tree"] = "tree"

    @property
    def name(self) -> str:
        """Return the name that results record."""
        return self.tree.name

    @property
    def asked(self) -> str:
        """Return the KERNEL's base that asks for the tree."""
        return self.tree.name

    @cached_property
    def key(self) -> str:
        """What stands for the content of the files."""
        present = {path: self.tree.path / path for path in self.files}
        contents = (digest_of(file) if file.exists() else b"" for file in present.values())
        return content_key(*(part for pair in zip(present, contents, strict=True) for part in pair))

    def touched(self, source: Path) -> list[str]:
        """Return the paths of the files."""
        del source
        return list(self.files)

    def apply(self, toolchain: Toolchain, root: Path, inside: str = "") -> None:
        """Write the tree's files over those of a folder; what the tree does not have is removed."""
        del toolchain
        prefix = f"{inside}/" if inside else ""
        for path in self.files:
            if path.startswith(prefix):
                target, file = root / path.removeprefix(prefix), self.tree.path / path
                target.unlink(missing_ok=True)
                if file.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, target)


def overlay_on(kernel: Kernel, tree: Tree) -> Overlay:
    """Return what a partial tree changes in the kernel's source; a folder that it does not have is as the kernel's.

    :raise UsageError: it has no file that a kernel is built from.
    """
    files = {path for path in tree.files() if "/" in path and (tree.path / path).is_file()}
    if not files:
        raise UsageError(
            f"{tree.name} holds a Makefile and no source",
            "name the top of a kernel's tree, or of a sparse checkout",
        )
    differing = []
    for folder in sorted({path.rpartition("/")[0] for path in files}):
        theirs = source_with(kernel, f"{folder}/Makefile") / folder
        known = {f"{folder}/{file.name}" for file in theirs.glob("*") if file.is_file()}
        own = {path for path in files if path.rpartition("/")[0] == folder}
        same = {path for path in own & known if _is_equal(tree.path / path, theirs)}
        differing += sorted((own | known) - same)
    return Overlay(tree, tuple(differing))


def _is_equal(file: Path, folder: Path) -> bool:
    """Whether a folder has the file with the same content."""
    return file.read_bytes() == (folder / file.name).read_bytes()


def overlay_of_digests(tree: Tree, own: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> Overlay:
    """Return what a whole tree changes in another one, by the digests of their files."""
    differing = {path for path, digest in own.items() if theirs.get(path) != digest}
    return Overlay(tree, tuple(sorted(differing | (theirs.keys() - own.keys()))))
