"""How long things take on this machine and whether runs repeat exactly, beside a plain boot of the same kernel.

All of it is in virtual time under TCG, so that machines with and without KVM can be compared by the ratios.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from testbed.bench.boots import measure_boots
from testbed.bench.host import describe_machine
from testbed.bench.model import measure_model
from testbed.bench.records import (
    CASES,
    FULL,
    QUICK,
    Bench,
    Effort,
    MachineRecord,
    ModelRecord,
    Repetition,
    Timing,
)
from testbed.bench.runs import measure_repetition, measure_runs, run_words
from testbed.bench.summary import missed_targets, summarise
from testbed.guest import probe, runtime_directory
from testbed.kernel import resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.toolchain import Toolchain

__all__ = [
    "FULL",
    "QUICK",
    "Bench",
    "Effort",
    "MachineRecord",
    "ModelRecord",
    "Repetition",
    "Timing",
    "bench",
]


def bench(toolchain: Toolchain, effort: Effort, say: Callable[[str], None]) -> Bench:
    """Measure everything.

    :param say: told what is being measured, a line each.
    :raise TestbedError: something could not be measured at all.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    machine = describe_machine(toolchain)
    words = run_words(probe(toolchain).name)
    kernel = resolve()
    with runtime_directory() as directory:
        seconds = measure_boots(toolchain, kernel, directory, effort, say)
        seconds |= measure_runs(words, directory, effort, say)
    timings = summarise(seconds, words)
    model = measure_model(toolchain, kernel, effort, say)
    repetitions = [measure_repetition(toolchain, kernel, *case, effort.repetitions, say) for case in CASES]
    return Bench(
        started=started,
        machine=machine,
        guest_kernel=f"{kernel.release} ({kernel.package})",
        timings=timings,
        repetitions=repetitions,
        model=model,
        missed=missed_targets(timings, repetitions, model),
    )
