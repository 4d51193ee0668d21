"""The same matrix on a cluster: jobs go to the workers of a Dask scheduler, results and traces come back.

A worker declares what it has when it starts, ``dask worker ADDRESS --resources "cores=2 kvm=1"``, and a job asks for
what it needs, so that Dask sends it where that is free. A job whose worker dies goes to another one; Dask gives up a
job that took several workers with it, which makes the run broken.
"""

from __future__ import annotations

import io
import logging
import queue
import secrets
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from distributed import Client
from distributed.comm import resolve_address
from distributed.scheduler import KilledWorker

from testbed.errors import HostError, UsageError
from testbed.kernel import parse
from testbed.matrix.done import Done, ended, is_kept, kept
from testbed.matrix.places import beginning_of, keep, keep_unrun
from testbed.matrix.product import read_scenarios
from testbed.matrix.worker import Facts, Job, Reply, facts, perform
from testbed.scenario import canonical_json
from testbed.version import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from distributed import Future

    from testbed.order import Order
    from testbed.scenario import Scenario

__all__ = ["check_alike", "needs_of", "run_on_cluster"]

ANSWER_LIMIT_S = (
    10.0  # for the scheduler to answer, for a first worker to be there, for workers to say what they are
)
ALONE_LIMIT_S = 60.0  # how long a job waits when there is no worker that has what it needs
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
    with _connected(address) as client:
        found = _Matrix(client, address, directory, read_scenarios(timed)).run(asked, told)
    return [found[key] for key in asked]


def needs_of(order: Order, scenario: Scenario) -> dict[str, float]:
    """Return what a job asks of its worker; virtual time is made by one thread of QEMU."""
    if order.clock == "real":
        return {"cores": scenario.settings.vcpus, "kvm": 1}
    return {"cores": 1}


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what goes wrong is ours to say
    try:
        resolve_address(address)
        client = Client(address, timeout=ANSWER_LIMIT_S, set_as_default=False)
    except ValueError as error:
        raise UsageError(
            f"{error}: expected the address of a Dask scheduler, seen '{address}'",
            "give one like tcp://HOST:8786",
        ) from error
    except OSError as error:
        raise HostError(
            f"no Dask scheduler answers at {address} within {ANSWER_LIMIT_S:.0f} s",
            "start one with `dask scheduler`, or name another address",
        ) from error
    try:
        yield client
    finally:
        client.close(timeout=ANSWER_LIMIT_S)


class _Matrix:
    """One matrix on its way through a cluster."""

    def __init__(
        self, client: Client, address: str, directory: Path, scenarios: Mapping[str, Scenario]
    ) -> None:
        self._client, self._address, self._directory = client, address, directory
        self._scenarios = scenarios
        self._alone_since: float | None = None

    def run(self, asked: Mapping[bytes, Order], told: Callable[[Done], None]) -> dict[bytes, Done]:
        self._check_workers(list(asked.values()))
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
                    self._check_hope([asked[key] for key in pending.values() if key not in found])
                    continue
                key = pending[future]
                found[key] = self._done(asked[key], future)
                future.release()  # the reply need not stay on the worker
                told(found[key])
        finally:
            self._client.cancel([future for future, key in pending.items() if key not in found])
        return found

    def _submit(self, asked: Mapping[bytes, Order]) -> dict[Future, bytes]:
        name = f"testbed-{secrets.token_hex(4)}"
        return {
            self._client.submit(
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

    def _done(self, order: Order, future: Future) -> Done:
        """Keep what came back."""
        if future.status != "finished":
            return self._unrun(order, self._end_of(future), HostError.exit_status)
        reply = msgspec.msgpack.decode(future.result(timeout=ANSWER_LIMIT_S), type=Reply)
        if reply.refused:
            raise HostError(f"a worker at {self._address} {reply.refused}", "see docs/cluster.md")
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
            raise HostError(f"the scheduler at {self._address} went away", "start it again and go on: --out")
        error = future.exception(timeout=ANSWER_LIMIT_S)
        if isinstance(error, KilledWorker):
            return f"{error.allowed_failures + 1} workers died with this run; see their logs"
        return f"the worker failed with {error!r}; see its log"

    def _unrun(self, order: Order, error: str, status: int) -> Done:
        place = keep_unrun(self._directory, order, self._scenarios[order.scenario], error, status)
        return Done(order=order, directory=place, error=error, status=status)

    def _check_workers(self, orders: Sequence[Order]) -> None:
        """See that there are workers, that they are all of this testbed and alike, and have what is needed.

        :raise HostError: they are not.
        """
        try:
            self._client.wait_for_workers(1, timeout=ANSWER_LIMIT_S)
        except TimeoutError as error:
            raise HostError(
                f"the scheduler at {self._address} has had no worker for {ANSWER_LIMIT_S:.0f} s",
                "start some: dask worker ADDRESS --nthreads 1 --resources 'cores=1'",
            ) from error
        lacking = self._lacking(orders)
        if lacking:
            raise HostError(lacking, "start workers with what is missing: --resources 'cores=2 kvm=1'")
        bases = sorted({base for order in orders if (base := parse(order.kernel).base).startswith("debian:")})
        answers = self._client.run(facts, bases, on_error="return")
        known = {worker: _facts(worker, answer) for worker, answer in answers.items()}
        check_alike("toolchain", {worker: each.toolchain for worker, each in known.items()})
        for base in bases:
            check_alike(base, {worker: each.kernels.get(base, "") for worker, each in known.items()})

    def _check_hope(self, orders: Sequence[Order]) -> None:
        """See that somebody is there, or was a short while ago, who can do what is left.

        :raise HostError: nobody is.
        """
        if self._client.status != "running":
            raise HostError(f"the scheduler at {self._address} went away", "start it again and go on: --out")
        lacking = self._lacking(orders)
        if not lacking:
            self._alone_since = None
            return
        self._alone_since = self._alone_since or time.monotonic()
        if time.monotonic() - self._alone_since > ALONE_LIMIT_S:
            raise HostError(f"{lacking}, for {ALONE_LIMIT_S:.0f} s", "start workers and go on: --out")

    def _lacking(self, orders: Sequence[Order]) -> str:
        """Return what no worker has and an order needs; empty when there is nothing of the kind."""
        workers = self._client.scheduler_info()["workers"]
        have = {address: dict(worker["resources"]) for address, worker in workers.items()}
        for order in orders:
            needs = self._needs(order)
            if not any(all(own.get(name, 0) >= n for name, n in needs.items()) for own in have.values()):
                seen = "; ".join(f"{address} has {_told(own) or 'nothing'}" for address, own in have.items())
                return (
                    f"no worker has {_told(needs)}, which {order.command()} needs: {seen or 'there is none'}"
                )
        return ""


def _told(resources: Mapping[str, float]) -> str:
    return " ".join(f"{name}={amount:g}" for name, amount in resources.items())


def _facts(worker: str, answer: Any) -> Facts:
    """Return what a worker said of itself.

    :raise HostError: it has no testbed, another one, or cannot run anything.
    """
    ours = identity()
    if isinstance(answer, BaseException):
        raise HostError(
            f"the worker {worker} has no testbed like {ours}: {answer}", "install the same on all"
        )
    found = msgspec.json.decode(answer, type=Facts)
    if found.testbed != ours:
        raise HostError(
            f"the worker {worker} has testbed {found.testbed}, this is {ours}", "install one on all"
        )
    if found.error:
        raise HostError(f"the worker {worker} cannot run anything: {found.error}", "run testbed doctor there")
    return found


def check_alike(what: str, values: Mapping[str, str]) -> None:
    """See that all workers that have it have the same.

    :raise HostError: they differ.
    """
    different = {value: worker for worker, value in values.items() if value}
    if len(different) > 1:
        (a, on_a), (b, on_b), *_ = different.items()
        raise HostError(
            f"workers differ in {what}: {on_a} has {a}, {on_b} has {b}",
            "run `testbed setup --refresh` on all of them, or let them share a TESTBED_CACHE",
        )
