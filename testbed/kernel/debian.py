"""Kernels of Debian suites: resolved by apt, downloaded, unpacked into the cache, never installed.

Layout in the cache, where ID stands for the packages and versions::

    kernels/ID/kernel.json     release, package, version
    kernels/ID/vmlinuz, config
    kernels/ID/lib/modules/RELEASE/
    kernels/ID/src/            headers and kbuild, movable: nothing in them names an absolute path
    kernels/ID/source/         the folders of linux-source that toolchain.toml names
    kernels/NAME               symbolic link to the ID in use (``:`` written as ``-``)
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from testbed.cache import build_once, cache_dir, content_key, hold, host_errors, locked
from testbed.errors import BuildError
from testbed.kernel.kernel import Kernel
from testbed.toolchain.archive import Package, PrivateApt, find_archive
from testbed.toolchain.host import need_space, program, quiet, run
from testbed.toolchain.recipe import load_recipe
from testbed.toolchain.root import switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from testbed.toolchain.host import Progress
    from testbed.toolchain.sandbox import Toolchain

__all__ = ["cached", "fetch", "series_of", "suite_apt"]

_LAYOUT = "1"  # another one makes every older kernel out of date
_WANTED = ("linux-image-amd64", "linux-headers-amd64", "linux-source")
_KEPT = re.compile(r"^linux-(?:image-\d|binary-\d|modules-\d|base-\d|headers-\d|kbuild-\d|source-\d)")
_HEADERS_MAKEFILE = """\
here := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
KBUILD_OUTPUT := $(here)
include $(here)/../{common}/Makefile
"""


class Record(msgspec.Struct, frozen=True):
    """What is known of an unpacked kernel; kernel.json."""

    release: str
    package: str
    version: str


def _link(name: str) -> Path:
    return cache_dir() / "kernels" / name.replace(":", "-")


def cached(name: str) -> Kernel | None:
    """Return the kernel of this name that the cache holds, None when it holds none."""
    link = _link(name)
    try:
        record = msgspec.json.decode((link / "kernel.json").read_bytes(), type=Record)
    except OSError:
        return None
    here = link.with_name(link.readlink().name)
    hold(here)
    headers = here / "src" / f"linux-headers-{record.release}"
    return Kernel(
        name=name,
        release=record.release,
        package=f"{record.package} {record.version}",
        vmlinuz=here / "vmlinuz",
        modules=here / "lib/modules" / record.release,
        config=here / "config",
        headers=headers,
        identity=here.name,
        source=here / "source",
    )


def fetch(
    name: str, toolchain: Callable[[], Toolchain], *, refresh: bool = False, progress: Progress = quiet
) -> Kernel:
    """Return the newest kernel of a suite; it is downloaded and unpacked unless the cache holds it whole.

    :param toolchain: called for its depmod when all is unpacked; may wait for a root that is being built.
    :param refresh: ask the suite for its newest even when there is one.
    :raise HostError: no network, no space, or an unknown suite.
    """
    with locked(f"kernel-{name.replace(':', '-')}"):
        found = cached(name)
        if found and not refresh and _has_all_folders(found):
            return found
        link = _link(name)
        with host_errors(link):
            link.parent.mkdir(exist_ok=True)
            need_space(link.parent, load_recipe().source.space_mb, f"fetching {name}")
        with suite_apt(name) as apt:
            progress(name, f"asking {apt.suites[-1]} for its newest kernel")
            apt.update()
            packages = [package for package in apt.closure(_WANTED) if _KEPT.match(package.name)]
            listing = [f"{package.name}={package.version}" for package in packages]
            key = content_key(_LAYOUT, *listing, "source", *load_recipe().source.folders)
            target = link.with_name(key)
            build_once(
                target,
                lambda directory: _fill(directory, apt, packages, toolchain, _labelled(progress, name)),
            )
            switch(link, target)
    kernel = cached(name)
    if kernel is None:
        raise BuildError(
            f"the kernel {name} is not whole: {target}", f"remove {target} and run: testbed setup"
        )
    progress(name, f"{kernel.release} ({kernel.package})")
    return kernel


def series_of(release: str) -> str:
    """Return the series of a release, as packages are named by it: ``6.12`` for ``6.12.117+deb13-amd64``."""
    return ".".join(release.split(".")[:2])


def _has_all_folders(kernel: Kernel) -> bool:
    """Whether the kernel's source holds what the recipe asks for now; one fetched for an older recipe may not."""
    source = kernel.source
    return source is not None and all((source / folder).is_dir() for folder in load_recipe().source.folders)


@contextmanager
def suite_apt(name: str) -> Iterator[PrivateApt]:
    """Lend an apt for the suites of a kernel; its lists are large and are not kept."""
    directory = cache_dir() / "apt" / name.replace(":", "-")
    shutil.rmtree(directory, ignore_errors=True)
    try:
        yield PrivateApt(directory, find_archive(), load_recipe().kernel[name].suites)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _labelled(progress: Progress, name: str) -> Callable[[str], None]:
    return lambda line: progress(name, line)


def _fill(
    directory: Path,
    apt: PrivateApt,
    packages: list[Package],
    toolchain: Callable[[], Toolchain],
    show: Callable[[str], None],
) -> None:
    """Download and unpack a kernel into ``directory``."""
    archives = directory / "debs"
    unpacked = directory / "unpacked"
    archives.mkdir()
    unpacked.mkdir()
    files = apt.download(packages, archives, show)
    sources = [file for file in files if file.name.startswith("linux-source-")]
    for file in files:
        if file not in sources:
            show(f"unpacking {file.name.partition('_')[0]}")
            run(
                [program("dpkg-deb"), "-x", str(file), str(unpacked)],
                what=f"unpacking {file.name}",
                timeout_s=600,
            )
    record = _arrange(unpacked, directory, packages)
    for file in sources:
        show(f"unpacking the drivers of {file.name.partition('_')[0]}")
        extract_folders(file, load_recipe().source.folders, directory / "source")
    shutil.rmtree(archives)
    shutil.rmtree(unpacked)
    show("finding module dependencies")
    toolchain().run(["depmod", "-b", str(directory), record.release], write=[directory], timeout_s=300)
    (directory / "kernel.json").write_bytes(msgspec.json.format(msgspec.json.encode(record)))


def _arrange(unpacked: Path, directory: Path, packages: list[Package]) -> Record:
    """Move what is needed from where Debian puts it, which differs between kernels, to where we look for it.

    :raise BuildError: the packages do not hold what a kernel consists of.
    """
    modules = next(unpacked.glob("usr/lib/modules/*"), None) or next(unpacked.glob("lib/modules/*"), None)
    if modules is None:
        raise BuildError(f"no modules in {', '.join(package.name for package in packages)}", "report this")
    release = modules.name
    (directory / "lib/modules").mkdir(parents=True)
    for name in ("vmlinuz", "config"):
        places = (modules / name, unpacked / "boot" / f"{name}-{release}")
        found = next((place for place in places if place.exists()), None)
        if found is None:
            raise BuildError(f"the packages of {release} hold no {name}", "report this")
        found.rename(directory / name)
    for name in ("build", "source"):
        (modules / name).unlink(missing_ok=True)
    modules.rename(directory / "lib/modules" / release)
    _arrange_headers(unpacked, directory / "src")
    package = next(
        package
        for package in packages
        if package.name
        in {f"linux-image-{release}", f"linux-binary-{release}", f"linux-image-{release}-unsigned"}
    )
    return Record(release, package.name, package.version)


def _arrange_headers(unpacked: Path, src: Path) -> None:
    """Put headers and kbuild side by side and let them find each other by relative paths."""
    src.mkdir()
    for kbuild in unpacked.glob("usr/lib/linux-kbuild-*"):
        kbuild.rename(src / kbuild.name)
    for headers in unpacked.glob("usr/src/linux-headers-*"):
        headers.rename(src / headers.name)
    common = next(src.glob("linux-headers-*-common"), None)
    if common is None:
        raise BuildError("the packages hold no headers", "report this")
    for headers in src.glob("linux-headers-*"):
        for link in headers.iterdir():
            target = str(link.readlink()) if link.is_symlink() else ""
            if "linux-kbuild-" in target:
                link.unlink()
                link.symlink_to("../" + target[target.index("linux-kbuild-") :])
        if headers != common:
            (headers / "Makefile").write_text(_HEADERS_MAKEFILE.format(common=common.name))


def extract_folders(package: Path, folders: list[str], into: Path) -> None:
    """Extract folders of the kernel's tree from a linux-source package; nothing is unpacked whole.

    :raise BuildError: the package does not hold one of them.
    """
    wanted = tuple(f"{folder}/" for folder in folders)
    seen: set[str] = set()
    argv = [program("dpkg-deb"), "--fsys-tarfile", str(package)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as outer:
                _extract_inner(outer, wanted, seen, into)
        except (tarfile.TarError, EOFError) as error:
            raise BuildError(f"{package.name} is damaged: {error}", "run: testbed setup --refresh") from error
        finally:
            process.kill()
    missing = [folder for folder in wanted if folder not in seen]
    if missing:
        raise BuildError(
            f"{package.name} holds no {', '.join(missing)}", "see [source] of images/toolchain.toml"
        )


def _extract_inner(outer: tarfile.TarFile, wanted: tuple[str, ...], seen: set[str], into: Path) -> None:
    member = next((entry for entry in outer if ".tar." in entry.name and entry.isfile()), None)
    stream = outer.extractfile(member) if member else None
    if stream is None:
        return
    with tarfile.open(fileobj=stream, mode="r|*") as tree:
        for entry in tree:
            path = entry.name.removeprefix("./").partition("/")[2]
            folder = next((folder for folder in wanted if path.startswith(folder)), None)
            if folder:
                seen.add(folder)
                _write_file(tree, entry, into, path)
            elif len(seen) == len(wanted):
                return  # a folder's files lie together, so all have been seen


def _write_file(tree: tarfile.TarFile, entry: tarfile.TarInfo, into: Path, path: str) -> None:
    """Write one regular file; there is nothing else in a driver's folder that a build needs."""
    data = tree.extractfile(entry) if entry.isfile() else None
    if data and ".." not in path.split("/"):
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.read())
