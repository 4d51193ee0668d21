"""From a scenario to the program that the agent runs."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from testbed.scenario.program import STEP, BindFlags, StepKind, Verdict, XdpMode
from testbed.scenario.steps import Coalesce, HostStep, Inject, Record
from testbed.scenario.unroll import unroll, written

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from testbed.scenario.model import Scenario
    from testbed.scenario.settings import Settings

__all__ = ["Capability", "Program", "compile_program", "fitted", "required"]


_FROM_SETTINGS = {StepKind.UMEM, StepKind.XDP_ATTACH, StepKind.BIND}  # wherever they stand in a program


class Capability(enum.StrEnum):
    """What a scenario may ask of a NIC, its driver and the kernel."""

    NATIVE_XDP = "native_xdp"
    GENERIC_XDP = "generic_xdp"
    ZERO_COPY = "zero_copy"
    COPY = "copy"
    TX_FRAMES = "tx_frames"  # how many frames are sent for each interrupt on completion


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled scenario.

    :param steps: records of :data:`testbed.scenario.program.STEP`, shape (n,), n at most MAX_STEPS.
    :param actions: the host's part of each barrier, by its number (operand ``a`` of HOST), from 0 in the order
        in which they run.
    :param sources: for each record, what it came from: ``rx_drain all (in repeat 3/20)``; length n.
    :param first_step: index of the first record that is not set-up.
    """

    steps: NDArray[np.void]
    actions: dict[int, HostStep]
    sources: tuple[str, ...]
    first_step: int

    @property
    def frames(self) -> int:
        """How many frames all injections together put on the wire."""
        return sum(step.total for step in self.actions.values() if isinstance(step, Inject))

    def describe(self, index: int) -> str:
        """Return ``step 17: rx_drain all (in repeat 3/20)``."""
        return f"step {index}: {self.sources[index]}"


def required(scenario: Scenario) -> frozenset[Capability]:
    """Return what the NIC, its driver and the kernel must be able to do."""
    settings = scenario.settings
    programs = {
        "native": {Capability.NATIVE_XDP},
        "generic": {Capability.GENERIC_XDP},
        "none": set[Capability](),
    }
    sockets = {"zerocopy": {Capability.ZERO_COPY}, "copy": {Capability.COPY}, "none": set[Capability]()}
    needs = programs[settings.xdp_mode] | sockets[settings.mode]
    if any(isinstance(step, Coalesce) and step.tx_frames is not None for step in written(scenario.steps)):
        needs.add(Capability.TX_FRAMES)
    return frozenset(needs)


def fitted(scenario: Scenario, can: Collection[str]) -> Scenario:
    """Return the scenario as it runs where only this can be done: by its ``otherwise`` where that helps,
    and by no more of it than must be.

    :param can: capabilities of NIC, driver and kernel.
    """
    other = scenario.otherwise
    if other is None or required(scenario) <= set(can):
        return scenario
    rules = scenario.must_exercise if other.must_exercise is None else other.must_exercise
    for part in (msgspec.structs.replace(other, xdp_mode=None), other):
        settings = part.settings(scenario.settings)
        lesser = msgspec.structs.replace(scenario, settings=settings, must_exercise=rules, otherwise=None)
        if required(lesser) <= set(can):
            return lesser
    return scenario


def compile_program(scenario: Scenario) -> Program:
    """Return the program of a checked scenario: set-up, then the steps with repeats written out.

    Equal scenarios give equal programs.
    """
    setup = _setup(scenario.settings)
    operands = {record.kind: record for record in setup}
    records = list(setup)
    sources = [f"set-up: {record.kind.name.lower()}" for record in setup]
    actions: dict[int, HostStep] = {}
    for unrolled in unroll(scenario):
        for record in unrolled.step.records():
            if isinstance(unrolled.step, HostStep):
                records.append(replace(record, a=len(actions)))
                actions[len(actions)] = unrolled.step
            else:
                records.append(operands[record.kind] if record.kind in _FROM_SETTINGS else record)
            sources.append(str(unrolled))
            if record.kind is StepKind.UMEM and scenario.settings.prefill:
                records.append(_prefill(scenario.settings))
                sources.append(str(unrolled))
    queue = scenario.settings.queue
    rows = [(r.kind, queue, r.count, r.a, r.b, r.c) for r in records]
    return Program(np.array(rows, dtype=STEP), actions, tuple(sources), len(setup))


def _setup(settings: Settings) -> list[Record]:
    """Return the records before the first step, in the one order that igb takes."""
    records = []
    if settings.vcpus > 1:
        records.append(Record(StepKind.CPUS, a=settings.app_cpu, b=settings.irq_cpu))
    records.append(Record(StepKind.RINGS, a=settings.rx_ring, b=settings.tx_ring))
    if settings.mode != "none":
        records.append(_umem(settings))
        records += [_prefill(settings)] if settings.prefill else []
    if settings.xdp_mode != "none":
        verdict, mode = Verdict[settings.verdict.upper()], XdpMode[settings.xdp_mode.upper()]
        records.append(Record(StepKind.XDP_ATTACH, a=verdict, b=mode))
    if settings.mode != "none":
        records.append(_bind(settings))
    return records


def _umem(settings: Settings) -> Record:
    return Record(
        StepKind.UMEM,
        count=settings.umem_chunks,
        a=settings.chunk_bytes,
        b=settings.fill_entries,
        c=settings.completion_entries,
    )


def _prefill(settings: Settings) -> Record:
    return Record(StepKind.FILL, count=settings.prefill)


def _bind(settings: Settings) -> Record:
    flags = BindFlags.ZEROCOPY if settings.mode == "zerocopy" else BindFlags.COPY
    if settings.need_wakeup:
        flags |= BindFlags.USE_NEED_WAKEUP
    return Record(
        StepKind.BIND, count=settings.busy_poll, a=flags, b=settings.rx_entries, c=settings.tx_entries
    )
