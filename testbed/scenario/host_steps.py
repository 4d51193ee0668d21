"""The steps that the host does while the guest stands still at a barrier."""

from __future__ import annotations

import builtins
from typing import Annotated, ClassVar, Literal, TypeAlias

from msgspec import Meta

from testbed.scenario.program import StepKind
from testbed.scenario.step import JumboBytes, Record, Step

__all__ = ["MAX_BARRIER_FRAMES", "DeviceStep", "HostStep", "Inject", "Link"]

MAX_BARRIER_FRAMES = 10_000  # QEMU's filter-buffer drops what lies beyond this


class HostStep(Step, frozen=True):
    """A step that the host does while the guest stands still at a barrier."""

    brings_frames: ClassVar[bool] = False

    def records(self) -> tuple[Record, ...]:
        """Return the barrier; the compiler gives it its number."""
        return (Record(StepKind.HOST, b=int(self.brings_frames)),)


Texts: TypeAlias = Annotated[tuple[str, ...], Meta(min_length=1)]


class Inject(HostStep, frozen=True, tag="inject"):
    """Frames enter the guest's wire, all at one instant: numbered ones, or your own with a number behind them."""

    bare: ClassVar[str] = "count"
    brings_frames: ClassVar[bool] = True
    count: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_BARRIER_FRAMES,
                description="frames at one instant; QEMU drops more than 10000: split them by sleep_us: 1000",
            ),
        ]
        | None
    ) = None
    bytes: JumboBytes = 64
    verdict: Annotated[
        Literal["redirect", "pass", "drop", "tx"] | None,
        Meta(description="what these frames ask of the XDP program, where the setting verdict is by_frame"),
    ] = None
    frames: Annotated[
        Texts | None,
        Meta(description="a scapy expression such as Ether()/IP()/UDP(dport=9), or a list of them"),
    ] = None
    pcap: Annotated[
        Annotated[str, Meta(max_length=4096)] | None,
        Meta(description="a capture; its path counts from the scenario's file"),
    ] = None
    hex: Annotated[
        Texts | None,
        Meta(description="frames in hexadecimal; frames and pcap become this when a scenario is read"),
    ] = None

    @property
    def total(self) -> int:
        """How many frames enter."""
        return self.count or len(self.hex or ())

    def own(self) -> list[builtins.bytes]:
        """Return the frames of your own as they were written: each once, or in turn until there are ``count``."""
        given = [builtins.bytes.fromhex(text) for text in self.hex or ()]
        return [given[index % len(given)] for index in range(self.total)] if given else []


class Link(HostStep, frozen=True, tag="link"):
    """Take the NIC's link down or bring it up, as if a cable were pulled or put in."""

    bare: ClassVar[str] = "state"
    state: Annotated[Literal["up", "down"], Meta(description="of the link")]


class DeviceStep(HostStep, frozen=True, tag="device"):
    """Tell the device model what to do; which commands there are and what they take is the NIC's to say."""

    bare: ClassVar[str] = "command"
    command: Annotated[str, Meta(pattern=r"^[a-z_]{1,32}\Z", description="a word of the NIC under test")]
    arguments: Annotated[
        dict[str, int | bool | str | None], Meta(description="what the command takes, beside the command")
    ] = {}  # noqa: RUF012 - msgspec copies it
