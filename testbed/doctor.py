"""What works on this machine, found out by trying it, and what to do about what does not."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from testbed.cache import cache_dir
from testbed.errors import HostError, TestbedError
from testbed.guest.accelerator import probe
from testbed.kernel.debian import cached
from testbed.setup import default_kernels
from testbed.toolchain import open_toolchain
from testbed.toolchain.archive import find_archive
from testbed.toolchain.host import attempt, first_error, need_programs, program
from testbed.toolchain.recipe import load_recipe
from testbed.toolchain.root import build_programs
from testbed.toolchain.sandbox import QEMU_LOWEST, qemu_version

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Check", "examine", "usable"]

_PYTHON_LOWEST = (3, 11)
_MEMORY_MB = 1000  # two guests, their tools and testbed itself


class Check(msgspec.Struct, frozen=True):
    """One thing that was tried.

    :param outcome: ``ok``; ``note``, which hinders no run; ``bad``, which does.
    """

    name: str
    outcome: Literal["ok", "note", "bad"]
    seen: str
    remedy: str = ""


def examine() -> list[Check]:
    """Try everything and return what was seen, in the order in which it should be mended."""
    tried: list[tuple[str, Callable[[], Check], Literal["note", "bad"]]] = [
        ("python", _python, "bad"),
        ("cache", _cache, "bad"),
        ("memory", _memory, "note"),
        ("host programs", _programs, "note"),
        ("archive", _archive, "note"),
        ("bubblewrap", _bubblewrap, "note"),
        ("user namespaces", _namespaces, "note"),
        ("toolchain root", _root, "bad"),
        ("QEMU", _qemu, "bad"),
        ("kernels", _kernels, "bad"),
        ("accelerator", _accelerator, "note"),
    ]
    checks = []
    for name, attempt_it, weight in tried:
        try:
            checks.append(attempt_it())
        except TestbedError as error:
            checks.append(Check(name, weight, error.message, error.remedy))
    return checks


def usable(checks: list[Check]) -> bool:
    """Return whether scenarios can be run."""
    return all(check.outcome != "bad" for check in checks)


def _python() -> Check:
    seen = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _PYTHON_LOWEST:
        return Check("python", "bad", seen, "install Python 3.11 or newer")
    return Check("python", "ok", seen)


def _cache() -> Check:
    directory = cache_dir()
    free_mb = shutil.disk_usage(directory).free // 1_000_000
    recipe = load_recipe()
    needed_mb = recipe.root.space_mb + recipe.source.space_mb * len(default_kernels())
    seen = f"{directory}, {free_mb} MB free"
    if not os.access(directory, os.W_OK):
        return Check(
            "cache", "bad", f"{directory} is read-only", "point TESTBED_CACHE to where you can write"
        )
    if free_mb < needed_mb:
        return Check("cache", "note", seen, f"set-up takes {needed_mb} MB: make room, or set TESTBED_CACHE")
    return Check("cache", "ok", seen)


def _memory() -> Check:
    found = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    available_mb = int(found[1]) * 1024 // 1_000_000 if found else 0
    seen = f"{available_mb} MB available"
    if available_mb < _MEMORY_MB:
        return Check("memory", "note", seen, f"less than {_MEMORY_MB} MB: set TESTBED_GUESTS=1")
    return Check("memory", "ok", seen)


def _programs() -> Check:
    needed = build_programs()
    try:
        need_programs(needed)
    except HostError as error:
        return Check("host programs", "note", f"{error.message}; set-up needs them", error.remedy)
    return Check("host programs", "ok", ", ".join(needed))


def _archive() -> Check:
    archive = find_archive()
    named = "TESTBED_MIRROR" if os.environ.get("TESTBED_MIRROR") else "this machine's apt"
    keys = archive.keyring.name if archive.keyring else "apt's own keys"
    return Check("archive", "ok", f"from {named}, verified with {keys}")


def _bubblewrap() -> Check:
    done = attempt([program("bwrap"), "--ro-bind", "/", "/", "--unshare-pid", "true"], timeout_s=30)
    if done.returncode:
        said = first_error(done.stderr.decode(errors="replace"))
        remedy = "QEMU runs without it; building variants does not: allow user namespaces"
        return Check("bubblewrap", "note", said, remedy)
    return Check("bubblewrap", "ok", "a program ran in a sandbox")


def _namespaces() -> Check:
    if os.geteuid() == 0:
        return Check("user namespaces", "ok", "not needed as root")
    done = attempt([program("unshare"), "--map-root-user", "--map-auto", "true"], timeout_s=30)
    if done.returncode:
        said = first_error(done.stderr.decode(errors="replace"))
        remedy = (
            "testbed setup needs them: install uidmap, give the user a line in /etc/subuid and /etc/subgid"
        )
        return Check("user namespaces", "note", said, remedy)
    return Check("user namespaces", "ok", "one was made")


def _root() -> Check:
    return Check("toolchain root", "ok", open_toolchain().identity)


def _qemu() -> Check:
    seen = open_toolchain().run(["qemu-system-x86_64", "--version"], timeout_s=30).partition("\n")[0]
    if qemu_version(seen) < QEMU_LOWEST:
        lowest = ".".join(map(str, QEMU_LOWEST))
        return Check("QEMU", "bad", seen, f"{lowest} or newer is needed: testbed setup --refresh")
    return Check("QEMU", "ok", seen)


def _kernels() -> Check:
    found = {name: cached(name) for name in default_kernels()}
    missing = [name for name, kernel in found.items() if kernel is None]
    if missing:
        return Check("kernels", "bad", f"not fetched: {', '.join(missing)}", "run: testbed setup")
    return Check("kernels", "ok", ", ".join(kernel.release for kernel in found.values() if kernel))


def _accelerator() -> Check:
    found = probe(open_toolchain())
    remedy = "" if found.name == "kvm" else "no fault: guests run under TCG"
    return Check("accelerator", "ok", f"{found.name}: {found.why}", remedy)
