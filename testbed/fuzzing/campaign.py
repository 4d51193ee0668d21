"""A campaign: workers over one corpus, told apart by their seeds, ended by the clock.

Layout of the corpus::

    inputs/SHA1      an input, named by its content; any number of processes and machines may add to it
    findings/        see testbed.fuzzing.findings
    campaigns/       see testbed.fuzzing.records
    worker-N.log     what libFuzzer said, of workers on this machine

Whatever ends a campaign, the next one goes on from what lies there. A worker that dies is started anew.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import queue
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from testbed.errors import HostError, Unsupported, UsageError
from testbed.fuzzing.crew import Ended
from testbed.fuzzing.findings import Finding, all_findings
from testbed.fuzzing.input_model import encode, nearest
from testbed.fuzzing.session import Seen, Status
from testbed.fuzzing.worker import Failed
from testbed.run_directory import explained
from testbed.scenario import library, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.fuzzing.crew import Crew
    from testbed.fuzzing.worker import Task, Word

__all__ = ["Campaign", "Growth", "Summary", "plant"]

LIBRARY = "library"
GRACE_S = 60.0  # beyond its time: a worker may be confirming a finding
MOST_DEATHS = 10  # of workers, without an input run between them


class Growth(msgspec.Struct, frozen=True):
    """How far all workers together were at some time; blocks and features are those of the best one."""

    seconds: float
    executions: int
    blocks: int
    features: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign came to.

    :param begun: when, in UTC.
    :param seen: violations by name of the finding, all workers together.
    :param findings: all that the corpus holds, those that repeat first.
    """

    begun: str
    nic: str
    kernel: str
    jobs: int
    seconds: float
    executions: int
    executions_per_s: float
    refused: int
    restores: int
    deaths: int
    confirming_s: float
    blocks: int
    features: int
    inputs: int
    growth: list[Growth]
    seen: dict[str, int]
    findings: list[Finding]


def plant(corpus: Path, seeds: str) -> int:
    """Add seeds to the corpus, and return how many inputs it has then.

    :param seeds: a directory of scenario files, or ``library``.
    :raise UsageError: there are none, or one is no scenario.
    :raise HostError: the corpus cannot be written to.
    """
    names = [entry.name for entry in library()] if seeds == LIBRARY else _files(seeds)
    inputs = corpus / "inputs"
    with explained(corpus):
        inputs.mkdir(parents=True, exist_ok=True)
        (corpus / "findings").mkdir(exist_ok=True)
        for name in names:
            data = encode(nearest(load(name)))
            file = inputs / hashlib.sha1(data, usedforsecurity=False).hexdigest()
            partial = file.with_name(f".{file.name}.{os.getpid()}")
            partial.write_bytes(data)
            partial.replace(file)
        return sum(1 for _ in inputs.iterdir())


def _files(seeds: str) -> list[Path]:
    found = sorted(Path(seeds).glob("*.yaml"))
    if not found:
        raise UsageError(f"expected scenario files (*.yaml) in {seeds}, seen none", "name another directory")
    return found


class Campaign:
    """Workers of a crew over one corpus.

    :param task: what the first worker does; the others have further seeds.
    """

    def __init__(self, task: Task, corpus: Path, jobs: int, crew: Crew) -> None:
        self._task, self._corpus, self._jobs, self._crew = task, corpus, jobs, crew
        self._begun = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        self._begun_s = time.monotonic()
        self._workers: dict[int, Status] = {}  # those that run, and what each said last
        self._past: list[Status] = []  # of workers that ended
        self._seen: Counter[str] = Counter()
        self._growth: list[Growth] = []
        self._deaths = 0
        self._barren = 0

    def run(self, show: Callable[[Growth, Word], None], keep: Callable[[Summary], None]) -> Summary:
        """Fuzz until the time is over.

        :param show: told how far all are, and what a worker said.
        :param keep: given what the campaign has come to, each time that it has grown, and however it ends.
        :raise TestbedError: a worker cannot go on.
        """
        try:
            self._listen(show, keep)
        finally:
            summary = self._summary()
            keep(summary)
        return summary

    def _listen(self, show: Callable[[Growth, Word], None], keep: Callable[[Summary], None]) -> None:
        for number in range(self._jobs):
            self._start(number)
        while self._workers:
            try:
                number, word = self._crew.heard.get(timeout=max(0.1, self._left_s + GRACE_S))
            except queue.Empty:
                return
            if isinstance(word, Ended):
                self._ended(number, word)
                continue
            self._take(number, word)
            points = len(self._growth)
            show(self._grown(), word)
            if len(self._growth) > points:
                keep(self._summary())

    @property
    def _left_s(self) -> float:
        return self._begun_s + self._task.seconds - time.monotonic()

    def _start(self, number: int) -> None:
        task = msgspec.structs.replace(
            self._task,
            seed=self._task.seed + number + self._jobs * self._deaths,
            seconds=max(self._left_s, 0.1),
        )
        self._workers[number] = Status()
        self._crew.start(number, task)

    def _take(self, number: int, word: Word) -> None:
        match word:
            case Status():
                self._workers[number] = word
                self._barren = 0 if word.executions else self._barren
            case Seen():
                self._seen[word.name] += 1
            case Failed():
                failed = Unsupported if word.exit_status == Unsupported.exit_status else HostError
                raise failed(word.message)

    def _ended(self, number: int, end: Ended) -> None:
        """Start a worker anew that died before its time."""
        self._past.append(self._workers.pop(number))
        if end.whole or self._left_s <= 0:
            return
        self._deaths += 1
        self._barren += 1
        if self._barren > MOST_DEATHS:
            raise HostError(
                f"workers die before they run an input; the last one said: {end.last}",
                f"see worker-{number}.log in {self._corpus}",
            )
        self._start(number)

    def _all(self) -> list[Status]:
        return [*self._past, *self._workers.values()]

    def _grown(self) -> Growth:
        statuses = self._all()
        now = Growth(
            round(time.monotonic() - self._begun_s, 1),
            sum(status.executions for status in statuses),
            max((status.blocks for status in statuses), default=0),
            max((status.features for status in statuses), default=0),
        )
        if not self._growth or now.seconds >= 1.1 * self._growth[-1].seconds + 1:
            self._growth.append(now)
        return now

    def _summary(self) -> Summary:
        last, statuses = self._grown(), self._all()
        return Summary(
            begun=self._begun,
            nic=self._task.nic,
            kernel=self._task.kernel,
            jobs=self._jobs,
            seconds=last.seconds,
            executions=last.executions,
            executions_per_s=round(last.executions / max(last.seconds, 0.1), 2),
            refused=sum(status.refused for status in statuses),
            restores=sum(status.restores for status in statuses),
            deaths=self._deaths,
            confirming_s=round(sum(status.confirming_s for status in statuses), 1),
            blocks=last.blocks,
            features=last.features,
            inputs=sum(1 for _ in (self._corpus / "inputs").iterdir()),
            growth=self._growth if last in self._growth else [*self._growth, last],
            seen=dict(self._seen),
            findings=all_findings(self._corpus / "findings"),
        )
