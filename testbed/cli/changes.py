"""The options that say which kernel: ``--kernel`` and what changes it, in the order in which they stand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli.setup import shown_progress
from testbed.kernel import resolve

if TYPE_CHECKING:
    from testbed.kernel import Kernel, Spec
    from testbed.toolchain import Toolchain

__all__ = ["KernelOptions", "resolve_aloud"]

_HELP = {
    "variant": "A named change to the driver; repeatable.",
    "patch": "A unified diff, an mbox or the directory of a series; repeatable.",
    "reverse-patch": "A patch to take back; repeatable.",
    "config": "A file of options for a kernel that testbed builds; repeatable.",
}


class KernelOptions(click.Command):
    """A command with the options that change a kernel.

    The callback is given one word for all of them: the parameter ``kernel`` holds the whole KERNEL.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(
                ["--kernel"],
                default="",
                help="BASE[@variant=NAME][@patch=FILE]...; the newest of Debian by default.",
            ),
            *(
                click.Option(
                    [f"--{name}"], multiple=True, metavar="NAME" if name == "variant" else "FILE", help=text
                )
                for name, text in _HELP.items()
            ),
            click.Option(
                ["--debug"], is_flag=True, help="Build the kernel with KASAN, lockdep, DEBUG_NET and KCOV."
            ),
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and put the options together in their order, which click does not keep."""
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        rest = super().parse_args(ctx, args)
        given = {name: iter(ctx.params.pop(name.replace("-", "_")) or ()) for name in _HELP}
        parts = [
            f"@{name}={_absolute(name, next(given[name]))}"
            for name in ((parameter.name or "").replace("_", "-") for parameter in order)
            if name in given
        ]
        debug = "@debug" if ctx.params.pop("debug") else ""
        ctx.params["kernel"] = "".join([ctx.params["kernel"] or "", *parts, debug])
        return rest


def _absolute(name: str, value: str) -> str:
    return value if name == "variant" or not value else str(Path(value).absolute())


def resolve_aloud(spec: Spec, toolchain: Toolchain) -> Kernel:
    """Return the kernel, and tell on stderr what is built for it."""
    with shown_progress() as progress:
        return resolve(spec, toolchain, progress)
