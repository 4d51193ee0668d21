"""A crew on the workers of a Dask scheduler, and the corpus that they have in common: the one on this machine.

Each worker of the campaign is a share. Dask gives it to a machine that has a core for it, and to another one when that
machine dies: the share then says Hello a second time, and is told anew what to do, with the whole corpus.
"""

from __future__ import annotations

import queue
import re
import secrets
import shutil
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
from distributed import Queue
from distributed.scheduler import KilledWorker

from testbed.cluster.workers import workers_at
from testbed.errors import HostError, TestbedError
from testbed.fuzzing.crew import Ended
from testbed.fuzzing.letters import (
    Answer,
    FromShare,
    Hello,
    Job,
    More,
    Parcel,
    Stop,
    Supply,
    new_inputs,
    take_in,
)
from testbed.fuzzing.share import perform
from testbed.fuzzing.worker import Failed
from testbed.kernel import parse
from testbed.run_directory import explained
from testbed.version import identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distributed import Future

    from testbed.cluster.workers import Workers
    from testbed.fuzzing.crew import Heard
    from testbed.fuzzing.letters import ToShare
    from testbed.fuzzing.worker import Task

__all__ = ["NEEDS", "Shares", "shares_on"]

NEEDS = {"cores": 1}  # of a share: virtual time is made by one thread of QEMU
ROUND_S = 0.5
LOOK_S = 2.0
BEAT_S = 5.0  # a share hears something at least so often
ANSWER_LIMIT_S = 10.0


@contextmanager
def shares_on(address: str, task: Task, corpus: Path) -> Iterator[Shares]:
    """Lend a crew on a cluster; its shares end with the context.

    :param address: of the scheduler, as in tcp://HOST:8786.
    :param task: what is fuzzed, and where the corpus is on this machine.
    :raise UsageError: this is no address.
    :raise HostError: nobody answers there; workers are of another testbed, differ in toolchain or kernel, or have no
        core to give.
    """
    with workers_at(address) as workers:
        workers.check([parse(task.kernel).base], [("fuzzing", NEEDS)])
        shares = Shares(workers, task, corpus)
        try:
            yield shares
        finally:
            shares.close()


class Shares:
    """The crew; a thread of its own exchanges letters."""

    def __init__(self, workers: Workers, task: Task, corpus: Path) -> None:
        self.heard: queue.Queue[tuple[int, Heard]] = queue.Queue()
        self._workers, self._task, self._corpus = workers, task, corpus
        self._name = f"testbed-fuzz-{secrets.token_hex(4)}"
        self._inbox = Queue(self._name, client=workers.client)
        self._asked: queue.Queue[tuple[int, Task, float]] = queue.Queue()
        self._waiting: dict[int, tuple[Task, float]] = {}  # and until when
        self._futures: dict[int, Future] = {}
        self._mailboxes: dict[int, _Mailbox] = {}
        self._looked_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._exchange, daemon=True)
        self._thread.start()

    @property
    def cores(self) -> int:
        """How many shares the workers can have at once."""
        return max(1, sum(int(each.get("cores", 0)) for each in self._workers.resources().values()))

    def start(self, number: int, task: Task) -> None:
        """Let a worker begin as soon as a machine has the share."""
        self._asked.put((number, task, time.monotonic() + task.seconds))

    def close(self) -> None:
        """Tell all shares that the campaign is over."""
        self._over.set()
        self._thread.join()

    def _exchange(self) -> None:
        try:
            while not self._over.wait(ROUND_S):
                self._round()
        except TestbedError as error:
            self.heard.put((0, Failed(str(error), error.exit_status)))
        except OSError:  # what Dask raises of connections
            self.heard.put((0, Failed(str(self._workers.gone()), HostError.exit_status)))
        finally:
            if self._workers.client.status == "running":
                with suppress(OSError):
                    self._end()

    def _round(self) -> None:
        while not self._asked.empty():
            number, task, end_s = self._asked.get()
            self._waiting[number] = (task, end_s)
        for letter in self._inbox.get(batch=True):
            self._take(msgspec.msgpack.decode(letter, type=FromShare))
        for number, (task, end_s) in list(self._waiting.items()):
            self._serve(number, task, end_s - time.monotonic())
        for mailbox in self._mailboxes.values():
            mailbox.send_news(self._corpus)
        if time.monotonic() - self._looked_s > LOOK_S:
            self._looked_s = time.monotonic()
            self._look()

    def _serve(self, number: int, task: Task, left_s: float) -> None:
        """Let a share that waits begin, or see to it that a machine gets it."""
        if left_s <= 0:
            del self._waiting[number]
            self.heard.put((number, Ended(whole=True)))
        elif number in self._mailboxes:
            del self._waiting[number]
            self._mailboxes[number].send_news(self._corpus)
            self._mailboxes[number].send(Supply(seconds=left_s, seed=task.seed))
        elif number not in self._futures:
            self._futures[number] = self._workers.client.submit(
                perform,
                self._job(number),
                key=f"{self._name}-{number}-{secrets.token_hex(4)}",
                resources=NEEDS,
                pure=False,
            )

    def _job(self, number: int) -> bytes:
        spec = parse(self._task.kernel)
        job = Job(
            testbed=identity(),
            number=number,
            nic=self._task.nic,
            kernel=spec.text,
            contents=spec.contents,
            coverage=self._task.coverage,
            inbox=self._name,
            home=self._task.findings,
        )
        return msgspec.json.encode(job)

    def _take(self, letter: FromShare) -> None:
        match letter:
            case Hello(number=number, mailbox=name):
                self._lost(number, "its machine died")
                self._mailboxes[number] = _Mailbox(Queue(name, client=self._workers.client))
            case Parcel(number=number):
                with explained(self._corpus):
                    names = take_in(self._corpus / "inputs", letter.inputs)
                    for name, files in letter.findings.items():
                        _keep_finding(self._corpus / "findings", name, files)
                mailbox = self._mailboxes.get(number)
                if mailbox and mailbox.name == letter.mailbox:
                    mailbox.has |= names
                    for word in letter.words:
                        self.heard.put((number, word))

    def _lost(self, number: int, how: str) -> None:
        """Forget a machine that had a share, and say that its worker died, if one had begun."""
        mailbox = self._mailboxes.pop(number, None)
        if mailbox:
            mailbox.close()
            if number not in self._waiting:
                self.heard.put((number, Ended(whole=False, last=how)))

    def _look(self) -> None:
        """See what became of the shares.

        :raise HostError: a machine must not have one, or there is none that could.
        """
        self._workers.check_hope([("fuzzing", NEEDS)])
        for number, future in list(self._futures.items()):
            if future.status == "error":
                error = future.exception(timeout=ANSWER_LIMIT_S)
                died = isinstance(error, KilledWorker)
                self._left(number, "several machines died with it" if died else repr(error))
            elif future.status == "finished":
                answer = msgspec.json.decode(future.result(timeout=ANSWER_LIMIT_S), type=Answer)
                if answer.refused:
                    raise HostError(
                        f"a worker at {self._workers.address} {answer.refused}", "see docs/cluster.md"
                    )
                if answer.forsaken:
                    self._left(number, "it heard nothing for too long")

    def _left(self, number: int, how: str) -> None:
        """Note that a share is nowhere; the next time it is asked for, it goes to whoever has room."""
        del self._futures[number]
        self._lost(number, how)

    def _end(self) -> None:
        for mailbox in self._mailboxes.values():
            mailbox.send(Stop())
        self._workers.client.cancel(list(self._futures.values()))
        self._inbox.close()


class _Mailbox:
    """Where a share reads, and the names of what it has: inputs and findings."""

    def __init__(self, mailbox: Queue) -> None:
        self._queue = mailbox
        self.name: str = mailbox.name
        self.has: set[str] = set()
        self._knows: set[str] = set()
        self._sent_s = 0.0

    def send_news(self, corpus: Path) -> None:
        """Send what the corpus has and the share has not; now and then also when that is nothing."""
        with explained(corpus):
            inputs = new_inputs(corpus / "inputs", self.has)
            findings = {path.name for path in (corpus / "findings").glob("[!.]*")} - self._knows
        self.has |= inputs.keys()
        self._knows |= findings
        if inputs or findings or time.monotonic() - self._sent_s > BEAT_S:
            self.send(More(inputs=list(inputs.values()), findings=sorted(findings)))

    def send(self, letter: ToShare) -> None:
        """Send a letter."""
        self._sent_s = time.monotonic()
        self._queue.put(msgspec.msgpack.encode(letter))

    def close(self) -> None:
        """Leave the queue alone."""
        self._queue.close()


def _keep_finding(findings: Path, name: str, files: dict[str, bytes]) -> None:
    """Write what a share found, whole or not at all, unless it is there.

    :raise HostError: a name would lead out of the directory.
    """
    for word in (name, *files):
        if not re.fullmatch(r"\w[\w.-]*", word):
            raise HostError(
                f"expected names of files from a worker, seen {word!r}", "see whose worker that is"
            )
    if (findings / name).exists():
        return
    partial = findings / f".{name}.{secrets.token_hex(4)}"
    partial.mkdir()
    for word, data in files.items():
        (partial / word).write_bytes(data)
    try:
        partial.rename(findings / name)
    except OSError:  # another campaign over this corpus was first
        shutil.rmtree(partial)
