"""What a machine of a cluster does for a campaign: it has a share; Dask calls :func:`perform` there, by name."""

from __future__ import annotations

import os
import queue
import time
from typing import TYPE_CHECKING

import msgspec
from distributed import Queue

from testbed.cluster.facts import refusal
from testbed.fuzzing.crew import Ended, WorkerProcess
from testbed.fuzzing.findings import FILE
from testbed.fuzzing.letters import (
    Answer,
    FromShare,
    Hello,
    Job,
    More,
    Parcel,
    Stop,
    Supply,
    ToShare,
    new_inputs,
    take_in,
)
from testbed.fuzzing.worker import Task
from testbed.guest import runtime_directory

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.fuzzing.crew import Heard

__all__ = ["perform"]

EXCHANGE_S = 1.0
FORSAKEN_S = 60.0  # without a letter: the campaign is dead, and nobody told us


def perform(data: bytes) -> bytes:
    """Have a share until the campaign says that it is over; takes a :class:`Job`, returns an :class:`Answer`."""
    refused = refusal(data)
    if refused:
        return msgspec.json.encode(Answer(refused=refused))
    job = msgspec.json.decode(data, type=Job)
    mailbox = Queue(f"{job.inbox}-{job.number}-{os.urandom(4).hex()}")
    try:
        with runtime_directory() as folder:
            share = _Share(job, Queue(job.inbox), mailbox, folder)
            try:
                share.run()
            finally:
                share.end()
            return msgspec.json.encode(Answer(forsaken=share.forsaken))
    finally:
        mailbox.close()


class _Share:
    """A share on this machine.

    :param folder: for its corpus.
    """

    def __init__(self, job: Job, campaign: Queue, mailbox: Queue, folder: Path) -> None:
        self._job, self._campaign, self._mailbox = job, campaign, mailbox
        self._inputs, self._findings = folder / "inputs", folder / "findings"
        self._log = folder / "worker.log"
        self._known: set[str] = set()
        self._found: set[str] = set()
        self._words: queue.Queue[Heard] = queue.Queue()
        self._process: WorkerProcess | None = None
        self._over = False
        self.forsaken = False
        for path in (self._inputs, self._findings):
            path.mkdir()

    def run(self) -> None:
        """Exchange letters until there is nothing more to do."""
        self._send(Hello(self._job.number, self._mailbox.name))
        heard_s = time.monotonic()
        while not (self._over or self.forsaken):
            letters = self._mailbox.get(batch=True)
            heard_s = time.monotonic() if letters else heard_s
            for letter in letters:
                self._take(msgspec.msgpack.decode(letter, type=ToShare))
            self._tell(self._said())
            self.forsaken = time.monotonic() - heard_s > FORSAKEN_S

    def end(self) -> None:
        """End the worker, if there is one."""
        if self._process:
            self._process.kill()

    def _take(self, letter: ToShare) -> None:
        match letter:
            case Supply():
                self._begin(letter)
            case More():
                self._known |= take_in(self._inputs, letter.inputs)
                for name in letter.findings:  # which makes a worker take it for known
                    (self._findings / name).mkdir(exist_ok=True)
                    self._found.add(name)
            case Stop():
                self._over = True

    def _begin(self, supply: Supply) -> None:
        task = Task(
            nic=self._job.nic,
            kernel=self._job.kernel,
            inputs=str(self._inputs),
            findings=str(self._findings),
            home=self._job.home,
            seconds=supply.seconds,
            seed=supply.seed,
            coverage=self._job.coverage,
        )
        self._process = WorkerProcess(task, self._log, self._words.put)

    def _said(self) -> list[Heard]:
        """Return what the worker said; wait a little while if it is nothing."""
        said: list[Heard] = []
        try:
            said.append(self._words.get(timeout=EXCHANGE_S))
            while True:
                said.append(self._words.get_nowait())
        except queue.Empty:
            return said

    def _tell(self, words: list[Heard]) -> None:
        """Send what is new, if anything is."""
        inputs = new_inputs(self._inputs, self._known)
        names = {file.parent.name for file in self._findings.glob(f"[!.]*/{FILE}")} - self._found
        self._known |= inputs.keys()
        self._found |= names
        findings = {
            name: {file.name: file.read_bytes() for file in (self._findings / name).iterdir()}
            for name in names
        }
        if inputs or findings or words:
            parcel = Parcel(
                number=self._job.number,
                mailbox=self._mailbox.name,
                inputs=list(inputs.values()),
                findings=findings,
                words=words,
            )
            self._send(parcel)
        self._over = self._over or any(isinstance(word, Ended) and word.whole for word in words)

    def _send(self, letter: FromShare) -> None:
        self._campaign.put(msgspec.msgpack.encode(letter))
