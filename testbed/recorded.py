"""Runs read back from where ``--out`` kept them: one, or all that a matrix left."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from testbed.errors import UsageError
from testbed.result import RESULT_NAME, Result, load_result, trace_path
from testbed.run import host_steps
from testbed.scenario import compile_program, from_json
from testbed.scenario.steps import Inject
from testbed.trace import Trace, load_events

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Recorded", "load_recorded", "load_several"]


@dataclass(frozen=True)
class Recorded:
    """One run of a directory; ``trace`` is None when it left none.

    :param place: the directory's name within the one that was asked for; empty when it is that itself.
    """

    path: Path
    result: Result
    trace: Trace | None
    place: str = ""


def load_recorded(path: Path, place: str = "") -> Recorded:
    """Return the run in ``path``, an ``--out`` directory of one run.

    :raise UsageError: there is none, it is of another version, or its trace is not the one it speaks of.
    """
    result = load_result(path)
    return Recorded(path, result, _trace(path, result) if result.trace else None, place)


def load_several(path: Path) -> list[Recorded]:
    """Return the run in ``path``, or those in the directories in it, by name.

    :raise UsageError: there is none at all, or one cannot be read.
    """
    if not path.exists() or path.is_file() or (path / RESULT_NAME).exists():
        return [load_recorded(path)]
    found = [file.parent for file in sorted(path.glob(f"*/{RESULT_NAME}"))]
    if not found:
        raise UsageError(
            f"expected {RESULT_NAME} in {path} or in a directory in it, seen none",
            "name what 'testbed run --out' or 'testbed matrix --out' made",
        )
    return [load_recorded(each, each.name) for each in found]


def _trace(path: Path, result: Result) -> Trace:
    """Return the trace with what can be known of its run from the result alone."""
    events = load_events(trace_path(path))
    if result.trace is None or result.trace.events != len(events):
        expected = result.trace.events if result.trace else 0
        raise UsageError(
            f"the result in {path} has a trace of {expected} events, found {len(events)}",
            "keep result.json and trace.npy of one run together",
        )
    program = compile_program(from_json(msgspec.json.encode(result.program), f"the scenario in {path}"))
    bursts = [
        (number, step.total) for number, step in host_steps(program, events) if isinstance(step, Inject)
    ]
    version = re.match(r"(\d+)\.(\d+)", result.kernel.release)
    return Trace(
        events=events,
        lost=result.trace.lost,
        settings=result.settings,
        kernel=(int(version[1]), int(version[2])) if version else (0, 0),
        driver=result.driver,
        nic=result.nic,
        injected=sum(count for _, count in bursts),
        bursts=bursts,
        steps=program.steps,
        clock=result.clock,
    )
