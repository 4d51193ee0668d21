"""What a device model is to the server, and what the server is to it. No protocol in here, and no NIC.

A model is a :class:`Device`: it declares its PCI face and answers reads and writes of its registers. Everything else
it does (moving frames, raising interrupts) it does from callbacks that its :class:`Host` calls: a timer's, the wire's.

That split is what lets a model run in two ways. Free-running, callbacks come as soon as they are due. Stepped, they
come only while the guest stands still at a barrier, and :meth:`Host.now_ns` is the guest's clock. So ``read`` and
``write`` change registers, and start work with ``host.call_at(0, ...)``; they never move frames themselves.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from testbed.vfio_user.events import DeviceEvent

__all__ = [
    "Bar",
    "Capability",
    "Command",
    "Declaration",
    "Device",
    "DmaFault",
    "Express",
    "Host",
    "Identity",
    "Memory",
    "Msi",
    "MsiX",
    "PowerManagement",
    "Timer",
    "Wire",
]


class DmaFault(Exception):
    """The device was told to access memory that is not the guest's: a master abort on a real bus."""

    def __init__(self, address: int, length: int) -> None:
        super().__init__(f"{length} bytes at {address:#x} are not mapped")
        self.address = address
        self.length = length


# The PCI face


@dataclass(frozen=True)
class Identity:
    """Who the device is (PCI Local Bus Specification 3.0, 6.2.1).

    :param class_code: 24 bits: class, subclass, interface. 0x020000 is an Ethernet controller.
    """

    vendor: int
    device: int
    class_code: int = 0x020000
    revision: int = 0
    subsystem_vendor: int = 0
    subsystem: int = 0


@dataclass(frozen=True)
class Bar:
    """One base address register.

    :param index: 0 to 5; a 64-bit BAR takes the next index too.
    :param size_bytes: a power of two, at least 16 (memory) or 4 (I/O), at most 1 GiB.
    """

    index: int
    size_bytes: int
    io: bool = False
    wide: bool = False  # 64 bits
    prefetchable: bool = False


@dataclass(frozen=True)
class PowerManagement:
    """The power management capability, with D0 and D3hot."""


@dataclass(frozen=True)
class Msi:
    """Message signalled interrupts with 64-bit addresses.

    :param vectors: 1, 2, 4, 8 or 16; QEMU's client fails with 32.
    """

    vectors: int = 1


@dataclass(frozen=True)
class MsiX:
    """MSI-X; QEMU keeps table and pending bits itself, so the model never sees accesses to them.

    :param vectors: 1 to 2048. :param bar: where both lie, at multiples of 8 bytes.
    """

    vectors: int
    bar: int
    table_offset: int
    pba_offset: int


@dataclass(frozen=True)
class Express:
    """The PCI Express capability of an endpoint."""


Capability: TypeAlias = PowerManagement | Msi | MsiX | Express


@dataclass(frozen=True)
class Declaration:
    """Everything that the guest finds in the configuration space.

    :param capabilities: in the order in which the guest finds them.
    :param intx: whether the device has an interrupt pin, INTA.
    """

    identity: Identity
    bars: tuple[Bar, ...]
    capabilities: tuple[Capability, ...] = ()
    intx: bool = True


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="command"):
    """A word of the ``device`` step; a NIC's words derive from it, each with its tag and its checked fields."""


# What a model is handed


class Memory(Protocol):
    """The guest's memory as the device reaches it.

    ``generation`` is another number after each change of what is mapped: a model that keeps views looks at it before it
    uses one, and asks again when it has changed. A view kept longer reads and writes memory that the guest may use for
    something else, never anything outside the guest.
    """

    @property
    def generation(self) -> int:
        """Return the number of changes so far."""

    def view(self, address: int, length: int) -> memoryview:
        """Return ``length`` writable bytes (format B) at a bus address.

        Read descriptors by ``view.cast("I")``: aligned words are loaded and stored whole.

        :raise DmaFault: a byte is not mapped, the range crosses two mappings, or bus mastering is off.
        """


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Let it not come; once it came, nothing."""


class Wire(Protocol):
    """The device's cable: frames without FCS, each at most 69,632 bytes."""

    def listen(self, receive: Callable[[Sequence[bytes]], None], ready: Callable[[], None]) -> None:
        """Name what is called with frames that came, and what is called when the wire is no longer congested."""

    def pause(self) -> None:
        """Take no more frames: what comes waits in the socket. ``receive`` may still get those already read."""

    def resume(self) -> None:
        """Take frames again."""

    def send(self, frame: bytes | bytearray | memoryview) -> None:
        """Put a frame on the wire; it is copied. While the wire is congested, frames are lost instead.

        :raise ValueError: the frame is empty or too long.
        """

    @property
    def congested(self) -> bool:
        """Whether the other side does not keep up: stop sending until ``ready`` is called."""


class Host(Protocol):
    """The server, as a model sees it."""

    @property
    def mac(self) -> bytes:
        """Return the address that the NIC is to have, 6 bytes."""

    @property
    def memory(self) -> Memory:
        """Return the guest's memory."""

    @property
    def wire(self) -> Wire:
        """Return the cable."""

    @property
    def interrupts(self) -> Literal["none", "intx", "msi", "msix"]:
        """Return which kind the guest has enabled."""

    def interrupt(self, vector: int = 0) -> None:
        """Send a message, MSI or MSI-X; nothing when the guest has enabled neither, or not this vector."""

    def level(self, *, high: bool) -> None:
        """Set the level of INTA. While it stays high, the guest is interrupted again after each end of interrupt."""

    def now_ns(self) -> int:
        """Return the time: monotonic, or the guest's when the model is stepped."""

    def call_at(self, when_ns: int, callback: Callable[[], None]) -> Timer:
        """Call once when :meth:`now_ns` has reached ``when_ns``; calls due at the same time come in their order."""

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call whenever ``fd`` is readable."""

    def unwatch(self, fd: int) -> None:
        """Watch it no more; do so before it is closed."""

    def record(self, kind: DeviceEvent, queue: int = 0, a: int = 0, b: int = 0, c: int = 0) -> None:
        """Add a row to the device's half of the trace; each number is cut to its field's width."""


class Device(abc.ABC):
    """A device model.

    Its methods are called from one thread. What a guest can do must never make one raise, wait or loop for long: ring
    lengths, addresses and descriptors are the guest's and hostile; :class:`DmaFault` is the model's to catch.
    An exception that escapes ends the process, and the run is broken.

    :param host: what it may use, from the first moment to the last.
    """

    declaration: ClassVar[Declaration]
    commands: ClassVar[tuple[type[Command], ...]] = ()

    def __init__(self, host: Host) -> None:
        self.host = host

    @abc.abstractmethod
    def read(self, bar: int, offset: int, size: int) -> int:
        """Return a register.

        :param size: 1, 2, 4 or 8 bytes, aligned, within the BAR.
        """

    @abc.abstractmethod
    def write(self, bar: int, offset: int, size: int, value: int) -> None:
        """Take a write to a register; parameters as :meth:`read`'s, ``value`` unsigned."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Become what it was when it was made; timers that run are cancelled by the model."""

    @abc.abstractmethod
    def save(self) -> bytes:
        """Return everything that :meth:`load` needs to go on, in another process.

        There, :meth:`Host.now_ns` has nothing to do with what it was: keep what timers have left to run.
        """

    @abc.abstractmethod
    def load(self, state: bytes) -> None:
        """Go on from what :meth:`save` returned.

        :raise ValueError: it is no such thing.
        """

    def plug(self, *, connected: bool) -> None:
        """Put the cable in, or pull it: what a ``link`` step asks; the guest stands still.

        :raise ValueError: this device cannot lose its link.
        """
        raise ValueError(f"{type(self).__name__} has no link to lose, seen a wish for {connected=}")

    def command(self, command: Command) -> None:
        """Do what a ``device`` step asks, one of :attr:`commands`; the guest stands still."""
        raise NotImplementedError(type(command).__name__)
