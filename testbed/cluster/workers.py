"""The workers behind a scheduler's address, and what must be so before they are given anything."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from distributed import Client
from distributed.comm import resolve_address

from testbed.cluster.facts import Facts, facts
from testbed.errors import HostError, UsageError
from testbed.version import identity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["ANSWER_LIMIT_S", "Workers", "check_alike", "workers_at"]

ANSWER_LIMIT_S = (
    10.0  # for the scheduler to answer, for a first worker to be there, for workers to say what they are
)
ALONE_LIMIT_S = 60.0  # how long a job waits when there is no worker that has what it needs


@contextmanager
def workers_at(address: str) -> Iterator[Workers]:
    """Lend the workers of a cluster.

    :param address: of the scheduler, as in tcp://HOST:8786.
    :raise UsageError: this is no address.
    :raise HostError: nobody answers there.
    """
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
        yield Workers(client, address)
    finally:
        client.close(timeout=ANSWER_LIMIT_S)


class Workers:
    """The workers of a scheduler.

    Needs are given as pairs of who needs something, in words, and what: resources by name.
    """

    def __init__(self, client: Client, address: str) -> None:
        self.client, self.address = client, address
        self._alone_since: float | None = None

    def check(self, bases: Sequence[str], needs: Sequence[tuple[str, Mapping[str, float]]]) -> None:
        """See that there are workers, that they are all of this testbed and alike, and have what is needed.

        :param bases: of KERNELs; those of Debian must be the same package wherever a worker has one.
        :raise HostError: they are not.
        """
        try:
            self.client.wait_for_workers(1, timeout=ANSWER_LIMIT_S)
        except TimeoutError as error:
            raise HostError(
                f"the scheduler at {self.address} has had no worker for {ANSWER_LIMIT_S:.0f} s",
                "start some: dask worker ADDRESS --nthreads 1 --resources 'cores=1'",
            ) from error
        lacking = self._lacking(needs)
        if lacking:
            raise HostError(lacking, "start workers with what is missing: --resources 'cores=2 kvm=1'")
        debian = sorted({base for base in bases if base.startswith("debian:")})
        answers = self.client.run(facts, debian, on_error="return")
        known = {worker: _facts(worker, answer) for worker, answer in answers.items()}
        check_alike("toolchain", {worker: each.toolchain for worker, each in known.items()})
        for base in debian:
            check_alike(base, {worker: each.kernels.get(base, "") for worker, each in known.items()})

    def check_hope(self, needs: Sequence[tuple[str, Mapping[str, float]]]) -> None:
        """See that somebody is there, or was a short while ago, who can do what is left.

        :raise HostError: nobody is.
        """
        if self.client.status != "running":
            raise self.gone()
        lacking = self._lacking(needs)
        if not lacking:
            self._alone_since = None
            return
        self._alone_since = self._alone_since or time.monotonic()
        if time.monotonic() - self._alone_since > ALONE_LIMIT_S:
            raise HostError(
                f"{lacking}, for {ALONE_LIMIT_S:.0f} s", "start workers and go on with the same command"
            )

    def gone(self) -> HostError:
        """Return what is to be said when the scheduler is gone."""
        return HostError(
            f"the scheduler at {self.address} went away", "start it again and go on with the same command"
        )

    def resources(self) -> dict[str, dict[str, float]]:
        """Return what each worker declared, by its address."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return {address: dict(worker["resources"]) for address, worker in workers.items()}

    def _lacking(self, needs: Sequence[tuple[str, Mapping[str, float]]]) -> str:
        """Return what no worker has and somebody needs; empty when there is nothing of the kind."""
        have = self.resources()
        for who, needed in needs:
            if not any(all(own.get(name, 0) >= n for name, n in needed.items()) for own in have.values()):
                seen = "; ".join(f"{address} has {_told(own) or 'nothing'}" for address, own in have.items())
                return f"no worker has {_told(needed)}, which {who} needs: {seen or 'there is none'}"
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
