"""The words of a scenario: what a step is called, what it takes, and which records it becomes.

A new step is a class here and a member of :data:`AnyStep`; reading, saving, checking and compiling follow.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

from msgspec import Meta

from testbed.scenario.host_steps import MAX_BARRIER_FRAMES, DeviceStep, HostStep, Inject, Link
from testbed.scenario.program import ALL, MAX_STEPS, Setting, StepKind
from testbed.scenario.settings import NicRing
from testbed.scenario.step import FrameBytes, JumboBytes, Record, Step

__all__ = [
    "MAX_BARRIER_FRAMES",
    "STEPS",
    "AnyStep",
    "CompDrain",
    "DeviceStep",
    "Fill",
    "HostStep",
    "Inject",
    "Link",
    "Netconsole",
    "Record",
    "Repeat",
    "RxDrain",
    "Set",
    "Sleep",
    "SnapshotRings",
    "Step",
    "Tx",
    "TxKick",
    "Wakeup",
    "describe",
]

MAX_CHUNKS = 65536  # TB_MAX_CHUNKS of images/agent/protocol.h

Amount: TypeAlias = (
    Annotated[int, Meta(ge=1, le=MAX_CHUNKS, description="how many, or all there are")] | Literal["all"]
)


class RxDrain(Step, frozen=True, tag="rx_drain"):
    """Take received frames from the RX ring, check them, and own their chunks."""

    bare: ClassVar[str] = "count"
    needs_socket: ClassVar[bool] = True
    count: Amount = "all"

    def records(self) -> tuple[Record, ...]:
        """Return one RX_DRAIN."""
        return (Record(StepKind.RX_DRAIN, number(self.count)),)


class Fill(Step, frozen=True, tag="fill"):
    """Post free chunks to the FILL ring."""

    bare: ClassVar[str] = "count"
    needs_socket: ClassVar[bool] = True
    count: Amount = "all"

    def records(self) -> tuple[Record, ...]:
        """Return one FILL."""
        return (Record(StepKind.FILL, number(self.count)),)


class Tx(Step, frozen=True, tag="tx"):
    """Submit numbered frames to the TX ring, without telling the kernel."""

    bare: ClassVar[str] = "count"
    needs_socket: ClassVar[bool] = True
    count: Annotated[int, Meta(ge=1, le=MAX_CHUNKS, description="frames submitted, each in a free chunk")]
    bytes: FrameBytes = 64

    def records(self) -> tuple[Record, ...]:
        """Return one TX."""
        return (Record(StepKind.TX, self.count, a=self.bytes),)


class TxKick(Step, frozen=True, tag="tx_kick"):
    """Tell the kernel to send, whatever need_wakeup says."""

    needs_socket: ClassVar[bool] = True

    def records(self) -> tuple[Record, ...]:
        """Return one TX_KICK."""
        return (Record(StepKind.TX_KICK),)


class CompDrain(Step, frozen=True, tag="comp_drain"):
    """Take sent chunks back from the COMPLETION ring."""

    bare: ClassVar[str] = "count"
    needs_socket: ClassVar[bool] = True
    count: Amount = "all"

    def records(self) -> tuple[Record, ...]:
        """Return one COMP_DRAIN."""
        return (Record(StepKind.COMP_DRAIN, number(self.count)),)


class Wakeup(Step, frozen=True, tag="wakeup"):
    """Wake the kernel where the ring's need_wakeup flag asks for it, or the socket polls busily."""

    bare: ClassVar[str] = "side"
    needs_socket: ClassVar[bool] = True
    side: Annotated[Literal["rx", "tx"], Meta(description="rx looks at FILL, tx at TX")]

    def records(self) -> tuple[Record, ...]:
        """Return one WAKEUP_RX or WAKEUP_TX."""
        return (Record(StepKind.WAKEUP_RX if self.side == "rx" else StepKind.WAKEUP_TX),)


class Sleep(Step, frozen=True, tag="sleep_us"):
    """Let time pass in the guest; frames enter the NIC at the next whole millisecond."""

    bare: ClassVar[str] = "us"
    us: Annotated[int, Meta(ge=1, le=10_000_000, description="microseconds of the guest's clock")]

    def records(self) -> tuple[Record, ...]:
        """Return one SLEEP."""
        return (Record(StepKind.SLEEP, a=self.us),)


class Set(Step, frozen=True, tag="set"):
    """Turn knobs of the interface; those not named stay as they are."""

    napi_defer_hard_irqs: (
        Annotated[int, Meta(ge=0, le=2**31 - 1, description="empty polls before the unmask")] | None
    ) = None
    gro_flush_timeout: (
        Annotated[int, Meta(ge=0, le=10**9, description="nanoseconds between deferred polls, 0: off")] | None
    ) = None
    byte_queue_limit: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=10**9,
                description="bytes of the stack's in flight in a Tx queue; 1 stops it after each frame",
            ),
        ]
        | None
    ) = None

    def records(self) -> tuple[Record, ...]:
        """Return one SET per named knob, in the order of the fields."""
        knobs = (
            (Setting.NAPI_DEFER_HARD_IRQS, self.napi_defer_hard_irqs),
            (Setting.GRO_FLUSH_TIMEOUT, self.gro_flush_timeout),
            (Setting.BYTE_QUEUE_LIMIT, self.byte_queue_limit),
        )
        return tuple(Record(StepKind.SET, a=knob, b=value) for knob, value in knobs if value is not None)


class SnapshotRings(Step, frozen=True, tag="snapshot_rings"):
    """Record the rings, their flags, the socket's statistics and who owns the chunks."""

    def records(self) -> tuple[Record, ...]:
        """Return one SNAPSHOT_RINGS."""
        return (Record(StepKind.SNAPSHOT_RINGS),)


class Xdp(Step, frozen=True, tag="xdp"):
    """Attach the XDP program of the settings, or detach it."""

    bare: ClassVar[str] = "action"
    action: Annotated[Literal["attach", "detach"], Meta(description="what is done with the program")]

    def records(self) -> tuple[Record, ...]:
        """Return one XDP_ATTACH, whose operands are the settings', or XDP_DETACH."""
        return (Record(StepKind.XDP_ATTACH if self.action == "attach" else StepKind.XDP_DETACH),)


class Bind(Step, frozen=True, tag="bind"):
    """Make a new UMEM and bind a socket to the queue, as the settings say; one that is bound is closed first."""

    needs_socket: ClassVar[bool] = True

    def records(self) -> tuple[Record, ...]:
        """Return UMEM and BIND, whose operands are the settings'."""
        return (Record(StepKind.UMEM), Record(StepKind.BIND))


class Unbind(Step, frozen=True, tag="unbind"):
    """Close the socket and give its UMEM back."""

    needs_socket: ClassVar[bool] = True

    def records(self) -> tuple[Record, ...]:
        """Return one UNBIND."""
        return (Record(StepKind.UNBIND),)


class RingSize(Step, frozen=True, tag="ring_size"):
    """Change the NIC's rings while it runs."""

    rx: Annotated[NicRing, Meta(description="Rx descriptors")]
    tx: Annotated[NicRing, Meta(description="Tx descriptors")]

    def records(self) -> tuple[Record, ...]:
        """Return one RINGS."""
        return (Record(StepKind.RINGS, a=self.rx, b=self.tx),)


class Mtu(Step, frozen=True, tag="mtu"):
    """Change the interface's MTU."""

    bare: ClassVar[str] = "bytes"
    bytes: Annotated[int, Meta(ge=68, le=9000, description="of the largest packet, without Ethernet header")]

    def records(self) -> tuple[Record, ...]:
        """Return one MTU."""
        return (Record(StepKind.MTU, a=self.bytes),)


class Interface(Step, frozen=True, tag="interface"):
    """Take the interface down, or bring it up and wait for its carrier."""

    bare: ClassVar[str] = "state"
    state: Annotated[Literal["up", "down"], Meta(description="of the interface")]

    def records(self) -> tuple[Record, ...]:
        """Return one INTERFACE."""
        return (Record(StepKind.INTERFACE, a=int(self.state == "up")),)


class Coalesce(Step, frozen=True, tag="coalesce"):
    """Change the NIC's interrupt moderation."""

    rx_usecs: Annotated[
        int, Meta(ge=0, le=10_000, description="microseconds; 0: none, 1 and 3: adaptive on Intel")
    ]
    tx_usecs: Annotated[
        int, Meta(ge=0, le=100_000, description="the same for Tx, where it has a vector of its own")
    ]
    tx_frames: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=256,
                description="frames sent for each interrupt on completion; 0: none, the driver's timer alone",
            ),
        ]
        | None
    ) = None
    at_most: Annotated[
        bool,
        Meta(description="true: a half, a quarter and so on of the microseconds, down to none, is enough"),
    ] = False

    def records(self) -> tuple[Record, ...]:
        """Return one COALESCE."""
        frames = 0 if self.tx_frames is None else self.tx_frames + 1
        return (Record(StepKind.COALESCE, int(self.at_most), a=self.rx_usecs, b=self.tx_usecs, c=frames),)


class Threaded(Step, frozen=True, tag="threaded"):
    """Let NAPI be polled by kernel threads, or by softirq again."""

    bare: ClassVar[str] = "on"
    on: Annotated[bool, Meta(description="true: by threads")]

    def records(self) -> tuple[Record, ...]:
        """Return one THREADED."""
        return (Record(StepKind.THREADED, a=int(self.on)),)


class StackSend(Step, frozen=True, tag="stack_send"):
    """Send numbered frames through the stack, as an ordinary program does."""

    bare: ClassVar[str] = "count"
    count: Annotated[int, Meta(ge=1, le=10_000, description="frames; a full queue takes fewer")]
    bytes: JumboBytes = 64

    def records(self) -> tuple[Record, ...]:
        """Return one STACK_SEND."""
        return (Record(StepKind.STACK_SEND, self.count, a=self.bytes),)


class LogLine(Step, frozen=True, tag="log_line"):
    """Write a line to the kernel's log, to find one's way in it."""

    bare: ClassVar[str] = "text"
    text: Annotated[
        str, Meta(min_length=1, max_length=24, pattern=r"^[ -~]+\Z", description="printable ASCII")
    ]

    def records(self) -> tuple[Record, ...]:
        """Return one LOG_LINE."""
        words = (
            int.from_bytes(self.text.encode()[at : at + 8].ljust(8, b"\0"), "little") for at in (0, 8, 16)
        )
        return (Record(StepKind.LOG_LINE, 0, *words),)


class Netconsole(Step, frozen=True, tag="netconsole"):
    """Send the kernel's log over the NIC under test, as netconsole does, or no longer.

    netpoll, which it sends with, polls every NAPI of the interface with a budget of 0 when a Tx queue is stopped.
    """

    bare: ClassVar[str] = "on"
    on: Annotated[bool, Meta(description="true: each line of the log becomes a frame")]

    def records(self) -> tuple[Record, ...]:
        """Return one NETCONSOLE."""
        return (Record(StepKind.NETCONSOLE, a=int(self.on)),)


class Repeat(Step, frozen=True, tag="repeat"):
    """The same steps several times; the compiler writes them out."""

    times: Annotated[int, Meta(ge=1, le=MAX_STEPS, description="how often the steps run")]
    steps: Annotated[tuple[AnyStep, ...], Meta(min_length=1, description="what is repeated")]


AnyStep: TypeAlias = (
    Inject
    | Link
    | DeviceStep
    | RxDrain
    | Fill
    | Tx
    | TxKick
    | CompDrain
    | Wakeup
    | Sleep
    | Set
    | SnapshotRings
    | Xdp
    | Bind
    | Unbind
    | RingSize
    | Mtu
    | Interface
    | Coalesce
    | Threaded
    | StackSend
    | LogLine
    | Netconsole
    | Repeat
)
STEPS: dict[str, type[Step]] = {str(step.__struct_config__.tag): step for step in get_args(AnyStep)}


def number(amount: int | Literal["all"]) -> int:
    """Return the amount as a record's count."""
    return ALL if amount == "all" else amount


def describe(step: Step) -> str:
    """Return the step in one line, much as users write it: ``rx_drain all``, ``tx count=32 bytes=64``."""
    word = str(step.__struct_config__.tag)
    if isinstance(step, DeviceStep):
        return " ".join([word, step.command, *(f"{name}={value}" for name, value in step.arguments.items())])
    if isinstance(step, Inject) and step.hex:
        return f"{word} {step.total} frames of your own"
    values = {name: getattr(step, name) for name in step.__struct_fields__}
    given = [(name, value) for name, value in values.items() if value is not None]
    if isinstance(step, Repeat):
        return f"{word} times={step.times}"
    if len(given) == 1 and given[0][0] == step.bare:
        return f"{word} {given[0][1]}"
    return " ".join([word, *(f"{name}={value}" for name, value in given)])
