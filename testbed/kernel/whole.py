"""Building a whole kernel from source, in a workspace of the cache that the next build goes on from.

Layout in the cache::

    trees/ID/             the workspace of one tree: its mirror, and a build directory for each configuration
    built/ID/             a kernel that was built, named by source, changes, configuration and toolchain
    ccache/               objects by content, shared by all workspaces

A build that is killed goes on where it was. Two builds of one tree wait for each other; of one kernel, the second
finds what the first made.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from testbed.cache import ORIGIN, Origin, build_once, cache_dir, content_key, hold, host_errors
from testbed.errors import BuildError
from testbed.kernel.config import configure, fragment
from testbed.kernel.debian import Record
from testbed.kernel.kernel import Kernel
from testbed.kernel.make import make, waiting_lock
from testbed.kernel.mirror import Mirror
from testbed.toolchain.host import need_space, quiet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.kernel.change import Change
    from testbed.kernel.tree import Tree
    from testbed.toolchain import Toolchain
    from testbed.toolchain.host import Progress

__all__ = ["Recipe", "build_kernel", "workspace_of"]

_LAYOUT = "1"  # another one makes every older build out of date
_SPACE_MB = 4000
_INSTALL_LIMIT_S = 600.0
_DEBUG_COSTS = "KASAN, lockdep, DEBUG_NET and KCOV are built in: the guest is several times slower"


@dataclass(frozen=True)
class Recipe:
    """What a kernel is built from.

    :param changes: applied in order.
    :param configs: files of the user's options.
    :param debug: whether it is to find its own memory and locking errors.
    """

    tree: Tree
    changes: tuple[Change, ...] = ()
    configs: tuple[Path, ...] = ()
    debug: bool = False


def build_kernel(recipe: Recipe, toolchain: Toolchain, progress: Progress = quiet) -> Kernel:
    """Return the kernel that is built from ``recipe``, from the cache when it was built before.

    :raise UsageError: a file of options cannot be read.
    :raise BuildError: a change does not apply, an option is missing, or it does not compile; the message is the
        compiler's first error.
    :raise HostError: there is no room.
    """
    if recipe.debug:
        progress(recipe.tree.name, _DEBUG_COSTS)
    wanted = fragment(recipe.configs, debug=recipe.debug)
    with workspace_of(recipe.tree, toolchain, progress) as (workspace, mirror):
        digests = mirror.scan()
        key = content_key(
            _LAYOUT, toolchain.identity, mirror.state(), wanted, *(each.key for each in recipe.changes)
        )
        builder = _Builder(recipe, wanted, workspace, mirror, digests, toolchain, progress)
        origin = Origin(f"{recipe.tree.name} {recipe.tree.version}", (f"toolchain:{toolchain.identity}",))
        return _kernel(build_once(cache_dir() / "built" / key, builder.build, origin), recipe)


@contextmanager
def workspace_of(
    tree: Tree, toolchain: Toolchain, progress: Progress = quiet
) -> Iterator[tuple[Path, Mirror]]:
    """Lend the workspace of a tree, and the mirror in it, to one process at a time."""
    workspace = cache_dir() / "trees" / content_key(str(tree.path), toolchain.identity)
    with waiting_lock(f"trees-{workspace.name}", tree.name, progress), host_errors(workspace):
        workspace.mkdir(parents=True, exist_ok=True)
        about = Origin(f"workspace of {tree.path}", (f"toolchain:{toolchain.identity}",))
        (workspace / ORIGIN).write_bytes(msgspec.json.encode(about))
        hold(workspace)
        yield workspace, Mirror(workspace, tree)


def _kernel(built: Path, recipe: Recipe) -> Kernel:
    record = msgspec.json.decode((built / "kernel.json").read_bytes(), type=Record)
    return Kernel(
        name=recipe.tree.name,
        release=record.release,
        package=f"{record.package} {record.version}".strip(),
        vmlinuz=built / "vmlinuz",
        modules=built / "lib/modules" / record.release,
        config=built / "config",
        headers=None,
        identity=built.name,
        changes=recipe.changes,
        recipe=recipe,
    )


@dataclass(frozen=True)
class _Builder:
    """One build in a workspace that nobody else works in."""

    recipe: Recipe
    wanted: str
    workspace: Path
    mirror: Mirror
    digests: dict[str, bytes]
    toolchain: Toolchain
    progress: Progress

    def build(self, target: Path) -> None:
        """Build the kernel and leave it in ``target``."""
        name, tree = self.recipe.tree.name, self.recipe.tree
        need_space(self.workspace, _SPACE_MB, f"building {name}")
        self.progress(name, "bringing the mirror up to date")
        self.mirror.sync()
        self._apply_changes()
        flavour = content_key(*map(str, self.recipe.configs), "debug" if self.recipe.debug else "")
        source, build = self.mirror.source, self.workspace / f"build-{flavour}"
        build.mkdir(exist_ok=True)
        configure(source, build, self.wanted, self._kconfig(), self.toolchain, self.progress)
        make(source, build, ["bzImage", "modules"], self.toolchain, lambda line: self.progress(name, line))
        release = (build / "include/config/kernel.release").read_text().strip()
        self._install(source, build, target)
        shutil.copyfile(build / "arch/x86/boot/bzImage", target / "vmlinuz")
        shutil.copyfile(build / ".config", target / "config")
        record = Record(release, "linux-source" if tree.package else "", tree.package.partition(" ")[2])
        (target / "kernel.json").write_bytes(msgspec.json.format(msgspec.json.encode(record)))

    def _apply_changes(self) -> None:
        for change in self.recipe.changes:
            self.mirror.will_change(change.touched(self.mirror.source))
            change.apply(self.toolchain, self.mirror.source)

    def _kconfig(self) -> str:
        """Return what stands for all Kconfig files, as far as changes leave them alone."""
        files = sorted((path, digest) for path, digest in self.digests.items() if "Kconfig" in path)
        changing = [
            each.key
            for each in self.recipe.changes
            if any("Kconfig" in path for path in each.touched(self.mirror.source))
        ]
        return content_key(*(part for file in files for part in file), *changing)

    def _install(self, source: Path, build: Path, target: Path) -> None:
        """Put the modules into ``target``, stripped, with what depmod finds."""
        self.toolchain.run(
            [
                *("make", "-s", "-C", str(source), f"O={build}", f"-j{os.cpu_count() or 1}"),
                *(f"INSTALL_MOD_PATH={target}", "INSTALL_MOD_STRIP=--strip-debug", "modules_install"),
            ],
            read=[source],
            write=[build, target],
            timeout_s=_INSTALL_LIMIT_S,
        )
        modules = next((target / "lib/modules").iterdir(), None)
        if modules is None:
            raise BuildError("the build made no modules", "let the configuration have CONFIG_MODULES=y")
        for link in ("build", "source"):
            (modules / link).unlink(missing_ok=True)
