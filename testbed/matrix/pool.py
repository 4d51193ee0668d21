"""Runs many orders, several guests at once; what a directory holds already is not run again."""

from __future__ import annotations

import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING

import msgspec

from testbed.cache import content_key
from testbed.errors import TestbedError
from testbed.order import Order
from testbed.result import RESULT_NAME, Result, decode_result
from testbed.run import run
from testbed.run_directory import RunFiles
from testbed.scenario import canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from testbed.run import Request


__all__ = ["Done", "run_all"]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order.

    :param result: nothing when it never came to a run; ``error`` says why.
    :param status: the exit status that `testbed run` would have had.
    :param directory: of its files, within that of the matrix; nothing when it never came to a run.
    :param again: it was there already.
    """

    order: Order
    directory: str
    result: Result | None = None
    error: str = ""
    status: int = 0
    again: bool = False


def run_all(orders: Sequence[Order], directory: Path, jobs: int, told: Callable[[Done], None]) -> list[Done]:
    """Run all orders, ``jobs`` at once, and return what became of them in their order.

    :param directory: gets a directory for each run. One that is in there whole is taken as it is, if the kernel and
        the scenario are still what they were: a tree, a patch or a file may have changed under the same name.
    :param told: of each as it ends.
    """
    asked = {msgspec.json.encode(order): order for order in orders}
    found: dict[bytes, Done] = {}
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_run_one, order, directory): key for key, order in asked.items()}
        try:
            for future in as_completed(futures):
                done = future.result()
                found[futures[future]] = done
                told(done)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [found[key] for key in asked]


def place_of(order: Order, request: Request) -> str:
    """Return the name of an order's directory: readable, and another for every order, kernel and scenario."""
    words = [order.scenario, order.nic, order.kernel, order.clock or "", str(order.jitter or "")]
    readable = "-".join(re.sub(r"[^\w.]+", "-", word).strip("-") for word in words if word)
    key = content_key(msgspec.json.encode(order), request.kernel.identity, canonical_json(request.scenario))
    return f"{readable[:100]}-{key}"


def _run_one(order: Order, directory: Path) -> Done:
    place = ""
    try:
        request = order.request()
        place = place_of(order, request)
        files = RunFiles(directory / place)
        kept = files.path / RESULT_NAME
        if kept.exists():
            result = decode_result(kept.read_bytes(), str(kept))
            return Done(order=order, directory=place, result=result, status=result.exit_status(), again=True)
        done = run(request)
        files.path.mkdir(parents=True, exist_ok=True)
        files.save(done)
    except TestbedError as error:
        return Done(order=order, directory=place, error=str(error), status=error.exit_status)
    return Done(
        order=order,
        directory=place,
        result=done.result,
        error=done.result.error or "",
        status=done.result.exit_status(),
    )
