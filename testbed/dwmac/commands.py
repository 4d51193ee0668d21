"""The words of the ``device`` step for this NIC: what a test can make the device do."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from testbed.dwmac.registers import CHANNELS
from testbed.vfio_user import Command

__all__ = [
    "COMMANDS",
    "BusError",
    "Complete",
    "Delay",
    "Hold",
    "Pause",
    "Release",
    "Resume",
    "Spoil",
    "Spurious",
    "Stall",
    "Steer",
    "Tail",
    "Unplug",
]

Direction: TypeAlias = Annotated[Literal["rx", "tx"], Meta(description="rx or tx")]
Queue: TypeAlias = Annotated[int, Meta(ge=0, lt=CHANNELS, description="the queue, and its DMA channel")]


class Hold(Command, frozen=True, tag="hold"):
    """Send no interrupt until ``release``."""


class Release(Command, frozen=True, tag="release"):
    """Send interrupts again, first those that are still to be told."""


class Stall(Command, frozen=True, tag="stall"):
    """Complete no descriptor until ``resume`` or ``complete``."""

    direction: Direction
    queue: Queue = 0


class Resume(Command, frozen=True, tag="resume"):
    """Complete descriptors again, all that there are."""

    direction: Direction
    queue: Queue = 0


class Complete(Command, frozen=True, tag="complete"):
    """Complete exactly so many descriptors, then stall; those that are not there yet complete when they come."""

    direction: Direction
    count: Annotated[int, Meta(ge=1, le=1024, description="descriptors")]
    queue: Queue = 0


class Delay(Command, frozen=True, tag="delay"):
    """Complete each descriptor so much later than it could be."""

    direction: Direction
    us: Annotated[int, Meta(ge=0, le=1_000_000, description="microseconds of the model's clock; 0: at once")]
    queue: Queue = 0


class Spoil(Command, frozen=True, tag="spoil"):
    """Do something to the next frames: lose them, damage them, or report them with an error.

    A received frame can have a wrong CRC, an overrun, a wrong length, a receive watchdog or an error of the medium,
    as when its beginning was handed on before that was known; a sent one an underflow.
    """

    direction: Direction
    what: Annotated[
        Literal["drop", "corrupt", "crc", "overrun", "length", "watchdog", "receive", "underflow"],
        Meta(description="what is done to each"),
    ]
    count: Annotated[int, Meta(ge=1, le=10_000, description="frames")] = 1
    after: Annotated[int, Meta(ge=0, le=10_000, description="frames before them that are left alone")] = 0
    queue: Queue = 0


class Spurious(Command, frozen=True, tag="spurious"):
    """Send an interrupt without a cause."""

    direction: Direction
    queue: Queue = 0


class BusError(Command, frozen=True, tag="bus_error"):
    """Let the channel's next access fail: a fatal bus error, after which the channel stands still."""

    direction: Direction
    queue: Queue = 0


class Unplug(Command, frozen=True, tag="unplug"):
    """Pull the cable after so many more frames of either direction; ``link: up`` puts it in again."""

    after: Annotated[int, Meta(ge=0, le=10_000, description="frames that still get through")]


class Tail(Command, frozen=True, tag="tail"):
    """Say how the device knows which Rx descriptors are its own."""

    honoured: Annotated[
        bool, Meta(description="true: by OWN and tail pointer, as at the start; false: by OWN")
    ]


class Steer(Command, frozen=True, tag="steer"):
    """Send received frames to a queue, whatever the filters would say."""

    queue: Annotated[int, Meta(ge=0, lt=CHANNELS, description="the queue; null: as the filters say")] | None


class Pause(Command, frozen=True, tag="pause"):
    """Say whether the link partner obeys pause frames, from now on; what it does not obey overflows a full FIFO."""

    on: Annotated[bool, Meta(description="true: it does, as at the start")]


COMMANDS: tuple[type[Command], ...] = (
    Hold,
    Release,
    Stall,
    Resume,
    Complete,
    Delay,
    Spoil,
    Spurious,
    BusError,
    Unplug,
    Tail,
    Steer,
    Pause,
)
