"""Building the toolchain root: a small Debian in the cache, made by mmdebstrap, in use when it is whole.

Layout in the cache; KEY stands for the recipe (suites, package names), ID for the resolved versions::

    toolchain/KEY.ID/root/          the file system
    toolchain/KEY.ID/packages.txt   "name version" of every package in it
    toolchain/KEY                   symbolic link to the KEY.ID in use

mmdebstrap runs in a PID namespace of its own that ends with testbed, whichever way testbed ends. When testbed
is not root, it is a user namespace too, in which the user is root, so that the tree belongs to the user.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, NoReturn

from testbed.cache import cache_dir, content_key, hold, host_errors, locked
from testbed.errors import HostError
from testbed.toolchain.archive import explain, find_archive
from testbed.toolchain.guard import start_guard
from testbed.toolchain.host import attempt, first_error, follow, need_programs, need_space, program, quiet
from testbed.toolchain.recipe import RootRecipe, load_recipe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from testbed.toolchain.archive import Archive
    from testbed.toolchain.host import Progress

__all__ = ["build_programs", "current_root", "discard", "installed", "setup"]

_LAYOUT = "1"  # another one makes every older root out of date
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")


def build_programs() -> list[str]:
    """Return what set-up needs of the host."""
    always = ["apt-get", "bwrap", "dpkg-deb", "mmdebstrap", "setpriv", "unshare"]
    return always if os.geteuid() == 0 else [*always, "newuidmap"]


def _namespaces() -> list[str]:
    """Return the start of an argv: the rest runs as root of the tree, in a PID namespace of its own."""
    mapping = [] if os.geteuid() == 0 else ["--user", "--map-root-user", "--map-auto"]
    return [program("unshare"), *mapping, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def _recipe_link(recipe: RootRecipe) -> Path:
    key = content_key(_LAYOUT, *recipe.suites, "packages", *recipe.includes())
    return cache_dir() / "toolchain" / key


def current_root() -> Path | None:
    """Return the directory KEY.ID of the root in use, None when there is none for the present recipe."""
    link = _recipe_link(load_recipe().root)
    if not (link / "root").is_dir():
        return None
    directory = link.resolve()
    hold(directory)
    return directory


def installed(directory: Path) -> dict[str, str]:
    """Return package versions by name, of the root in ``directory``."""
    lines = (directory / "packages.txt").read_text().splitlines()
    return {name: version for name, _, version in (line.partition(" ") for line in lines)}


def setup(*, refresh: bool = False, progress: Progress = quiet) -> Path:
    """Build the toolchain root unless it is there, and return its directory (KEY.ID).

    Two of these at once do the work once. What a killed one left behind is removed first.

    :param refresh: build one from the newest packages and switch to it; who uses the old one keeps it.
    :raise HostError: no network, no space, an unknown suite, a host program or a permission is missing.
    """
    recipe = load_recipe().root
    link = _recipe_link(recipe)
    found = current_root()
    if found and not refresh:
        return found
    start_guard()
    with host_errors(link), locked("toolchain"):
        link.parent.mkdir(exist_ok=True)
        found = current_root()
        if found and not refresh:
            return found
        for leftover in link.parent.glob(".*.partial"):
            progress("toolchain", f"removing {leftover.name}, left by a set-up that was interrupted")
            discard(leftover)
        partial = link.with_name(f".{link.name}.partial")
        try:
            return _build_and_switch(recipe, link, partial, progress)
        finally:
            discard(partial)


def _build_and_switch(recipe: RootRecipe, link: Path, partial: Path, progress: Progress) -> Path:
    need_programs(build_programs())
    need_space(link.parent, recipe.space_mb, "building the toolchain root")
    archive = find_archive()
    partial.mkdir()
    _bootstrap(recipe, archive, partial / "root", progress)
    packages = _read_status(partial / "root/var/lib/dpkg/status")
    text = "".join(f"{name} {version}\n" for name, version in packages.items())
    (partial / "packages.txt").write_text(text)
    whole = link.with_name(f"{link.name}.{content_key(text)}")
    if not whole.exists():
        partial.rename(whole)
    switch(link, whole)
    return whole


def switch(link: Path, target: Path) -> None:
    """Let ``link`` point to its sibling ``target``; readers see the old one or the new one, never none."""
    fresh = link.with_name(f".{link.name}.{os.getpid()}.link")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target.name)
    fresh.replace(link)


def _bootstrap(recipe: RootRecipe, archive: Archive, root: Path, progress: Progress) -> None:
    argv = [
        *_namespaces(),
        program("mmdebstrap"),
        "--variant=essential",
        "--mode=root",
        "--format=directory",
        "--skip=output/dev",
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=APT::Sandbox::User "root"',
        *(f"--aptopt={option.removesuffix(';')}" for option in archive.options),
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude={path}" for path in _LEFT_OUT),
        f"--include={','.join(recipe.includes())}",
        recipe.suites[0],
        str(root),
        *archive.source_lines(recipe.suites, signed=False),
    ]
    status, said = follow(argv, lambda line: _show(line, progress), timeout_s=3600)
    if status:
        _explain(said, recipe.suites)


def _show(line: str, progress: Progress) -> None:
    if line.startswith("I: ") and "signal" not in line:
        progress("toolchain", line.removeprefix("I: ").rstrip("."))


def _explain(said: str, suites: Sequence[str]) -> NoReturn:
    """Turn what mmdebstrap said when it failed into an error with a remedy."""
    if re.search(r"unshare.*(?:Operation not permitted|No space)|newuidmap|write.*uid_map", said):
        raise HostError(
            f"this user can make no user namespace with ids of its own: {first_error(said)}",
            "run testbed setup as root, or give the user a line in /etc/subuid and in /etc/subgid",
        )
    explain(said, suites, "mmdebstrap failed")


def _read_status(status: Path) -> dict[str, str]:
    """Return the versions of installed packages by name, from dpkg's status file."""
    text = status.read_text()
    pairs = re.findall(r"^Package: (\S+)\n(?:.+\n)*?Version: (\S+)$", text, re.MULTILINE)
    return dict(sorted(pairs))


def discard(directory: Path) -> None:
    """Remove a tree of the cache, also one whose files belong to the user's subordinate ids.

    :raise HostError: it cannot be removed.
    """
    shutil.rmtree(directory, ignore_errors=True)
    if not directory.exists():
        return
    done = attempt([*_namespaces(), "rm", "-rf", "--", str(directory)], timeout_s=600)
    if directory.exists():
        said = first_error(done.stderr.decode(errors="replace"))
        raise HostError(
            f"cannot remove {directory}, left by an interrupted set-up: {said}", f"rm -rf {directory}"
        )
