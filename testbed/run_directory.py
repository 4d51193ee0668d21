"""What ``--out DIR`` keeps of a run: result.json, trace.npy, console.log, scenario.yaml, and wire.pcap when asked."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import filelock
import msgspec

from testbed.errors import HostError
from testbed.result import TRACE_NAME, save_result
from testbed.scenario import from_json, save
from testbed.trace import save_events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt

    from testbed.result import Result
    from testbed.run import Run

__all__ = ["RunDirectory", "RunFiles", "explained"]


@dataclass(frozen=True)
class RunFiles:
    """The files of one run."""

    path: Path

    @property
    def pcap(self) -> Path:
        """Where the wire is recorded."""
        return self.path / "wire.pcap"

    def save(self, run: Run) -> None:
        """Write what the run left.

        :raise HostError: the directory cannot be written to.
        """
        self.write(run.result, run.console, run.trace.events if run.trace else None)

    def write(self, result: Result, console: str, events: npt.NDArray[np.void] | None) -> None:
        """Write the parts of a run; the result last, so that whoever sees it sees all of it.

        :raise HostError: the directory cannot be written to.
        """
        with explained(self.path):
            (self.path / "console.log").write_text(console)
            (self.path / "scenario.yaml").write_text(save(from_json(msgspec.json.encode(result.program))))
            if events is not None:
                save_events(self.path / TRACE_NAME, events)
            save_result(self.path, result)


class RunDirectory:
    """A directory that one testbed at a time writes to.

    :raise HostError: another testbed writes to it, or it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with explained(path):
            path.mkdir(parents=True, exist_ok=True)
        self._lock = filelock.FileLock(path / ".lock")

    def __enter__(self) -> Self:
        with explained(self._path):
            self._lock.acquire(timeout=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def of_run(self, number: int, runs: int) -> RunFiles:
        """Return where run ``number`` of ``runs`` goes: the directory itself when there is only one."""
        path = self._path if runs == 1 else self._path / f"run-{number:0{len(str(runs))}}"
        with explained(path):
            path.mkdir(exist_ok=True)
        return RunFiles(path)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the operating system says about ``--out`` into one line."""
    try:
        yield
    except filelock.Timeout as error:
        raise HostError(
            f"another testbed is writing to {path}", "wait for it, or choose another --out"
        ) from error
    except OSError as error:
        raise HostError(
            f"cannot write to {error.filename or path}: {error.strerror}", "choose another --out"
        ) from error
