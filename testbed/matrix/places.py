"""Where in a matrix' directory an order's run lies, and what is kept of an order that never came to one."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import msgspec

from testbed import nic as nics
from testbed.cache import content_key
from testbed.errors import Unsupported
from testbed.kernel import default_kernel
from testbed.result import KernelRecord, Result
from testbed.run_directory import RunFiles, explained
from testbed.scenario import canonical_json

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from testbed.order import Order
    from testbed.run import Request
    from testbed.scenario import Scenario

    Events = npt.NDArray[np.void]

__all__ = ["beginning_of", "keep", "keep_unrun", "place_of", "unrun_place"]


def beginning_of(order: Order) -> str:
    """Return what the names of an order's directories begin with: for people, not unique."""
    words = [order.scenario, order.nic, order.kernel, order.clock or "", str(order.jitter or "")]
    readable = "-".join(re.sub(r"[^\w.]+", "-", word).strip("-") for word in words if word)
    return f"{readable[:100]}-"


def place_of(order: Order, request: Request) -> str:
    """Return the name of an order's directory: another for every order, kernel and scenario."""
    kernel, scenario = request.kernel.identity, canonical_json(request.scenario)
    return beginning_of(order) + content_key(msgspec.json.encode(order), kernel, scenario)


def unrun_place(order: Order) -> str:
    """Return the name of the directory that says why an order never came to a run."""
    return beginning_of(order) + content_key(msgspec.json.encode(order))


def keep(
    directory: Path, order: Order, place: str, result: Result, console: str, events: Events | None
) -> None:
    """Keep a run in its place; what was kept of an earlier attempt that never came to one goes.

    :raise HostError: the directory cannot be written to.
    """
    _files(directory, place).write(result, console, events)
    shutil.rmtree(directory / unrun_place(order), ignore_errors=True)


def keep_unrun(directory: Path, order: Order, scenario: Scenario, error: str, status: int) -> str:
    """Keep why an order never came to a run, as a result without a trace, and return its place.

    The next matrix in this directory tries the order again: what was in the way may be gone.

    :param status: the exit status of the error.
    :raise HostError: the directory cannot be written to.
    """
    place = unrun_place(order)
    nic = nics.get(order.nic)
    kernel = f"{default_kernel()}{order.kernel}" if order.kernel[:1] in {"", "@"} else order.kernel
    result = Result(
        verdict="unsupported" if status == Unsupported.exit_status else "broken",
        error=error,
        kernel=KernelRecord(name=kernel.partition("@")[0], asked=kernel),
        nic=nic.name,
        driver=nic.driver,
        scenario=scenario.name,
        settings=msgspec.to_builtins(scenario.settings),
        clock=order.clock or "virtual",
        accelerator="tcg",
        reproduce=order.command(),
        program=msgspec.to_builtins(scenario),
    )
    _files(directory, place).write(result, "", None)
    return place


def _files(directory: Path, place: str) -> RunFiles:
    files = RunFiles(directory / place)
    with explained(directory):
        files.path.mkdir(parents=True, exist_ok=True)
    return files
