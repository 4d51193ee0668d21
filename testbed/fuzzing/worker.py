"""One process of a campaign: libFuzzer, by Atheris, over a live guest; ``python -m testbed.fuzzing.worker TASK``.

TASK is JSON. What the worker has to say goes to its stdout, a JSON document a line; what libFuzzer says, to its stderr.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from testbed import nic as nics
from testbed.errors import HostError, TestbedError
from testbed.fuzzing.bases import BASES
from testbed.fuzzing.counters import register
from testbed.fuzzing.input_model import MAX_BYTES
from testbed.fuzzing.mutator import cross, mutate
from testbed.fuzzing.session import Seen, Session, Status
from testbed.kernel import parse, resolve
from testbed.run import Request
from testbed.toolchain import open_toolchain
from testbed.toolchain.host import quiet

if TYPE_CHECKING:
    from testbed.toolchain.host import Progress

__all__ = ["Failed", "Task", "Word", "request_for"]

FEATURE_ADDRESSES = 1 << 40  # what libFuzzer calls features of traces: no code of a guest is there


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to do.

    :param inputs: the corpus. :param findings: where findings are kept.
    :param home: where findings will lie in the end, if elsewhere.
    :param seconds: how long. :param seed: of libFuzzer's random numbers.
    :param coverage: whether libFuzzer is told what the guest reached.
    """

    nic: str
    kernel: str
    inputs: str
    findings: str
    seconds: float
    seed: int
    coverage: bool = True
    home: str = ""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Why a worker could not go on."""

    message: str
    exit_status: int


Word = Status | Seen | Failed
_encoder = msgspec.json.Encoder()


def request_for(nic: str, kernel: str, progress: Progress = quiet) -> Request:
    """Return what is fuzzed; the kernel is built when the cache lacks it.

    :raise UsageError: a name is unknown.
    """
    chosen, spec = nics.get(nic), parse(kernel)
    toolchain = open_toolchain()
    return Request(
        toolchain=toolchain,
        kernel=resolve(spec, toolchain, progress),
        nic=chosen,
        scenario=BASES[0].scenario(),
        clock="virtual",
    )


def _tell(word: Word) -> None:
    os.write(1, _encoder.encode(word) + b"\n")  # one write: whole, or the reader is gone


def _fuzz(task: Task) -> None:
    """Fuzz until the time is over; returns only by an exception."""
    deadline = time.monotonic() + task.seconds
    try:
        import atheris  # noqa: PLC0415 - it is an extra, and says much while it is imported
    except ImportError as error:
        raise HostError(
            "fuzzing needs Atheris, which is not installed", "pip install 'testbed[fuzz]'"
        ) from error
    session = Session(request_for(task.nic, task.kernel), task.findings, _tell, task.home)

    def one(data: bytes) -> None:
        if time.monotonic() > deadline:
            session.close()
            os._exit(0)  # libFuzzer has no other end that leaves the corpus as it is
        try:
            session.one(data)
        except TestbedError as error:  # nothing that another input would do better
            _fail(error)

    options = [
        f"-max_len={MAX_BYTES}",
        f"-seed={task.seed}",
        "-len_control=0",
        "-use_counters=0",  # how often a block ran is noise; that it ran is not
        "-reload=1",
        "-detect_leaks=0",
        "-rss_limit_mb=0",
        "-timeout=86400",
    ]
    atheris.Setup(
        ["testbed", *options, task.inputs],
        one,
        custom_mutator=mutate,
        custom_crossover=cross,
        enable_python_coverage=False,
    )
    if task.coverage:
        register(session.blocks, session.addresses)
        register(
            session.features, FEATURE_ADDRESSES + np.arange(len(session.features.values), dtype=np.uint64)
        )
    atheris.Fuzz()


def _fail(error: TestbedError) -> None:
    _tell(Failed(str(error), error.exit_status))
    os._exit(1)


def main() -> None:
    """Work; the only argument is the task."""
    try:
        _fuzz(msgspec.json.decode(sys.argv[1], type=Task))
    except TestbedError as error:
        _fail(error)


if __name__ == "__main__":
    main()
