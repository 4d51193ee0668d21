"""What a worker says of itself.

Only bytes cross the network, so that a testbed of another version can be told apart before anything is made of them.
The function here is called by Dask, by name, in processes that `dask worker` started.
"""

from __future__ import annotations

import msgspec

from testbed.errors import TestbedError, UsageError
from testbed.kernel import parse
from testbed.kernel.debian import cached
from testbed.toolchain import open_toolchain
from testbed.version import identity

__all__ = ["Facts", "facts", "refusal"]


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


class _Sent(msgspec.Struct):
    """What every job says, of whatever version its sender is."""

    testbed: str


class _Kernel(msgspec.Struct):
    """A KERNEL with absolute paths, and what stands for the content of its changes."""

    kernel: str
    contents: list[str]


def refusal(job: bytes) -> str:
    """Return why this worker must not do a job; empty when nothing is against it.

    :param job: JSON with ``testbed``, ``kernel`` and ``contents``.
    """
    sender = msgspec.json.decode(job, type=_Sent).testbed
    if sender != identity():
        return f"has testbed {identity()}, this is {sender}"
    asked = msgspec.json.decode(job, type=_Kernel)
    try:
        if parse(asked.kernel).contents != asked.contents:
            return f"has other files behind {asked.kernel}"
    except UsageError as error:
        return f"lacks a file: {error.message}"
    return ""
