"""The grammar of KERNEL, and what each name stands for::

    BASE[@variant=NAME][@patch=FILE][@reverse-patch=FILE][@config=FILE][@built][@debug]...

Changes apply in the order in which they stand. ``@built`` asks for the kernel that testbed builds from the base's
source, ``@config`` and ``@debug`` for such a one with further options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cache import content_key
from testbed.errors import Unsupported, UsageError
from testbed.kernel.change import plan, with_changes
from testbed.kernel.config import read_config
from testbed.kernel.debian import cached, fetch
from testbed.kernel.image import from_image
from testbed.kernel.mirror import digests_of
from testbed.kernel.overlay import overlay_of_digests, overlay_on
from testbed.kernel.patch import Patch
from testbed.kernel.source import has_linux_source
from testbed.kernel.tree import source_tree, user_tree
from testbed.kernel.variant import find_variant
from testbed.kernel.whole import Recipe, build_kernel, workspace_of
from testbed.toolchain import open_toolchain
from testbed.toolchain.host import quiet
from testbed.toolchain.recipe import load_recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.kernel.change import Change
    from testbed.kernel.kernel import Kernel
    from testbed.kernel.overlay import Overlay
    from testbed.kernel.tree import Tree
    from testbed.toolchain import Toolchain
    from testbed.toolchain.host import Progress

__all__ = ["Spec", "check_names", "default_kernel", "known_kernels", "parse", "resolve"]

#: Parts that take a value, and those that take none.
VALUED, BARE = ("variant", "patch", "reverse-patch", "config"), ("built", "debug")
_PART = re.compile(rf"@(?=(?:{'|'.join(VALUED)})=|(?:{'|'.join(BARE)})(?:@|$))")
_GRAMMAR = "write BASE[@variant=NAME][@patch=FILE][@reverse-patch=FILE][@config=FILE][@built][@debug]"


@dataclass(frozen=True)
class Spec:
    """A KERNEL taken apart: every name in it exists, every file can be read."""

    base: str
    changes: tuple[Change, ...] = ()
    configs: tuple[Path, ...] = ()
    built: bool = False
    debug: bool = False

    @property
    def is_built(self) -> bool:
        """Whether it asks for a kernel that testbed builds."""
        return self.built or self.debug or bool(self.configs)

    @property
    def text(self) -> str:
        """The KERNEL that asks for it from any directory: every path in it is absolute."""
        kind, colon, path = self.base.partition(":")
        if kind in {"tree", "image"}:
            path = ",".join(str(Path(each).absolute()) for each in path.split(","))
        changes = (f"{change.kind}={change.asked}" for change in self.changes)
        configs = (f"config={file}" for file in self.configs)
        bare = (word for word in BARE if getattr(self, word))
        return "@".join([f"{kind}{colon}{path}", *changes, *configs, *bare])

    @property
    def contents(self) -> list[str]:
        """What stands for the content of each change and file of options."""
        return [*(change.key for change in self.changes), *(content_key(file) for file in self.configs)]


def known_kernels() -> dict[str, str]:
    """Return what can be asked for by name, and one line about each."""
    named = {name: recipe.about for name, recipe in load_recipe().kernel.items()}
    return {
        **named,
        "tree:PATH": "a source tree of your own, built in the cache",
        "image:VMLINUZ,MODULES_DIR": "an image and modules of your own",
    }


def default_kernel() -> str:
    """Return the name of the default kernel: the first of toolchain.toml."""
    return next(iter(load_recipe().kernel))


def parse(text: str) -> Spec:
    """Return what a KERNEL asks for; an empty base is the default.

    Nothing is looked for beyond names and files of the user: no toolchain, no cache.

    :raise UsageError: a part is none of the grammar's, a name is unknown, or a file cannot be read.
    """
    base, *parts = _PART.split(text)
    kind, _, path = base.partition(":")
    if "@" in base and not (kind in {"tree", "image"} and Path(path.partition(",")[0]).exists()):
        raise UsageError(
            f"kernel {text!r}: expected a part such as @variant=NAME, seen @{base.partition('@')[2]}",
            _GRAMMAR,
        )
    spec = Spec(base or default_kernel())
    for part in parts:
        spec = _with_part(spec, *part.partition("=")[::2])
    _check_base(spec.base)
    return spec


def _with_part(spec: Spec, kind: str, value: str) -> Spec:
    if kind == "built":
        return replace(spec, built=True)
    if kind == "debug":
        return replace(spec, debug=True)
    if not value:
        raise UsageError(
            f"expected @{kind}={'NAME' if kind == 'variant' else 'FILE'}, seen @{kind}=", _GRAMMAR
        )
    if kind == "config":
        file = Path(value).absolute()
        read_config(file)
        return replace(spec, configs=(*spec.configs, file))
    return replace(spec, changes=(*spec.changes, _change(kind, value)))


def _change(kind: str, value: str) -> Change:
    if kind == "variant":
        return find_variant(value)
    patch = Patch(Path(value).absolute(), reverse=kind == "reverse-patch")
    _ = patch.diffs
    return patch


def check_names(text: str, variants: Sequence[str] = ()) -> Spec:
    """Return what a KERNEL asks for, with further variants behind its own; see :func:`parse`."""
    spec = parse(text)
    return replace(spec, changes=(*spec.changes, *map(find_variant, variants)))


def resolve(asked: str | Spec = "", toolchain: Toolchain | None = None, progress: Progress = quiet) -> Kernel:
    """Return the kernel that ``asked`` names, with all its changes built.

    A suite's kernel comes from the cache, without any network; one that set-up did not fetch is fetched now.

    :param progress: told what is built, and why.
    :raise UsageError: unknown kernel or variant, or a file is not there.
    :raise HostError: an image is not one; the kernel must be fetched and cannot be.
    :raise BuildError: a change does not apply or does not compile.
    :raise Unsupported: nothing can be built for this kernel.
    """
    spec = parse(asked) if isinstance(asked, str) else asked
    if spec.base.startswith("tree:"):
        return _of_tree(spec, toolchain or open_toolchain(), progress)
    base = _base(spec.base)
    if not spec.is_built:
        return with_changes(base, spec.changes, toolchain, progress)
    if base.source is None:
        raise Unsupported(
            f"the kernel {base.name} brings no source to build it from",
            "choose a debian: kernel or tree:PATH",
        )
    return _built(spec, source_tree(base, progress), toolchain or open_toolchain(), progress)


def _built(spec: Spec, tree: Tree, toolchain: Toolchain, progress: Progress) -> Kernel:
    return build_kernel(Recipe(tree, spec.changes, spec.configs, spec.debug), toolchain, progress)


def _of_tree(spec: Spec, toolchain: Toolchain, progress: Progress) -> Kernel:
    """Return the kernel of a tree: one at hand with the tree's modules where that is the same, else built whole."""
    tree = user_tree(spec.base.removeprefix("tree:"))
    stock = _of_version(tree.version)
    if tree.is_partial and stock is None:
        raise Unsupported(
            f"{tree.name} is only a part of Linux {tree.version}, and there is no kernel of that version here",
            "check out the whole tree, or see testbed list kernels",
        )
    if spec.is_built and not tree.is_partial:
        return _built(spec, tree, toolchain, progress)
    overlay = _overlay(tree, stock, toolchain, progress) if stock else None
    if stock is None or overlay is None:
        progress(tree.name, "is built whole")
        return _built(spec, tree, toolchain, progress)
    own = (overlay, *spec.changes) if overlay.files else spec.changes
    if not tree.is_partial and own and plan(stock, own, toolchain, progress).built_in:
        progress(tree.name, f"differs from {stock.name} in more than modules, and is built whole")
        return _built(spec, tree, toolchain, progress)
    progress(tree.name, f"is {stock.name} ({stock.release}) but for {len(overlay.files)} files")
    if spec.is_built:
        recipe = Recipe(source_tree(stock, progress), own, spec.configs, spec.debug)
        return replace(build_kernel(recipe, toolchain, progress), name=tree.name)
    return replace(with_changes(stock, own, toolchain, progress), name=tree.name)


def _overlay(tree: Tree, stock: Kernel, toolchain: Toolchain, progress: Progress) -> Overlay | None:
    """Return what the tree changes in the source of a kernel of its version; None when that is not at hand."""
    if tree.is_partial:
        return overlay_on(stock, tree)
    if not has_linux_source(stock):
        return None
    with workspace_of(tree, toolchain, progress) as (_, mirror):
        return overlay_of_digests(tree, mirror.scan(), digests_of(source_tree(stock)))


def _of_version(version: str) -> Kernel | None:
    """Return a suite's kernel of this very version, if the cache has one."""
    kernels = (cached(name) for name in load_recipe().kernel)
    return next(
        (each for each in kernels if each and re.match(rf"{re.escape(version)}\b", each.release)), None
    )


def _base(name: str) -> Kernel:
    if name.startswith("image:"):
        return from_image(name.removeprefix("image:"))
    return cached(name) or fetch(name, open_toolchain)


def _check_base(name: str) -> None:
    if name.startswith("tree:"):
        user_tree(name.removeprefix("tree:"))
    elif not name.startswith("image:") and name not in load_recipe().kernel:
        known = ", ".join(known_kernels())
        raise UsageError(f"unknown kernel {name!r}; known are {known}", "see: testbed list kernels")
