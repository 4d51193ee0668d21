"""From a scenario to the program that the agent runs."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from testbed.scenario.program import STEP, BindFlags, StepKind, Verdict, XdpMode
from testbed.scenario.steps import Inject, Record
from testbed.scenario.unroll import unroll

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from testbed.scenario.model import Scenario
    from testbed.scenario.settings import Settings

__all__ = ["Capability", "Program", "compile_program", "required"]


class Capability(enum.StrEnum):
    """What a scenario may ask of a NIC, its driver and the kernel."""

    NATIVE_XDP = "native_xdp"
    GENERIC_XDP = "generic_xdp"
    ZERO_COPY = "zero_copy"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled scenario.

    :param steps: records of :data:`testbed.scenario.program.STEP`, shape (n,), n at most MAX_STEPS.
    :param injections: the host's part of each barrier, by the action's number (operand ``a`` of HOST), from 0
        in the order in which they run.
    :param sources: for each record, what it came from: ``rx_drain all (in repeat 3/20)``; length n.
    :param first_step: index of the first record that is not set-up.
    """

    steps: NDArray[np.void]
    injections: dict[int, Inject]
    sources: tuple[str, ...]
    first_step: int

    @property
    def frames(self) -> int:
        """How many frames all injections together put on the wire."""
        return sum(inject.count for inject in self.injections.values())

    def describe(self, index: int) -> str:
        """Return ``step 17: rx_drain all (in repeat 3/20)``."""
        return f"step {index}: {self.sources[index]}"


def required(scenario: Scenario) -> frozenset[Capability]:
    """Return what the NIC, its driver and the kernel must be able to do."""
    settings = scenario.settings
    xdp = Capability.NATIVE_XDP if settings.xdp_mode == "native" else Capability.GENERIC_XDP
    socket = {"zerocopy": {Capability.ZERO_COPY}, "copy": {Capability.COPY}, "none": set[Capability]()}
    return frozenset({xdp} | socket[settings.mode])


def compile_program(scenario: Scenario) -> Program:
    """Return the program of a checked scenario: set-up, then the steps with repeats written out.

    Equal scenarios give equal programs.
    """
    setup = _setup(scenario.settings)
    records = list(setup)
    sources = [f"set-up: {record.kind.name.lower()}" for record in setup]
    injections: dict[int, Inject] = {}
    for written in unroll(scenario):
        source = str(written)
        for record in written.step.records():
            if isinstance(written.step, Inject):
                records.append(replace(record, a=len(injections)))
                injections[len(injections)] = written.step
            else:
                records.append(record)
            sources.append(source)
    queue = scenario.settings.queue
    rows = [(r.kind, queue, r.count, r.a, r.b, r.c) for r in records]
    return Program(np.array(rows, dtype=STEP), injections, tuple(sources), len(setup))


def _setup(settings: Settings) -> list[Record]:
    """Return the records before the first step, in the one order that igb takes."""
    rings = Record(StepKind.RINGS, a=settings.rx_ring, b=settings.tx_ring)
    attach = Record(
        StepKind.XDP_ATTACH, a=Verdict[settings.verdict.upper()], b=XdpMode[settings.xdp_mode.upper()]
    )
    if settings.mode == "none":
        return [rings, attach]
    umem = Record(
        StepKind.UMEM,
        count=settings.umem_chunks,
        a=settings.chunk_bytes,
        b=settings.fill_entries,
        c=settings.completion_entries,
    )
    flags = BindFlags.ZEROCOPY if settings.mode == "zerocopy" else BindFlags.COPY
    if settings.need_wakeup:
        flags |= BindFlags.USE_NEED_WAKEUP
    bind = Record(StepKind.BIND, a=flags, b=settings.rx_entries, c=settings.tx_entries)
    return [rings, umem, attach, bind]
