"""Those who work for a campaign: processes of :mod:`testbed.fuzzing.worker`, on this machine or on others."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Protocol, Self

import msgspec

from testbed.fuzzing.worker import Task, Word
from testbed.run_directory import explained

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

__all__ = ["Crew", "Ended", "Processes", "WorkerProcess"]


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A worker's last word, which somebody else says for it.

    :param whole: its time was over; else it died.
    :param last: the last line that it said of itself.
    """

    whole: bool
    last: str = ""


Heard = Word | Ended


class Crew(Protocol):
    """Workers by number, from 0.

    ``heard`` is what they say, each with its number; what follows an :class:`Ended` is of the next one of that number.
    """

    heard: queue.Queue[tuple[int, Heard]]

    def start(self, number: int, task: Task) -> None:
        """Let a worker begin; the one that had this number has ended, or there was none."""


class WorkerProcess:
    """One worker as a child of this process.

    :param log: the file that gets what libFuzzer says.
    :param hear: given its words, from a thread; the last one is an :class:`Ended`.
    :raise HostError: it cannot be started.
    """

    def __init__(self, task: Task, log: Path, hear: Callable[[Heard], None]) -> None:
        self._log, self._hear = log, hear
        argv = [sys.executable, "-P", "-m", "testbed.fuzzing.worker", msgspec.json.encode(task).decode()]
        with explained(log), log.open("wb") as file:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                cwd=log.parent,
                start_new_session=True,  # Ctrl-C is ours
            )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """End it; its guests die with it."""
        self._process.kill()
        self._thread.join()

    def _listen(self) -> None:
        with self._process as process:
            for line in process.stdout or ():
                if line.endswith(b"\n"):
                    self._hear(msgspec.json.decode(line, type=Word))
        last = (self._log.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1]
        self._hear(Ended(self._process.returncode == 0, last))


class Processes:
    """A crew on this machine; as a context manager it ends with the context.

    :param corpus: gets worker-N.log, what libFuzzer said.
    """

    def __init__(self, corpus: Path) -> None:
        self._corpus = corpus
        self._processes: dict[int, WorkerProcess] = {}
        self.heard: queue.Queue[tuple[int, Heard]] = queue.Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()

    def start(self, number: int, task: Task) -> None:
        """Let a worker begin.

        :raise HostError: it cannot be started.
        """

        def hear(word: Heard) -> None:
            self.heard.put((number, word))

        self._processes[number] = WorkerProcess(task, self._corpus / f"worker-{number}.log", hear)
