"""images/toolchain.toml as types: what the toolchain root is made of, and the kernels that set-up knows."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from testbed.errors import HostError

__all__ = ["IMAGES", "KernelRecipe", "Recipe", "RootRecipe", "SourceRecipe", "load_recipe"]

#: In a checkout testbed/images is a link to images/; in an installed package it is the folder itself.
IMAGES = (Path(__file__).parents[1] / "images").resolve()


class RootRecipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The toolchain root: Debian suites, and packages from all of them or from a named one."""

    suites: list[str]
    space_mb: int
    packages: list[str]
    newest: dict[str, list[str]] = msgspec.field(name="from", default_factory=dict)

    def includes(self) -> list[str]:
        """Return the packages as apt wants them: ``name`` or ``name/suite``."""
        chosen = [f"{name}/{suite}" for suite, names in self.newest.items() for name in names]
        return sorted(chosen) + sorted(self.packages)


class KernelRecipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel that a Debian suite offers: the last of ``suites`` is the one whose newest kernel is meant."""

    about: str
    suites: list[str]
    fetched_by_setup: bool


class SourceRecipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which folders of a kernel's source are kept, and the space that fetching one kernel takes.

    :param whole_mb: the space that the whole source takes while it is fetched.
    """

    space_mb: int
    whole_mb: int
    folders: list[str]


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole of toolchain.toml; the first kernel is the default one."""

    root: RootRecipe
    kernel: dict[str, KernelRecipe]
    source: SourceRecipe


@cache
def load_recipe(path: Path = IMAGES / "toolchain.toml") -> Recipe:
    """Return the recipe.

    :raise HostError: the file is missing or not what it must be; the message names the field.
    """
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Recipe)
    except (OSError, msgspec.MsgspecError) as error:
        raise HostError(f"{path}: {error}", "repair the checkout: git status images/") from error
