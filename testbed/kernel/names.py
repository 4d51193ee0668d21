"""The grammar of KERNEL: ``BASE[@variant=NAME]...``, and what each name stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.errors import UsageError
from testbed.kernel.debian import cached, fetch
from testbed.kernel.image import from_image
from testbed.kernel.variant import find_variant, with_variants
from testbed.toolchain import open_toolchain
from testbed.toolchain.recipe import load_recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.kernel.kernel import Kernel

__all__ = ["check_names", "default_kernel", "known_kernels", "parse", "resolve"]


def known_kernels() -> dict[str, str]:
    """Return what can be asked for by name, and one line about each."""
    named = {name: recipe.about for name, recipe in load_recipe().kernel.items()}
    return {**named, "image:VMLINUZ,MODULES_DIR": "an image and modules of your own"}


def default_kernel() -> str:
    """Return the name of the default kernel: the first of toolchain.toml."""
    return next(iter(load_recipe().kernel))


def parse(text: str) -> tuple[str, list[str]]:
    """Return base and variants of a KERNEL; an empty base is the default.

    :raise UsageError: a part after ``@`` is not ``variant=NAME``.
    """
    base, *parts = text.split("@")
    variants = []
    for part in parts:
        kind, equals, name = part.partition("=")
        if kind != "variant" or not equals or not name:
            raise UsageError(
                f"kernel {text!r}: expected @variant=NAME, seen @{part}", "see: testbed list variants"
            )
        variants.append(name)
    return base or default_kernel(), variants


def check_names(text: str, variants: Sequence[str] = ()) -> tuple[str, list[str]]:
    """Return base and all variants of a KERNEL, those of ``variants`` last, when all of them exist.

    Nothing is looked for beyond names: no toolchain, no cache.

    :raise UsageError: one of them is unknown.
    """
    base, named = parse(text)
    if not base.startswith("image:"):
        _check_base(base)
    return base, [find_variant(name).name for name in (*named, *variants)]


def resolve(text: str = "") -> Kernel:
    """Return the kernel that ``text`` names, its variants built.

    A suite's kernel comes from the cache, without any network; one that set-up did not fetch is fetched now.

    :raise UsageError: unknown kernel or variant, or a file of ``image:`` is not there.
    :raise HostError: an image is not one; the kernel must be fetched and cannot be.
    :raise BuildError: a variant does not apply or does not compile.
    """
    base, variants = parse(text)
    return with_variants(_base(base), variants)


def _base(name: str) -> Kernel:
    if name.startswith("image:"):
        return from_image(name.removeprefix("image:"))
    _check_base(name)
    return cached(name) or fetch(name, open_toolchain)


def _check_base(name: str) -> None:
    if name not in load_recipe().kernel:
        known = ", ".join(known_kernels())
        raise UsageError(f"unknown kernel {name!r}; known are {known}", "see: testbed list kernels")
