"""What a guest is made of besides its kernel: agent, observer, libraries and modules, as an initramfs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cache import Origin, build_once, cache_dir, content_key
from testbed.errors import BuildError
from testbed.image.cpio import archive
from testbed.toolchain.recipe import IMAGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.kernel import Module
    from testbed.toolchain import Toolchain

__all__ = ["MAX_BYTES", "SOURCES", "build", "key", "with_modules"]

SOURCES = IMAGES
MAX_BYTES = 8 << 20
LOADER = "/lib64/ld-linux-x86-64.so.2"
LIBRARIES = ("libbpf.so.1", "libelf.so.1", "libz.so.1", "libzstd.so.1", "libc.so.6")
LIBRARY_DIR = "/usr/lib/x86_64-linux-gnu"
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")
COMPILE_LIMIT_S = 120.0


def _sources() -> list[Path]:
    return sorted(path for room in ("agent", "observer") for path in (SOURCES / room).glob("*.[ch]"))


def _compile(toolchain: Toolchain, target: Path) -> None:
    """Build observer, skeleton and agent into ``target``.

    :raise BuildError: the compiler refuses; the message is its first error.
    """

    def run(*command: str) -> str:
        return toolchain.run(command, read=[SOURCES], write=[target], cwd=target, timeout_s=COMPILE_LIMIT_S)

    agent, observer = SOURCES / "agent", SOURCES / "observer"
    # Neither where the sources lie nor where they are built may be seen in what is built.
    nowhere = (f"-ffile-prefix-map={SOURCES}/=", f"-ffile-prefix-map={target}=.")
    bpf = ("-O2", "-g", "-mcpu=v3", "--target=bpf", "-I/usr/include/x86_64-linux-gnu", f"-I{agent}")
    run("clang", *bpf, *nowhere, *WARNINGS, "-c", str(observer / "observer.bpf.c"), "-o", "observer.bpf.o")
    skeleton = run("bpftool", "gen", "skeleton", "observer.bpf.o", "name", "observer")
    (target / "observer.skel.h").write_text(skeleton)
    units = [str(path) for path in sorted(agent.glob("*.c"))]
    flags = ("-std=gnu17", "-O2", "-s", "-D_GNU_SOURCE", f"-I{agent}", "-I.")
    run("gcc", *flags, *nowhere, *WARNINGS, "-o", "agent", *units, "-lbpf", "-lz")


def key(toolchain: Toolchain) -> str:
    """Return the name, in the cache, of the image that :func:`build` returns."""
    return content_key(toolchain.identity, Path(__file__), *_sources())


def build(toolchain: Toolchain) -> Path:
    """Return the initramfs that every guest shares, without modules; it is built when the cache lacks it.

    :raise BuildError: it does not compile, or is larger than :data:`MAX_BYTES`.
    """

    def fill(target: Path) -> None:
        _compile(toolchain, target)
        files = {"init": (0o755, (target / "agent").read_bytes())}
        for library in LIBRARIES:
            path = f"{LIBRARY_DIR}/{library}"
            files[path.lstrip("/")] = (0o644, toolchain.file(path).read_bytes())
        files[LOADER.lstrip("/")] = (0o755, toolchain.file(LOADER).read_bytes())
        image = archive(files, devices={"dev/console": (5, 1)})
        _check_size(len(image))
        (target / "initramfs.cpio").write_bytes(image)

    origin = Origin("agent and observer", (f"toolchain:{toolchain.identity}",))
    return build_once(cache_dir() / "images" / key(toolchain), fill, origin) / "initramfs.cpio"


def with_modules(image: Path, modules: Sequence[Module], later: Sequence[Module] = ()) -> Path:
    """Return ``image`` followed by an archive of ``modules``, which the agent loads in this order.

    :param later: those that only a step loads, in load order.
    :raise BuildError: the whole is larger than :data:`MAX_BYTES`.
    """
    files = {f"modules/{module.name}.ko": (0o644, module.data) for module in (*modules, *later)}
    files["modules/order"] = (0o644, _order(modules))
    if later:
        files["modules/later"] = (0o644, _order(later))
    data = image.read_bytes() + archive(files)
    _check_size(len(data))

    def fill(target: Path) -> None:
        (target / "initramfs.cpio").write_bytes(data)

    origin = Origin(f"with {', '.join(module.name for module in modules)}", (f"images/{image.parent.name}",))
    return build_once(cache_dir() / "images" / content_key(data), fill, origin) / "initramfs.cpio"


def _order(modules: Sequence[Module]) -> bytes:
    return "".join(f"{module.name}.ko\n" for module in modules).encode()


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise BuildError(
            f"the guest's image has {size} bytes, at most {MAX_BYTES} are allowed",
            "leave out modules the NIC does not need",
        )
