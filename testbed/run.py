"""One run: a kernel, a NIC and a scenario go in, a result comes out."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from testbed.errors import GuestLost, TestbedError, Unsupported
from testbed.guest import conduct, is_saved, restored, runtime_directory, save, warm
from testbed.preparation import blueprint_of, shape_of
from testbed.result import KernelRecord, Result, Timings, TraceRecord, judge_run
from testbed.rules import all_rules, binds, judge, load_waivers
from testbed.scenario import compile_program, device_steps, fitted, modules_of, required
from testbed.scenario.program import StepKind
from testbed.scenario.steps import Inject, Link
from testbed.trace import Trace, count, decode_events, sequence_digest, with_device_rows, with_splat_rows
from testbed.trace.events import Kind
from testbed.traffic.frames import parse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from testbed.guest import Blueprint, Clock, Outcome
    from testbed.kernel import Kernel
    from testbed.nic import Nic
    from testbed.result import Verdict
    from testbed.rules import Waiver
    from testbed.scenario import Program, Scenario
    from testbed.scenario.steps import HostStep
    from testbed.toolchain import Toolchain

    Events = npt.NDArray[np.void]

__all__ = ["Request", "Run", "check_commands", "host_steps", "prepare", "run", "trace_of"]

SETTLE_LIMIT_S = 10.0
NOT_SUPPORTED = {errno.EOPNOTSUPP, errno.ENOTSUP}


@dataclass(frozen=True)
class Request:
    """What to run.

    :param rules: ids of the rules to judge by; all when empty.
    :param waivers: deviations that are known; the built-in ones by default.
    :param timeout_s: limit in host time for the program itself.
    :param pcap: where to record the frames of both directions.
    :param reproduce: the command that asks for just this.
    """

    toolchain: Toolchain
    kernel: Kernel
    nic: Nic
    scenario: Scenario
    clock: Clock | None = None
    rules: Sequence[str] = ()
    waivers: Sequence[Waiver] = field(default_factory=load_waivers)
    timeout_s: float = 60.0
    pcap: Path | None = None
    reproduce: str = ""


@dataclass(frozen=True)
class Run:
    """A result and what stands behind it; ``trace`` is None when the guest never got to run anything."""

    result: Result
    trace: Trace | None = None
    console: str = ""


@dataclass
class _Watch:
    """Where the seconds go, and in which mode they go."""

    accelerator: str = "tcg"
    clock: Clock = "virtual"
    started: float = field(default_factory=time.monotonic)
    spans: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, since: float) -> None:
        self.spans[name] = round(time.monotonic() - since, 3)

    def timings(self) -> Timings:
        return Timings(**self.spans, total_s=round(time.monotonic() - self.started, 3))


def run(request: Request) -> Run:
    """Run a scenario once and judge it.

    What goes wrong becomes a result too: verdict ``broken`` or ``unsupported`` with its reason in ``error``.
    """
    watch = _Watch()
    try:
        request = _supported(request)
        if request.nic.model:
            warm(request.nic.model)
        made = _blueprint(request, watch)
        program = compile_program(request.scenario)
        with runtime_directory() as directory:
            return _run_guest(request, made, program, directory, watch)
    except TestbedError as error:
        return Run(_result(request, watch, verdict=error.verdict, error=str(error)))


def prepare(request: Request) -> Path:
    """Build the image and save the guest that a run of this request starts from; return the snapshot's directory.

    :raise TestbedError: whatever :func:`run` would make a result of.
    """
    return save(request.toolchain, _blueprint(request, _Watch()))


def check_commands(nic: Nic, scenario: Scenario) -> None:
    """Check the ``device`` steps of a scenario against the NIC's own words.

    :raise Unsupported: no device model plays the NIC.
    :raise UsageError: its model has no such command, or the command takes other arguments.
    """
    for step in device_steps(scenario):
        nic.check_command(step.command, step.arguments)


def _supported(request: Request) -> Request:
    """Return the request with the scenario as this NIC and kernel can run it.

    :raise Unsupported: they cannot.
    """
    check_commands(request.nic, request.scenario)
    scenario = fitted(request.scenario, request.nic.capabilities(request.kernel.version))
    request = replace(request, scenario=scenario)
    needed = frozenset(str(capability) for capability in required(request.scenario))
    missing = request.nic.missing(needed, request.kernel.version)
    if missing:
        name, release = request.scenario.name, request.kernel.release
        raise Unsupported(f"{request.nic.name} on {release} cannot run {name}: {'; '.join(missing)}")
    return request


def _blueprint(request: Request, watch: _Watch) -> Blueprint:
    shape = shape_of(request.toolchain, request.clock, vcpus=request.scenario.settings.vcpus)
    watch.clock, watch.accelerator = shape.clock, shape.accelerator
    later = modules_of(request.scenario)
    return blueprint_of(request.toolchain, request.kernel, request.nic, shape, later)


def _run_guest(request: Request, made: Blueprint, program: Program, directory: Path, watch: _Watch) -> Run:
    if not is_saved(request.toolchain, made):
        since = time.monotonic()
        save(request.toolchain, made)
        watch.note("boot_s", since)
    since = time.monotonic()
    with restored(request.toolchain, made, directory, request.pcap) as guest:
        watch.note("restore_s", since)
        since = time.monotonic()
        outcome = conduct(guest, program, request.timeout_s)
        watch.note("run_s", since)
        guest.machine.wire.settle(SETTLE_LIMIT_S)
        frames = guest.machine.wire.take_all()
        console = guest.machine.console_text()
    trace = trace_of(request, watch.clock, program, outcome, frames, console)
    return Run(_judged(request, watch, trace, len(frames)), trace, console)


def trace_of(
    request: Request, clock: Clock, program: Program, outcome: Outcome, frames: list[bytes], console: str
) -> Trace:
    """Return the trace of a program that was run.

    :param frames: what left the guest.
    :raise Unsupported: driver or kernel cannot do what the set-up asks.
    :raise GuestLost: a step was refused, or the guest died before the first one.
    """
    events = with_device_rows(decode_events(outcome.events), outcome.device)
    _check_begun(program, outcome, events, console)
    numbered = [found.sequence for frame in frames if (found := parse(frame)) and found.intact]
    settings: dict[str, object] = msgspec.to_builtins(request.scenario.settings)
    log = console.splitlines()
    done = host_steps(program, events)
    bursts = [(number, step.total) for number, step in done if isinstance(step, Inject)]
    return Trace(
        events=with_splat_rows(events, log),
        lost=outcome.lost,
        log=log,
        settings=settings,
        kernel=request.kernel.version,
        driver=request.nic.driver,
        nic=request.nic.name,
        alive=not outcome.death,
        death=outcome.death,
        injected=sum(count for _, count in bursts),
        bursts=bursts,
        links=[(number, step.state == "up") for number, step in done if isinstance(step, Link)],
        steps=program.steps,
        clock=clock,
        wire_sequences=np.array(numbered, dtype=np.int64),
    )


def _check_begun(program: Program, outcome: Outcome, events: Events, console: str) -> None:
    """See that the program got through its set-up, and that no step was refused.

    :raise Unsupported: driver or kernel cannot do what the set-up asks.
    :raise GuestLost: a step failed, or the guest died before the first one.
    """
    begun = events["subject"][events["kind"] == Kind.STEP_BEGIN]
    if outcome.end is None:
        if not len(begun) or begun.max() < program.first_step:
            last = console.strip().splitlines()[-1:] or ["none"]
            raise GuestLost(
                f"the guest died before the first step: {outcome.death}; last line of its log: {last[0]}"
            )
        return
    if outcome.end.error:
        where = program.describe(outcome.end.steps_done)
        why = os.strerror(-outcome.end.error)
        step = outcome.end.steps_done
        coalesce = program.steps["kind"][step] == StepKind.COALESCE
        asked = step < program.first_step or coalesce
        # A moderation that is longer than the device's registers have room for is an invalid argument.
        refusals = NOT_SUPPORTED | {errno.EINVAL} if coalesce else NOT_SUPPORTED
        if -outcome.end.error in refusals and asked:
            raise Unsupported(f"driver or kernel refuses {where}: {why}")
        raise GuestLost(f"{where} failed: {why}")


def host_steps(program: Program, events: Events) -> list[tuple[int, HostStep]]:
    """Return what the host did and in which step, in order: the barriers that were reached."""
    done = events["subject"][events["kind"] == Kind.STEP_END]
    barriers = done[program.steps["kind"][done] == StepKind.HOST].tolist()
    return [(number, program.actions[int(program.steps["a"][number])]) for number in barriers]


def _judged(request: Request, watch: _Watch, trace: Trace, frames_on_wire: int) -> Result:
    rules = judge(trace, request.rules or None, request.waivers)
    judged = {rule.id for rule in rules}
    known = all_rules()
    must_exercise = [
        name
        for name in request.scenario.must_exercise
        if name in judged
        and binds(name, trace.driver)
        and not (watch.clock == "real" and known[name].virtual_only)
    ]
    judgement = judge_run(rules, must_exercise, trace.lost)
    return _result(
        request,
        watch,
        verdict=judgement.verdict,
        error=judgement.error,
        rules=rules,
        counters=count(trace, frames_on_wire),
        trace=TraceRecord(
            events=len(trace.events), lost=trace.lost, sequence_digest=sequence_digest(trace.events)
        ),
    )


def _result(request: Request, watch: _Watch, *, verdict: Verdict, **fields: object) -> Result:
    kernel = request.kernel
    return Result(
        verdict=verdict,
        kernel=KernelRecord(
            name=kernel.name,
            release=kernel.release,
            package=kernel.package,
            variants=kernel.variants,
            patches=kernel.patches,
            asked=kernel.asked,
            contents=[change.key for change in kernel.changes],
        ),
        nic=request.nic.name,
        driver=request.nic.driver,
        scenario=request.scenario.name,
        settings=msgspec.to_builtins(request.scenario.settings),
        clock=watch.clock,
        accelerator=watch.accelerator,
        timings=watch.timings(),
        reproduce=request.reproduce,
        program=msgspec.to_builtins(request.scenario),
        **fields,  # type: ignore[arg-type] # each caller names fields of Result
    )
