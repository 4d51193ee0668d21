"""What became of an order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from testbed.order import Order
from testbed.result import RESULT_NAME, Result, load_result

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Done", "ended", "is_kept", "kept"]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order.

    :param result: nothing when it never came to a run; ``error`` says why.
    :param status: the exit status that `testbed run` would have had.
    :param directory: of its files, within that of the matrix.
    :param again: it was there already.
    """

    order: Order
    directory: str
    result: Result | None = None
    error: str = ""
    status: int = 0
    again: bool = False


def ended(order: Order, place: str, result: Result) -> Done:
    """Return what became of an order that came to a run."""
    return Done(
        order=order,
        directory=place,
        result=result,
        error=result.error or "",
        status=result.exit_status(),
    )


def is_kept(path: Path) -> bool:
    """Whether a run's directory is there whole."""
    return (path / RESULT_NAME).exists()


def kept(order: Order, directory: Path, place: str) -> Done:
    """Return what became of an order that an earlier matrix in this directory has run.

    :raise UsageError: its result is of another version, or no result.
    """
    return msgspec.structs.replace(ended(order, place, load_result(directory / place)), again=True)
