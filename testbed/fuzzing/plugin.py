"""QEMU's coverage plugin, compiled in the toolchain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.cache import Origin, build_once, cache_dir, content_key
from testbed.image import SOURCES, WARNINGS

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.toolchain import Toolchain

__all__ = ["build_plugin"]

SOURCE = SOURCES / "plugin" / "coverage.c"
COMPILE_LIMIT_S = 120.0


def build_plugin(toolchain: Toolchain) -> Path:
    """Return the shared object; it is built when the cache lacks it.

    :raise BuildError: it does not compile; the message is the compiler's first error.
    """
    flags = ("-std=gnu17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-D_GNU_SOURCE", *WARNINGS)

    def compile_it(target: Path) -> None:
        command = ("gcc", *flags, "-o", "coverage.so", str(SOURCE))
        toolchain.run(command, read=[SOURCE], write=[target], cwd=target, timeout_s=COMPILE_LIMIT_S)

    key = content_key(toolchain.identity, SOURCE, *flags)
    origin = Origin("QEMU's coverage plugin", (f"toolchain:{toolchain.identity}",))
    return build_once(cache_dir() / "plugins" / key, compile_it, origin) / "coverage.so"
