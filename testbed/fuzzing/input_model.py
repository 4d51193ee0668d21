"""An input: bytes on one side, a base and steps on the other.

The first byte chooses the base; each three further ones are a step: its word and two operands. Every byte string means
a scenario that is valid: what does not fit is taken modulo, an incomplete step and what exceeds a limit are left out.
Operands stand for numbers near the edges of rings and budgets: up to 128 each number has a byte of its own, and above
there are only the edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from testbed.fuzzing.bases import BASES
from testbed.scenario.model import Scenario
from testbed.scenario.steps import (
    Bind,
    CompDrain,
    Fill,
    Inject,
    RxDrain,
    Set,
    Sleep,
    SnapshotRings,
    StackSend,
    Threaded,
    Tx,
    TxKick,
    Wakeup,
)
from testbed.scenario.unroll import unroll

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from testbed.fuzzing.bases import Base
    from testbed.scenario.steps import AnyStep, Step

__all__ = ["MAX_BYTES", "MAX_STEPS", "REST", "STEP_BYTES", "WORDS", "Input", "decode", "encode", "nearest"]

STEP_BYTES = 3
MAX_STEPS = 48
MAX_BYTES = 1 + MAX_STEPS * STEP_BYTES
MAX_FRAMES = 2000  # injected and transmitted by one input
MAX_SLEEP_US = 200_000

_LITERALS = 128
_LARGE = (129, 191, 192, 193, 255, 256, 257, 511, 512, 513)
_FRAME_BYTES = (64, 60, 61, 128, 256, 1024, 1513, 1514)
_VERDICTS: tuple[Literal["redirect", "pass", "drop", "tx"], ...] = ("redirect", "pass", "drop", "tx")
_SLEEPS_US = (1000, 1, 10, 50, 100, 200, 500, 900, 1100, 1900, 2000, 3000, 5000, 10_000, 20_000)
_DEFERRALS = (0, 1, 2, 3, 8, 100, 2**31 - 1)
_TIMEOUTS_NS = (0, 1, 1000, 20_000, 200_000, 1_000_000, 10_000_000, 10**9)


class Word(NamedTuple):
    """One kind of step: how it is made of two operands, each 0 to 255, and which operands make a given one."""

    name: str
    make: Callable[[int, int], AnyStep]
    operands: Callable[[Any], tuple[int, int]]


def _count(operand: int) -> int:
    return operand + 1 if operand < _LITERALS else _LARGE[(operand - _LITERALS) % len(_LARGE)]


def _of_count(count: int) -> int:
    return count - 1 if count <= _LITERALS else _LITERALS + _at(_LARGE, count)


def _amount(operand: int) -> int | Literal["all"]:
    return "all" if operand == 0 else _count(operand - 1)


def _of_amount(amount: int | Literal["all"]) -> int:
    return 0 if amount == "all" else 1 + _of_count(amount)


def _pick(table: tuple[int, ...], operand: int) -> int:
    return table[operand % len(table)]


def _at(table: tuple[int, ...], value: int) -> int:
    """Return where the table has the value, or what is nearest to it."""
    return min(range(len(table)), key=lambda index: abs(table[index] - value))


def _inject(a: int, b: int) -> Inject:
    verdict = _VERDICTS[b // len(_FRAME_BYTES) % len(_VERDICTS)]
    return Inject(count=_count(a), bytes=_pick(_FRAME_BYTES, b), verdict=verdict)


def _of_inject(step: Inject) -> tuple[int, int]:
    verdict = _VERDICTS.index(step.verdict or "redirect")
    return _of_count(step.total), verdict * len(_FRAME_BYTES) + _at(_FRAME_BYTES, step.bytes)


#: The order is part of the input format: append only.
WORDS = (
    Word("inject", _inject, _of_inject),
    Word("rx_drain", lambda a, _: RxDrain(count=_amount(a)), lambda s: (_of_amount(s.count), 0)),
    Word("fill", lambda a, _: Fill(count=_amount(a)), lambda s: (_of_amount(s.count), 0)),
    Word("wakeup", lambda a, _: Wakeup(side="tx" if a % 2 else "rx"), lambda s: (int(s.side == "tx"), 0)),
    Word("sleep_us", lambda a, _: Sleep(us=_pick(_SLEEPS_US, a)), lambda s: (_at(_SLEEPS_US, s.us), 0)),
    Word(
        "tx",
        lambda a, b: Tx(count=_count(a), bytes=_pick(_FRAME_BYTES, b)),
        lambda s: (_of_count(s.count), _at(_FRAME_BYTES, s.bytes)),
    ),
    Word("tx_kick", lambda _a, _b: TxKick(), lambda _: (0, 0)),
    Word("comp_drain", lambda a, _: CompDrain(count=_amount(a)), lambda s: (_of_amount(s.count), 0)),
    Word("snapshot_rings", lambda _a, _b: SnapshotRings(), lambda _: (0, 0)),
    Word(
        "set",
        lambda a, b: Set(napi_defer_hard_irqs=_pick(_DEFERRALS, a), gro_flush_timeout=_pick(_TIMEOUTS_NS, b)),
        lambda s: (_at(_DEFERRALS, s.napi_defer_hard_irqs or 0), _at(_TIMEOUTS_NS, s.gro_flush_timeout or 0)),
    ),
    Word(
        "stack_send",
        lambda a, b: StackSend(count=_count(a), bytes=_pick(_FRAME_BYTES, b)),
        lambda s: (_of_count(s.count), _at(_FRAME_BYTES, s.bytes)),
    ),
    Word("threaded", lambda a, _: Threaded(on=bool(a % 2)), lambda s: (int(s.on), 0)),
    Word("bind", lambda _a, _b: Bind(), lambda _: (0, 0)),
)
_NUMBERS = {word.name: number for number, word in enumerate(WORDS)}

#: What follows each input: knobs back, then to rest, so that the next one, and the rules, find nothing on its way.
REST = (
    Set(napi_defer_hard_irqs=0, gro_flush_timeout=0),
    Sleep(us=2000),
    RxDrain(),
    Fill(),
    Wakeup(side="rx"),
    TxKick(),
    Sleep(us=2000),
    RxDrain(),
    CompDrain(),
    Fill(),
    Wakeup(side="rx"),
    Sleep(us=2000),
    RxDrain(),
    Fill(),
    SnapshotRings(),
)


@dataclass(frozen=True)
class Input:
    """What one execution does: from a base, these steps."""

    base: Base
    steps: tuple[AnyStep, ...]

    def scenario(self, name: str) -> Scenario:
        """Return the scenario that does the same from the start: set-up, the base's steps, these, and rest."""
        return Scenario(
            name=name,
            about=f"found by fuzzing from the base {self.base.name}",
            settings=self.base.settings,
            steps=(*self.base.steps, *self.steps, *REST),
        )

    def body(self) -> Scenario:
        """Return the scenario of what a guest that stands at the base still has to do."""
        return Scenario(name="input", settings=self.base.settings, steps=(*self.steps, *REST))


def decode(data: bytes) -> Input:
    """Return what any bytes mean."""
    base = BASES[data[0] % len(BASES)] if data else BASES[0]
    triples = (data[at : at + STEP_BYTES] for at in range(1, len(data) - STEP_BYTES + 1, STEP_BYTES))
    steps = (WORDS[word % len(WORDS)].make(a, b) for word, a, b in triples)
    return Input(base, tuple(_within_limits(base, steps)))


def _within_limits(base: Base, steps: Iterable[AnyStep]) -> Iterator[AnyStep]:
    frames, slept_us = 0, 0
    for step in islice(steps, MAX_STEPS):
        fitted = _fitted(base, step)
        frames += fitted.count if isinstance(fitted, (StackSend, Tx)) else 0
        frames += fitted.total if isinstance(fitted, Inject) else 0
        slept_us += fitted.us if isinstance(fitted, Sleep) else 0
        if frames > MAX_FRAMES or slept_us > MAX_SLEEP_US:
            return
        yield fitted


def _fitted(base: Base, step: AnyStep) -> AnyStep:
    """Return the step as the base's settings allow it."""
    if isinstance(step, Tx):
        return Tx(count=min(step.count, base.settings.umem_chunks), bytes=step.bytes)
    if isinstance(step, Inject) and base.settings.verdict != "by_frame":
        return Inject(count=step.total, bytes=step.bytes)
    return step


def encode(found: Input) -> bytes:
    """Return bytes that mean this input, or what is nearest to it; :func:`decode` undoes it for its own inputs."""
    return _bytes_of(found.base, found.steps)


def _bytes_of(base: Base, steps: Iterable[Step]) -> bytes:
    data = bytearray([BASES.index(base)])
    for step in steps:
        number = _NUMBERS[str(step.__struct_config__.tag)]
        data += bytes((number, *WORDS[number].operands(step)))
    return bytes(data)


def nearest(scenario: Scenario) -> Input:
    """Return the input nearest to a scenario: the base most like its settings, and the steps that have a word."""
    base = max(BASES, key=lambda base: _likeness(base, scenario))
    steps = (written.step for written in unroll(scenario))
    worded = (step for step in steps if str(step.__struct_config__.tag) in _NUMBERS)
    return decode(_bytes_of(base, islice(worded, MAX_STEPS)))


def _likeness(base: Base, scenario: Scenario) -> int:
    theirs, ours = scenario.settings, base.settings
    return sum(getattr(theirs, name) == getattr(ours, name) for name in theirs.__struct_fields__)
