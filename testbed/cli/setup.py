"""``testbed setup``: bring toolchain root, kernels and image into the cache."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from testbed.cache import cache_dir
from testbed.cli.manual import manual
from testbed.setup import set_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import TaskID

    from testbed.toolchain import Progress

__all__ = ["command", "shown_progress"]


@click.command(
    "setup",
    epilog=manual(
        "testbed setup",
        "testbed setup --refresh",
        _0="everything is there",
    ),
)
@click.option(
    "--refresh", is_flag=True, help="Take the newest packages and kernels, also when there are some."
)
def command(refresh: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Build or refresh the toolchain root, the kernels and the image."""
    with shown_progress() as progress:
        kernels = set_up(refresh=refresh, progress=progress)
    names = ", ".join(f"{kernel.name} ({kernel.release})" for kernel in kernels)
    click.echo(f"ready in {cache_dir()}: {names}", err=True)


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Lend a :data:`Progress` for stderr: a moving line per thing on a terminal, plain lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what, line: click.echo(f"{what}: {line}", err=True)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[what]:<24}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[line]}"),
    )
    rows: dict[str, TaskID] = {}
    one_at_a_time = threading.Lock()
    with Bars(*columns, console=console) as bars:

        def show(what: str, line: str) -> None:
            with one_at_a_time:
                if what not in rows:
                    rows[what] = bars.add_task(what, total=None, what=what, line=line)
                bars.update(rows[what], line=line)

        yield show
