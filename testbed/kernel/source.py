"""The whole source of a Debian kernel, linux-source, at the very version of the kernel: fetched when it is needed.

Layout in the cache, where ID stands for package and version::

    sources/ID/linux/     the tree, with the times of the package's files
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from testbed.cache import Origin, build_once, cache_dir, content_key, host_errors
from testbed.errors import UsageError
from testbed.kernel.debian import series_of, suite_apt
from testbed.kernel.kbuild import makefile_of
from testbed.toolchain.archive import Package
from testbed.toolchain.host import need_space, program, quiet, run
from testbed.toolchain.recipe import load_recipe

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.kernel.kernel import Kernel
    from testbed.toolchain.host import Progress

__all__ = ["copy_source", "has_linux_source", "linux_source", "source_with"]

_UNPACK_LIMIT_S = 1800


def linux_source(kernel: Kernel, progress: Progress = quiet) -> Path:
    """Return the unpacked source that a suite's kernel was built from; it is read, never changed.

    :raise HostError: no network, no space, or the suite offers another version by now.
    """
    package, target = _package(kernel), _target(kernel)

    def fill(directory: Path) -> None:
        need_space(directory, load_recipe().source.whole_mb, f"the source of {kernel.name}")
        with suite_apt(kernel.name) as apt:
            progress(kernel.name, f"asking {apt.suites[-1]} for {package.name} {package.version}")
            apt.update()
            (file,) = apt.download([package], directory, lambda line: progress(kernel.name, line))
        progress(kernel.name, f"unpacking {package.name}")
        run(
            [program("dpkg-deb"), "-x", str(file), str(directory)], what="dpkg-deb", timeout_s=_UNPACK_LIMIT_S
        )
        file.unlink()
        (archive,) = directory.glob("usr/src/*.tar.*")
        (directory / "linux").mkdir()
        unpack = ["-xf", str(archive), "-C", str(directory / "linux"), "--strip-components=1"]
        run([program("tar"), *unpack], what="unpacking the source", timeout_s=_UNPACK_LIMIT_S)
        shutil.rmtree(directory / "usr")

    about = Origin(f"{package.name}, {package.version}", (f"kernels/{kernel.vmlinuz.parent.name}",))
    return build_once(target, fill, about) / "linux"


def has_linux_source(kernel: Kernel) -> bool:
    """Whether the whole source is in the cache."""
    return _target(kernel).exists()


def _package(kernel: Kernel) -> Package:
    return Package(f"linux-source-{series_of(kernel.release)}", kernel.package.partition(" ")[2])


def _target(kernel: Kernel) -> Path:
    package = _package(kernel)
    return cache_dir() / "sources" / content_key(package.name, package.version)


def source_with(kernel: Kernel, path: str, progress: Progress = quiet) -> Path:
    """Return a tree that has the Makefile of a file: the folders kept with the kernel, or its whole source.

    :raise HostError: the whole source must be fetched, and cannot be.
    """
    kept = kernel.source
    return kept if kept and makefile_of(kept, path) else linux_source(kernel, progress)


def copy_source(kernel: Kernel, into: Path, progress: Progress = quiet) -> None:
    """Give the user a tree to work in: a copy of the kernel's source in ``into``, with its times.

    :raise UsageError: there is something already.
    :raise HostError: the source cannot be fetched, or there is no room.
    """
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UsageError(f"{into} exists and is not empty", "name a directory that is not there yet")
    source = linux_source(kernel, progress)
    progress(kernel.name, f"copying to {into}")
    with host_errors(into):
        into.mkdir(parents=True, exist_ok=True)
        need_space(into, load_recipe().source.whole_mb, f"the source of {kernel.name}")
    run([program("cp"), "-a", f"{source}/.", str(into)], what="copying the source", timeout_s=_UNPACK_LIMIT_S)
    ignored = into / ".gitignore"
    if ignored.exists():  # Debian's last line ignores everything, and `git add .` would add nothing
        lines = ignored.read_text().splitlines(keepends=True)
        ignored.write_text("".join(line for line in lines if line.strip() != "/*"))
