"""The configuration of kernels that testbed builds: small, and checked before anything is compiled.

images/kernel/required.config is what a guest cannot do without, wanted.config the drivers and the rest, debug.config
what ``--debug`` adds. The user's own options come last.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from testbed.cache import content_key
from testbed.errors import BuildError, UsageError
from testbed.toolchain.recipe import IMAGES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from testbed.toolchain import Toolchain
    from testbed.toolchain.host import Progress

__all__ = ["configure", "fragment", "missing_options", "options_of", "read_config"]

_FOLDER = IMAGES / "kernel"
_OPTION = re.compile(r"^(?:(CONFIG_\w+)=(.*)|# (CONFIG_\w+) is not set)$", re.MULTILINE)
_LIMIT_S = 300.0


def options_of(text: str) -> dict[str, str]:
    """Return the options that a configuration or fragment sets, ``n`` for those it says are not set."""
    return {found[1] or found[3]: found[2] or "n" for found in _OPTION.finditer(text)}


def read_config(file: Path) -> str:
    """Return the text of a file of the user's options.

    :raise UsageError: it cannot be read, or sets no option.
    """
    try:
        text = file.read_text(errors="replace")
    except OSError as error:
        raise UsageError(
            f"cannot read the configuration {file}: {error.strerror}", "check the path"
        ) from error
    if not options_of(text):
        raise UsageError(f"{file} sets no option", "write lines like CONFIG_NET_SCHED=y")
    return text


def fragment(configs: Sequence[Path], *, debug: bool) -> str:
    """Return all options that a kernel is to have; where two are of one name, the later counts.

    :raise UsageError: a file of ``configs`` cannot be read.
    """
    own = [
        _FOLDER / "required.config",
        _FOLDER / "wanted.config",
        *([_FOLDER / "debug.config"] if debug else []),
    ]
    return "\n".join([*(file.read_text() for file in own), *map(read_config, configs)])


def missing_options(config: str) -> list[str]:
    """Return the lines of required.config that a configuration does not have."""
    have = options_of(config)
    required = options_of((_FOLDER / "required.config").read_text())
    return [f"{name}={value}" for name, value in required.items() if have.get(name, "n") != value]


def configure(
    source: Path, build: Path, wanted: str, kconfig: str, toolchain: Toolchain, progress: Progress
) -> None:
    """Write ``build/.config`` unless the one there is of the same options.

    :param wanted: what :func:`fragment` returns.
    :param kconfig: what stands for the tree's Kconfig files.
    :raise BuildError: the configuration lacks what a guest needs; the message names the option.
    """
    config, made_of = build / ".config", build / "testbed.config.key"
    key = content_key(wanted, kconfig, toolchain.identity)
    if config.exists() and made_of.exists() and made_of.read_text() == key:
        return
    options = build / "testbed.config"
    options.write_text(wanted)
    make = ["make", "-s", "-C", str(source), f"O={build}", f"KCONFIG_ALLCONFIG={options}", "allnoconfig"]
    toolchain.run(make, read=[source], write=[build], timeout_s=_LIMIT_S)
    text = config.read_text()
    missing = missing_options(text)
    if missing:
        asked = options_of(wanted).get(missing[0].partition("=")[0])
        because = (
            f"it is asked to be {asked}" if asked != "y" else "this kernel lacks it or what it depends on"
        )
        raise BuildError(
            f"the configuration has no {missing[0]}, without which no guest starts: {because}",
            "see images/kernel/required.config",
        )
    have = options_of(text)
    dropped = [name for name, value in options_of(wanted).items() if have.get(name, "n") != value]
    if dropped:
        progress("config", f"not in this kernel, or without what they depend on: {', '.join(dropped)}")
    made_of.write_text(key)
