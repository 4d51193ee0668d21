"""What a worker does with each input: a live guest runs it, the rules judge it, its coverage is counted."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from testbed.errors import GuestError, Unsupported
from testbed.fuzzing.bases import bases_for
from testbed.fuzzing.counters import Counters
from testbed.fuzzing.features import FEATURES, features_of
from testbed.fuzzing.findings import Finding, keep, name_of
from testbed.fuzzing.input_model import REST, decode
from testbed.fuzzing.leaders import leaders_of
from testbed.fuzzing.life import Life
from testbed.fuzzing.plugin import build_plugin
from testbed.guest import Probe
from testbed.preparation import blueprint_of, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.fuzzing.bases import Base
    from testbed.fuzzing.input_model import Input
    from testbed.fuzzing.life import Execution
    from testbed.run import Request
    from testbed.scenario import Scenario

__all__ = ["Session", "Status"]

LIFE_INPUTS = 16
LIVES = 2  # guests that wait, stopped, each at its own base
INPUT_LIMIT_S = 60.0
STATUS_EVERY_S = 1.0
MOST_REFUSED = 20  # in a row: then it is not the inputs
FATAL = {"guest-alive", "kernel-clean"}  # a guest that is dead, or has said once what it says only once


class Status(msgspec.Struct, frozen=True, tag="status"):
    """How far a worker is.

    :param executions: inputs run. :param refused: those that the guest did not carry out, or died of.
    :param blocks: basic blocks reached. :param features: of traces.
    :param restores: guests restored. :param confirming_s: seconds spent on findings.
    """

    executions: int = 0
    refused: int = 0
    blocks: int = 0
    features: int = 0
    restores: int = 0
    confirming_s: float = 0.0


class Seen(msgspec.Struct, frozen=True, tag="seen"):
    """A violation; ``finding`` when it is the first of its kind."""

    name: str
    finding: Finding | None = None


@dataclass(eq=False)
class _Living:
    """A live guest, and the rules it has already violated: all that follows in it violates them again."""

    life: Life
    known: set[str]


class Session:
    """The state of a worker.

    :param findings: the directory that gets them.
    :param tell: given each :class:`Status` and :class:`Seen`.
    :param home: where findings will lie in the end, if elsewhere.
    :raise TestbedError: the guest or its plugin cannot be made.
    """

    def __init__(
        self, request: Request, findings: str, tell: Callable[[Status | Seen], None], home: str = ""
    ) -> None:
        self._request, self.findings, self._tell = request, Path(findings), tell
        self._home = Path(home or findings)
        self._blueprint = blueprint_of(
            request.toolchain, request.kernel, request.nic, shape_of(request.toolchain, "virtual")
        )
        self._bases = bases_for(request.nic, request.kernel.version)
        if request.nic.model:
            raise Unsupported(
                f"{request.nic.name} cannot be fuzzed: a device model plays it, and a live guest needs QEMU's own",
                "see `testbed list nics`",
            )
        if not self._bases:
            raise Unsupported(
                f"{request.nic.name} on {request.kernel.release} cannot be fuzzed: it has no zero copy",
                "see `testbed list nics`",
            )
        driver = request.kernel.module_closure(request.nic.modules)[-1]
        leaders = leaders_of(request.toolchain, self._blueprint, driver)
        self.addresses = np.fromfile(leaders, dtype="<u8")
        self.blocks = Counters(len(self.addresses))
        self.features = Counters(FEATURES)
        probe = Probe(build_plugin(request.toolchain), leaders, self.blocks.fd)
        self._blueprint = replace(self._blueprint, probe=probe)
        self._lives: dict[str, _Living] = {}
        self._reached = np.zeros(len(self.addresses), dtype=np.bool_)
        self._featured = np.zeros(FEATURES, dtype=np.bool_)
        self._told_s = time.monotonic()
        self._refused_in_a_row = 0
        self.status = Status()

    def one(self, data: bytes) -> None:
        """Run one input; whatever goes wrong with its guest is counted, and the next one gets a fresh guest."""
        found = decode(data)
        if found.base not in self._bases:
            return
        try:
            living = self._living(found.base)
            execution = living.life.execute(found, INPUT_LIMIT_S)
        except GuestError:
            self._end(found.base)
            self._refused_in_a_row += 1
            if self._refused_in_a_row > MOST_REFUSED:
                raise
            self._count(refused=self.status.refused + 1)
            return
        self._refused_in_a_row = 0
        self._note(execution)
        self._judge(living, execution, data)
        if len(living.life.inputs) >= LIFE_INPUTS or FATAL & living.known or execution.trace.lost:
            self._end(found.base)
        self._count()

    def close(self) -> None:
        """End all guests and say the last word."""
        for name in list(self._lives):
            self._lives.pop(name).life.close()
        self._tell(self.status)

    def _living(self, base: Base) -> _Living:
        living = self._lives.pop(base.name, None)
        if living is None:
            while len(self._lives) >= LIVES:
                self._lives.pop(next(iter(self._lives))).life.close()
            living = _Living(Life(self._request, self._blueprint, base), set())
            self.status = msgspec.structs.replace(self.status, restores=self.status.restores + 1)
        self._lives[base.name] = living  # the last one used is the last
        return living

    def _end(self, base: Base) -> None:
        if living := self._lives.pop(base.name, None):
            living.life.close()

    def _note(self, execution: Execution) -> None:
        found = features_of(execution.events, execution.rules)
        self.features.values[found] = 1
        self._featured[found] = True
        self._reached |= self.blocks.values > 0

    def _judge(self, living: _Living, execution: Execution, data: bytes) -> None:
        for rule in execution.rules:
            if rule.outcome != "violated" or rule.id in living.known:
                continue
            living.known.add(rule.id)
            name = name_of(rule, execution.trace)
            finding = None
            if not (self.findings / name).exists():
                since = time.monotonic()
                tries = _scenarios(living.life.base, living.life.inputs, name)
                finding = keep(self.findings, self._request, rule, name, tries, data, self._home)
                spent = self.status.confirming_s + time.monotonic() - since
                self.status = msgspec.structs.replace(self.status, confirming_s=round(spent, 1))
            self._tell(Seen(name, finding))

    def _count(self, **changes: int) -> None:
        self.status = msgspec.structs.replace(
            self.status,
            executions=self.status.executions + 1,
            blocks=int(self._reached.sum()),
            features=int(self._featured.sum()),
            **changes,
        )
        if time.monotonic() - self._told_s > STATUS_EVERY_S:
            self._told_s = time.monotonic()
            self._tell(self.status)


def _scenarios(base: Base, inputs: list[Input], name: str) -> list[tuple[Scenario, int]]:
    """Return what may show a finding again: the last input alone, or all that its guest went through; with counts."""
    alone = inputs[-1].scenario(name)
    if len(inputs) == 1:
        return [(alone, 1)]
    steps = [step for each in inputs for step in (*each.steps, *REST)]
    return [(alone, 1), (msgspec.structs.replace(alone, steps=(*base.steps, *steps)), len(inputs))]
