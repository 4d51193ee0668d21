"""A kernel's source tree: which files belong to it, and which version it is. The user's tree is only read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cache import cache_dir
from testbed.errors import UsageError
from testbed.kernel.source import linux_source
from testbed.toolchain.host import program, quiet, run
from testbed.toolchain.recipe import IMAGES

if TYPE_CHECKING:
    from testbed.kernel.kernel import Kernel
    from testbed.toolchain.host import Progress

__all__ = ["Tree", "source_tree", "user_tree"]

_LIST_LIMIT_S = 120.0
#: Nothing an x86 kernel is built from, and a third of all files; their Kconfig files are read all the same.
_NEVER_BUILT = re.compile(
    r"(?:Documentation|LICENSES|rust|samples|tools/testing|tools/perf|arch/(?!x86/|um/|Kconfig)[^/]+)/(?!(?:.*/)?Kconfig)"
)
#: A tree without one of these is partial: a sparse checkout, or a driver's folder and the top Makefile.
_WHOLE = ("Kconfig", "arch/x86/Makefile", "kernel/Makefile", "scripts/Makefile.build")


@dataclass(frozen=True)
class Tree:
    """A tree of source.

    :param path: where it lies. :param name: how it is asked for. :param package: what it was taken from, if anything.
    """

    path: Path
    name: str
    package: str = ""

    @cached_property
    def version(self) -> str:
        """The version that the top Makefile names, such as ``6.12.3``.

        :raise UsageError: there is no such Makefile.
        """
        try:
            text = (self.path / "Makefile").read_text(errors="replace")
        except OSError as error:
            raise UsageError(
                f"{self.name}: there is no Makefile in {self.path}", "name the top of a kernel's tree"
            ) from error
        numbers = [re.search(rf"^{key} *= *(\d+)", text, re.MULTILINE) for key in ("VERSION", "PATCHLEVEL")]
        if not all(numbers):
            raise UsageError(
                f"{self.name}: {self.path}/Makefile is not a kernel's: it names no VERSION and PATCHLEVEL",
                "name the top of a kernel's tree",
            )
        level = re.search(r"^SUBLEVEL *= *(\d+)", text, re.MULTILINE)
        return ".".join(found[1] for found in (*numbers, level) if found)

    @property
    def is_partial(self) -> bool:
        """Whether a kernel cannot be built from it alone."""
        return not all((self.path / name).exists() for name in _WHOLE)

    def files(self) -> list[str]:
        """Return the paths of its files: those git tracks or would track, all but build products where there is no git.

        What no x86 kernel is built from is left out.
        """
        listing = ["--cached", "--others", "--deduplicate", "--exclude-standard"]
        where = ["-C", str(self.path)]
        if not (self.path / ".git").exists():
            # A package's own .gitignore may leave out everything.
            listing = ["--others", f"--exclude-from={IMAGES / 'kernel/products.gitignore'}"]
            where = [f"--git-dir={_empty_repository()}", f"--work-tree={self.path}", *where]
        argv = [program("git"), *where, "ls-files", "-z", *listing]
        told = run(argv, what="git ls-files", timeout_s=_LIST_LIMIT_S)
        return [name for name in told.split("\0") if name and not _NEVER_BUILT.match(name)]


def user_tree(text: str) -> Tree:
    """Return the tree of ``tree:PATH``.

    :raise UsageError: there is no such directory, or it is no kernel's tree.
    """
    path = Path(text).absolute()
    if not text or not path.is_dir():
        raise UsageError(f"tree:{text}: there is no directory {path}", "write tree:PATH")
    tree = Tree(path.resolve(), f"tree:{path.resolve()}")
    _ = tree.version
    return tree


def source_tree(kernel: Kernel, progress: Progress = quiet) -> Tree:
    """Return the whole source of a suite's kernel as a tree.

    :raise HostError: it must be fetched, and cannot be.
    """
    return Tree(linux_source(kernel, progress), kernel.name, kernel.package)


def _empty_repository() -> Path:
    """Return a git directory that tracks nothing, to list trees that are no git trees of their own."""
    directory = cache_dir() / "trees" / "empty.git"
    if not (directory / "HEAD").exists():
        run(
            [program("git"), "init", "-q", "--bare", str(directory)], what="git init", timeout_s=_LIST_LIMIT_S
        )
    return directory
