"""What all commands do with their output: one line for an error, one JSON document when asked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from testbed.errors import UsageError
from testbed.result import SCHEMA_VERSION

if TYPE_CHECKING:
    from testbed.errors import TestbedError

__all__ = ["bisect_status", "report_error", "setting_pairs"]


def bisect_status(status: int) -> int:
    """Return what ``git bisect run`` understands: skip what cannot be judged, stop at wrong usage."""
    return {2: 128, 3: 125, 4: 125}.get(status, status)


def report_error(error: TestbedError, *, as_json: bool) -> int:
    """Tell the user, and return the exit status."""
    if as_json:
        document = {
            "schema_version": SCHEMA_VERSION,
            "verdict": error.verdict,
            "error": str(error),
            "exit_status": error.exit_status,
        }
        click.echo(msgspec.json.encode(document))
    click.echo(f"testbed: {error}", err=True)
    return bisect_status(error.exit_status) if "--bisect" in sys.argv else error.exit_status


def setting_pairs(settings: tuple[str, ...]) -> dict[str, str]:
    """Return the settings of ``--set KEY=VALUE``.

    :raise UsageError: one has no equals sign.
    """
    for setting in settings:
        if "=" not in setting:
            raise UsageError(
                f"expected key=value after --set, seen '{setting}'", "see `testbed list settings`"
            )
    return {key: value for key, _, value in (setting.partition("=") for setting in settings)}
