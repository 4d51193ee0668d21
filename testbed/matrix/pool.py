"""Runs many orders, several guests at once; what a directory holds already is not run again."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING

import msgspec

from testbed.errors import TestbedError
from testbed.matrix.done import Done, ended, is_kept, kept
from testbed.matrix.places import keep, keep_unrun, place_of
from testbed.matrix.product import read_scenarios
from testbed.run import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from testbed.order import Order
    from testbed.scenario import Scenario


__all__ = ["run_all"]


def run_all(orders: Sequence[Order], directory: Path, jobs: int, told: Callable[[Done], None]) -> list[Done]:
    """Run all orders, ``jobs`` at once, and return what became of them in their order.

    :param directory: gets a directory for each run. One that is in there whole is taken as it is, if the kernel and
        the scenario are still what they were: a tree, a patch or a file may have changed under the same name.
    :param told: of each as it ends.
    :raise HostError: the directory cannot be written to.
    :raise UsageError: it holds a result of another version.
    """
    scenarios = read_scenarios(orders)
    asked = {msgspec.json.encode(order): order for order in orders}
    found: dict[bytes, Done] = {}
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {
            pool.submit(_run_one, order, scenarios[order.scenario], directory): key
            for key, order in asked.items()
        }
        try:
            for future in as_completed(futures):
                done = future.result()
                found[futures[future]] = done
                told(done)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [found[key] for key in asked]


def _run_one(order: Order, scenario: Scenario, directory: Path) -> Done:
    try:
        request = order.request(scenario=scenario)
        place = place_of(order, request)
        done = None if is_kept(directory / place) else run(request)
    except TestbedError as error:
        place = keep_unrun(directory, order, scenario, str(error), error.exit_status)
        return Done(order=order, directory=place, error=str(error), status=error.exit_status)
    if done is None:
        return kept(order, directory, place)
    keep(directory, order, place, done.result, done.console, done.trace.events if done.trace else None)
    return ended(order, place, done.result)
