"""``testbed kernel``: give the source of a kernel to work on, and build kernels before they are needed."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.cli.changes import KernelOptions, resolve_aloud
from testbed.cli.manual import manual
from testbed.cli.setup import shown_progress
from testbed.errors import UsageError
from testbed.kernel import parse, resolve
from testbed.kernel.source import copy_source
from testbed.toolchain import open_toolchain

__all__ = ["command"]


@click.group("kernel")
def command() -> None:
    """Fetch a kernel's source, or build a kernel."""


@command.command(
    "source",
    epilog=manual(
        "testbed kernel source debian:trixie-backports linux",
        _0="done",
    ),
)
@click.argument("name")
@click.argument("directory", type=click.Path(path_type=Path))
def source(name: str, directory: Path) -> None:
    """Put the source of NAME (debian:trixie-backports) into DIRECTORY: a tree for --kernel tree:DIRECTORY."""
    spec = parse(name)
    if spec.changes or spec.is_built or not spec.base.startswith("debian:"):
        raise UsageError(f"expected the name of a suite's kernel, seen {name!r}", "see: testbed list kernels")
    kernel = resolve(spec)
    with shown_progress() as progress:
        copy_source(kernel, directory, progress)
    click.echo(f"{directory}: Linux {kernel.release}, {kernel.package}", err=True)


@command.command(
    "build",
    cls=KernelOptions,
    epilog=manual(
        "testbed kernel build --kernel tree:linux --debug",
        "testbed kernel build --patch fix.patch",
        _0="it is in the cache",
        _4="this kernel cannot be built so",
    ),
)
def build(kernel: str) -> None:
    """Build the kernel that --kernel and its companions ask for, so that runs find it in the cache."""
    built = resolve_aloud(parse(kernel), open_toolchain())
    click.echo(f"{built.asked}: Linux {built.release}, {built.vmlinuz}", err=True)
