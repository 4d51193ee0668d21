"""What every step is: a word with fields, and the records it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from testbed.scenario.program import StepKind

__all__ = ["MAX_FRAME_BYTES", "MIN_FRAME_BYTES", "FrameBytes", "JumboBytes", "Record", "Step"]

MIN_FRAME_BYTES = 60
MAX_FRAME_BYTES = 1514
MAX_JUMBO_BYTES = 9014

FrameBytes: TypeAlias = Annotated[
    int,
    Meta(
        ge=MIN_FRAME_BYTES,
        le=MAX_FRAME_BYTES,
        description="bytes of a frame without FCS, 1514 at most (MTU 1500)",
    ),
]
JumboBytes: TypeAlias = Annotated[
    int,
    Meta(
        ge=MIN_FRAME_BYTES,
        le=MAX_JUMBO_BYTES,
        description="bytes of a frame without FCS; the interface takes 1514 unless mtu lets it take more",
    ),
]


@dataclass(frozen=True, slots=True)
class Record:
    """One row of a program, its queue aside; see :class:`testbed.scenario.program.StepKind`."""

    kind: StepKind
    count: int = 0
    a: int = 0
    b: int = 0
    c: int = 0


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="step"):
    """A step; its tag is the word that users write."""

    bare: ClassVar[str] = ""  # the field meant by `- word: value`
    needs_socket: ClassVar[bool] = False  # makes sense only while an AF_XDP socket is bound

    def records(self) -> tuple[Record, ...]:
        """Return what the agent runs for this step, in order."""
        raise NotImplementedError
