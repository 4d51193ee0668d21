"""What a worker of a cluster does for a matrix; Dask calls :func:`perform` there, by name."""

from __future__ import annotations

import io
import platform
from dataclasses import replace

import msgspec
import numpy as np

from testbed.cluster.facts import refusal
from testbed.errors import HostError, TestbedError
from testbed.guest import probe
from testbed.matrix.places import place_of
from testbed.order import Order
from testbed.result import Result
from testbed.run import run
from testbed.scenario import from_json
from testbed.toolchain import open_toolchain

__all__ = ["Job", "Reply", "perform"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """An order on its way.

    :param testbed: who sends it.
    :param scenario: as JSON; its file need not be on the worker's machine.
    :param kernel: the order's KERNEL with absolute paths.
    :param contents: what stands for the content of its changes.
    :param kept: the places of runs that the order may have had already.
    """

    testbed: str
    order: Order
    scenario: str
    kernel: str
    contents: list[str]
    kept: list[str]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job.

    :param refused: why this worker must not do it.
    :param place: nothing when the order never came to a run; ``error`` and ``status`` say why.
    :param result: nothing when the run is kept already.
    :param events: the trace as a numpy file; nothing when there is none.
    """

    refused: str = ""
    place: str = ""
    error: str = ""
    status: int = 0
    result: Result | None = None
    events: bytes = b""
    console: str = ""


def perform(data: bytes) -> bytes:
    """Do a :class:`Job` and return a :class:`Reply`."""
    refused = refusal(data)
    reply = Reply(refused=refused) if refused else _done(msgspec.json.decode(data, type=Job))
    return msgspec.msgpack.encode(reply)


def _done(job: Job) -> Reply:
    try:
        if job.order.clock == "real":
            _check_kvm()
        order = msgspec.structs.replace(job.order, kernel=job.kernel)
        request = order.request(scenario=from_json(job.scenario))
        place = place_of(job.order, request)
        if place in job.kept:
            return Reply(place=place)
        done = run(replace(request, reproduce=job.order.command()))
    except TestbedError as error:
        return Reply(error=str(error), status=error.exit_status)
    events = io.BytesIO()
    if done.trace is not None:
        np.save(events, done.trace.events, allow_pickle=False)
    return Reply(place=place, result=done.result, console=done.console, events=events.getvalue())


def _check_kvm() -> None:
    """See that KVM works where a worker declared that it has it.

    :raise HostError: it does not.
    """
    found = probe(open_toolchain())
    if found.name != "kvm":
        raise HostError(
            f"the worker on {platform.node()} declares kvm, and there KVM does not work: {found.why}",
            "start it without kvm, or see testbed doctor there",
        )
