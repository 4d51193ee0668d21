"""What a worker of a cluster does for a matrix.

Only bytes cross the network, so that a testbed of another version can be told apart before anything is made of them.
The functions here are called by Dask, by name, in processes that `dask worker` started.
"""

from __future__ import annotations

import io
import platform
from dataclasses import replace

import msgspec
import numpy as np

from testbed.errors import HostError, TestbedError, UsageError
from testbed.guest import probe
from testbed.kernel import parse
from testbed.kernel.debian import cached
from testbed.matrix.places import place_of
from testbed.order import Order
from testbed.result import Result
from testbed.run import run
from testbed.scenario import from_json
from testbed.toolchain import open_toolchain
from testbed.version import identity

__all__ = ["Facts", "Job", "Reply", "facts", "perform"]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is.

    :param testbed: :func:`testbed.version.identity` there.
    :param toolchain: the content id of its QEMU and compilers.
    :param kernels: the package of each kernel that was asked for; empty where it is not in the worker's cache yet.
    :param error: why it cannot run anything.
    """

    testbed: str
    toolchain: str = ""
    kernels: dict[str, str] = msgspec.field(default_factory=dict)
    error: str = ""


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


def facts(kernels: list[str]) -> bytes:
    """Return the :class:`Facts` of this machine.

    :param kernels: bases of KERNELs.
    """
    try:
        toolchain = open_toolchain().identity
        held = {name: kernel.package if (kernel := cached(name)) else "" for name in kernels}
    except TestbedError as error:
        return msgspec.json.encode(Facts(testbed=identity(), error=str(error)))
    return msgspec.json.encode(Facts(testbed=identity(), toolchain=toolchain, kernels=held))


def perform(data: bytes) -> bytes:
    """Do a :class:`Job` and return a :class:`Reply`."""
    sender = msgspec.json.decode(data, type=_Sender).testbed
    if sender != identity():
        return msgspec.msgpack.encode(Reply(refused=f"has testbed {identity()}, this is {sender}"))
    return msgspec.msgpack.encode(_done(msgspec.json.decode(data, type=Job)))


class _Sender(msgspec.Struct):
    testbed: str


def _done(job: Job) -> Reply:
    try:
        if parse(job.kernel).contents != job.contents:
            return Reply(refused=f"has other files behind {job.kernel}")
    except UsageError as error:
        return Reply(refused=f"lacks a file: {error.message}")
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
