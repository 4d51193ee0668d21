"""A scenario's steps with the repeats written out, and their sums without doing so."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from testbed.scenario.steps import (
    DeviceStep,
    Inject,
    Netconsole,
    Repeat,
    Sleep,
    StackSend,
    Step,
    Tx,
    describe,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.scenario.model import Scenario

__all__ = ["Totals", "Unrolled", "device_steps", "modules_of", "totals", "unroll", "written"]


class Unrolled(NamedTuple):
    """One step as it will run; never a repeat."""

    path: str  # where it is written: $.steps[2].steps[0]
    step: Step
    rounds: tuple[str, ...]  # of the repeats around it, outermost first: "3/20"

    def __str__(self) -> str:
        """Return ``rx_drain all (in repeat 3/20)``."""
        inside = ", ".join(self.rounds)
        return f"{describe(self.step)} (in repeat {inside})" if inside else describe(self.step)


def device_steps(scenario: Scenario) -> Iterator[DeviceStep]:
    """Yield each ``device`` step once, as it is written."""
    return (step for step in written(scenario.steps) if isinstance(step, DeviceStep))


def modules_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the kernel modules that steps load, beside those of the NIC's driver."""
    return ("netconsole",) if any(isinstance(step, Netconsole) for step in written(scenario.steps)) else ()


def written(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Yield each step once, as it is written; of a repeat the steps in it."""
    for step in steps:
        if isinstance(step, Repeat):
            yield from written(step.steps)
        else:
            yield step


class Totals(NamedTuple):
    """Sums over all steps, repeats included."""

    records: int  # rows of the program, set-up not counted
    frames: int  # injected and transmitted
    sleep_us: int


def unroll(scenario: Scenario) -> Iterator[Unrolled]:
    """Yield the steps in the order in which they run; bound their number by :func:`totals` first."""
    return _unroll(scenario.steps, "$", ())


def _unroll(steps: tuple[Step, ...], parent: str, rounds: tuple[str, ...]) -> Iterator[Unrolled]:
    for index, step in enumerate(steps):
        path = f"{parent}.steps[{index}]"
        if isinstance(step, Repeat):
            for turn in range(1, step.times + 1):
                yield from _unroll(step.steps, path, (*rounds, f"{turn}/{step.times}"))
        else:
            yield Unrolled(path, step, rounds)


def totals(scenario: Scenario) -> Totals:
    """Return the sums; takes no longer for many repeats than for one."""
    return _totals(scenario.steps)


def _totals(steps: tuple[Step, ...]) -> Totals:
    records, frames, sleep_us = 0, 0, 0
    for step in steps:
        if isinstance(step, Repeat):
            inner = _totals(step.steps)
            records += step.times * inner.records
            frames += step.times * inner.frames
            sleep_us += step.times * inner.sleep_us
            continue
        records += len(step.records())
        frames += step.count if isinstance(step, (StackSend, Tx)) else 0
        frames += step.total if isinstance(step, Inject) else 0
        sleep_us += step.us if isinstance(step, Sleep) else 0
    return Totals(records, frames, sleep_us)
