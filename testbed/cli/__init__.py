"""The command line: one module of this package for each command, found by name, each with a ``command``."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import click

from testbed.cli.output import report_error
from testbed.errors import TestbedError, UsageError

__all__ = ["main"]


class _Commands(click.Group):
    """Imports a command's module when the command is called: ``testbed --help`` need not load scapy."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(
            found.name.rstrip("_") for found in pkgutil.iter_modules(__path__) if found.name != "output"
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
    as_json = "--json" in sys.argv
    try:
        testbed.main(prog_name="testbed", standalone_mode=False)
    except TestbedError as error:
        sys.exit(report_error(error, as_json=as_json))
    except click.UsageError as error:
        usage = UsageError(
            error.format_message(), f"see {error.ctx.command_path if error.ctx else 'testbed'} --help"
        )
        sys.exit(report_error(usage, as_json=as_json))
    except (click.Abort, KeyboardInterrupt):
        click.echo("testbed: interrupted", err=True)
        sys.exit(130)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
