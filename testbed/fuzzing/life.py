"""A live guest that goes from input to input: restored once, then a few inputs one after the other.

All that ran since the set-up is one long trace, so that rules about who owns which chunk see where each came from.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from testbed.guest import Conductor, Outcome, restored_base, runtime_directory
from testbed.guest.channel import End
from testbed.rules import judge
from testbed.run import trace_of
from testbed.scenario import Program, compile_program
from testbed.scenario.program import StepKind
from testbed.trace.events import EVENT, Kind

if TYPE_CHECKING:
    from types import TracebackType

    import numpy.typing as npt

    from testbed.fuzzing.bases import Base
    from testbed.fuzzing.input_model import Input
    from testbed.guest import Blueprint
    from testbed.rules.outcome import RuleResult
    from testbed.run import Request
    from testbed.trace import Trace

__all__ = ["Execution", "Life"]

SETTLE_LIMIT_S = 5.0


@dataclass(frozen=True)
class Execution:
    """What one input did.

    :param trace: everything since the guest's set-up, the input last. :param events: the input's own rows.
    """

    trace: Trace
    events: npt.NDArray[np.void]
    rules: list[RuleResult]
    console: str


class Life:
    """A guest restored from a base; as a context manager it ends with the context.

    :param request: its scenario is of no account.
    :param blueprint: with the probe, if coverage is wanted.
    :raise Unsupported: driver or kernel cannot be set up as the base asks.
    """

    def __init__(self, request: Request, blueprint: Blueprint, base: Base) -> None:
        self.base = base
        self.inputs: list[Input] = []
        self._request = replace(request, scenario=base.scenario())
        self._program = compile_program(base.scenario())
        self._frames: list[bytes] = []
        with ExitStack() as stack:
            directory = stack.enter_context(runtime_directory())
            self._guest, past = stack.enter_context(
                restored_base(request.toolchain, blueprint, directory, self._program)
            )
            self._stack = stack.pop_all()
        self._conductor = Conductor(self._guest)
        self._past = np.frombuffer(past, dtype=EVENT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the guest."""
        self._stack.close()

    def execute(self, found: Input, timeout_s: float) -> Execution:
        """Run an input and judge all that was done so far.

        :raise GuestLost: QEMU is gone, or a step of the input was refused.
        """
        self.inputs.append(found)
        program = _joined(self._program, compile_program(found.body()))
        begun = len(self._program.steps)
        body = Program(program.steps[begun:], program.actions, program.sources[begun:], 0)
        outcome = self._conductor.run(body, timeout_s)
        machine = self._guest.machine
        machine.wire.settle(SETTLE_LIMIT_S)
        self._frames += machine.wire.take_all()
        console = machine.console_text()
        events = np.frombuffer(outcome.events, dtype=EVENT).copy()
        steps = np.isin(events["kind"], (Kind.STEP_BEGIN, Kind.STEP_END))
        events["subject"][steps] += begun
        self._program, self._past = program, np.concatenate([self._past, events])
        whole = Outcome(
            self._past.tobytes(), outcome.lost, _later(outcome.end, begun), outcome.death, outcome.device
        )
        trace = trace_of(self._request, "virtual", program, whole, self._frames, console)
        rules = judge(trace, self._request.rules or None, self._request.waivers)
        return Execution(trace, events, rules, console)


def _joined(first: Program, second: Program) -> Program:
    """Return one program that does both, the set-up of the second left out."""
    steps = second.steps[second.first_step :].copy()
    steps["a"][steps["kind"] == StepKind.HOST] += len(first.actions)
    later = {number + len(first.actions): action for number, action in second.actions.items()}
    return Program(
        np.concatenate([first.steps, steps]),
        {**first.actions, **later},
        first.sources + second.sources[second.first_step :],
        first.first_step,
    )


def _later(end: End | None, steps: int) -> End | None:
    return End(end.steps_done + steps, end.error) if end else None
