"""The command line: one module of this package for each command, found by name, each with a ``command``."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from itertools import pairwise

import click

from testbed.cli.output import report_error
from testbed.errors import HostError, TestbedError, UsageError

__all__ = ["main"]

_NO_COMMANDS = {"changes", "manual", "output"}


class _Commands(click.Group):
    """Imports a command's module when the command is called: ``testbed --help`` need not load scapy."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(
            found.name.rstrip("_")
            for found in pkgutil.iter_modules(__path__)
            if found.name not in _NO_COMMANDS
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        name = f"{cmd_name}_" if cmd_name == "list" else cmd_name
        command: click.Command = importlib.import_module(f"{__name__}.{name}").command
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="testbed")
def testbed() -> None:
    """Boot kernels with emulated NICs and judge their drivers by the NAPI and AF_XDP contract."""


def main() -> None:
    """Run the command line and exit as DESIGN.md says."""
    try:
        testbed.main(prog_name="testbed", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(UsageError.exit_status)
    except (click.Abort, KeyboardInterrupt):
        click.echo("testbed: interrupted", err=True)
        sys.exit(130)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except Exception as error:  # noqa: BLE001 - Python's own end has status 1, which says that a rule is violated
        sys.exit(report_error(_as_ours(error), as_json=_asks_for_json(_own_words())))


def _own_words() -> list[str]:
    """Return what stands on the command line for us; what follows ``--`` is for a program in the guest."""
    return sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv


def _asks_for_json(words: list[str]) -> bool:
    return bool({"--json", "--format=json"} & set(words)) or ("--format", "json") in pairwise(words)


def _as_ours(error: Exception) -> TestbedError:
    """Return the error as one of :mod:`testbed.errors`; one that nobody expected leaves its trace on stderr."""
    if isinstance(error, TestbedError):
        return error
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx else "testbed"
        return UsageError(error.format_message().rstrip("."), f"see {where} --help")
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return HostError(f"{place}{error.strerror}", "see `testbed doctor`")
    traceback.print_exception(error)
    return TestbedError(f"a fault of testbed itself: {error!r}", "report it with the lines above")
