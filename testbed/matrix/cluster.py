"""The same matrix on a cluster: jobs go to the workers of a Dask scheduler, results and traces come back.

A job whose worker dies goes to another one; Dask gives up a job that took several workers with it, which makes the run
broken.
"""

from __future__ import annotations

import io
import queue
import secrets
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from distributed.scheduler import KilledWorker

from testbed.cluster.workers import ANSWER_LIMIT_S, workers_at
from testbed.errors import HostError
from testbed.kernel import parse
from testbed.matrix.done import Done, ended, is_kept, kept
from testbed.matrix.places import beginning_of, keep, keep_unrun
from testbed.matrix.product import read_scenarios
from testbed.matrix.worker import Job, Reply, perform
from testbed.scenario import canonical_json
from testbed.version import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from distributed import Future

    from testbed.cluster.workers import Workers
    from testbed.order import Order
    from testbed.scenario import Scenario

__all__ = ["needs_of", "run_on_cluster"]

LOOK_S = 2.0


def run_on_cluster(
    address: str, orders: Sequence[Order], directory: Path, told: Callable[[Done], None]
) -> list[Done]:
    """Run all orders on the workers of a cluster and return what became of them in their order.

    An order that names no clock runs in virtual time, which every worker has; real time is for workers with kvm.

    :param address: of the scheduler, as in tcp://HOST:8786.
    :param directory: as in :func:`testbed.matrix.run_all`.
    :param told: of each as it ends.
    :raise UsageError: this is no address.
    :raise HostError: nobody answers there; workers are of another testbed, differ in toolchain or kernel, or lack what
        is asked for.
    """
    timed = [msgspec.structs.replace(order, clock=order.clock or "virtual") for order in orders]
    asked = {msgspec.json.encode(order): order for order in timed}
    with workers_at(address) as workers:
        found = _Matrix(workers, directory, read_scenarios(timed)).run(asked, told)
    return [found[key] for key in asked]


def needs_of(order: Order, scenario: Scenario) -> dict[str, float]:
    """Return what a job asks of its worker; virtual time is made by one thread of QEMU."""
    if order.clock == "real":
        return {"cores": scenario.settings.vcpus, "kvm": 1}
    return {"cores": 1}


class _Matrix:
    """One matrix on its way through a cluster."""

    def __init__(self, workers: Workers, directory: Path, scenarios: Mapping[str, Scenario]) -> None:
        self._workers, self._directory, self._scenarios = workers, directory, scenarios

    def run(self, asked: Mapping[bytes, Order], told: Callable[[Done], None]) -> dict[bytes, Done]:
        bases = [parse(order.kernel).base for order in asked.values()]
        self._workers.check(bases, self._all_needs(asked.values()))
        found: dict[bytes, Done] = {}
        arrived: queue.Queue[Future] = queue.Queue()
        pending = self._submit(asked)
        try:
            for future in pending:
                future.add_done_callback(arrived.put)
            while len(found) < len(asked):
                try:
                    future = arrived.get(timeout=LOOK_S)
                except queue.Empty:
                    self._workers.check_hope(
                        self._all_needs(asked[key] for key in pending.values() if key not in found)
                    )
                    continue
                key = pending[future]
                found[key] = self._done(asked[key], future)
                future.release()  # the reply need not stay on the worker
                told(found[key])
        finally:
            self._workers.client.cancel([future for future, key in pending.items() if key not in found])
        return found

    def _submit(self, asked: Mapping[bytes, Order]) -> dict[Future, bytes]:
        name = f"testbed-{secrets.token_hex(4)}"
        return {
            self._workers.client.submit(
                perform,
                self._job(order),
                key=f"{name}-{number}",
                resources=self._needs(order),
                priority=-number,  # those that share a guest stand together
                pure=False,
            ): key
            for number, (key, order) in enumerate(asked.items())
        }

    def _job(self, order: Order) -> bytes:
        spec = parse(order.kernel)
        places = self._directory.glob(f"{beginning_of(order)}*")
        job = Job(
            testbed=identity(),
            order=order,
            scenario=canonical_json(self._scenarios[order.scenario]).decode(),
            kernel=spec.text,
            contents=spec.contents,
            kept=[path.name for path in places if is_kept(path)],
        )
        return msgspec.json.encode(job)

    def _needs(self, order: Order) -> dict[str, float]:
        return needs_of(order, self._scenarios[order.scenario])

    def _all_needs(self, orders: Iterable[Order]) -> list[tuple[str, dict[str, float]]]:
        return [(order.command(), self._needs(order)) for order in orders]

    def _done(self, order: Order, future: Future) -> Done:
        """Keep what came back."""
        if future.status != "finished":
            return self._unrun(order, self._end_of(future), HostError.exit_status)
        reply = msgspec.msgpack.decode(future.result(timeout=ANSWER_LIMIT_S), type=Reply)
        if reply.refused:
            raise HostError(f"a worker at {self._workers.address} {reply.refused}", "see docs/cluster.md")
        if reply.error:
            return self._unrun(order, reply.error, reply.status)
        if reply.result is None:
            return kept(order, self._directory, reply.place)
        events = np.load(io.BytesIO(reply.events), allow_pickle=False) if reply.events else None
        keep(self._directory, order, reply.place, reply.result, reply.console, events)
        return ended(order, reply.place, reply.result)

    def _end_of(self, future: Future) -> str:
        """Return why a job has no reply.

        :raise HostError: the scheduler is gone.
        """
        if future.status != "error":
            raise self._workers.gone()
        error = future.exception(timeout=ANSWER_LIMIT_S)
        if isinstance(error, KilledWorker):
            return f"{error.allowed_failures + 1} workers died with this run; see their logs"
        return f"the worker failed with {error!r}; see its log"

    def _unrun(self, order: Order, error: str, status: int) -> Done:
        place = keep_unrun(self._directory, order, self._scenarios[order.scenario], error, status)
        return Done(order=order, directory=place, error=error, status=status)
