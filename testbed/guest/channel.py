"""What the agent says to the host; images/agent/protocol.h lays it out.

A message is a header and ``count`` records of ``record_bytes`` each, all numbers little-endian. The other direction is
:mod:`testbed.guest.memory`: the host writes its program into the agent's mailbox.
"""

from __future__ import annotations

import contextlib
import enum
import queue
import socket
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from testbed.errors import GuestLost

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["Barrier", "Channel", "End", "Exited", "Message", "MessageType", "Ready", "program_message"]

MAGIC = 0x44454254
VERSION = 1
ACTION_DEVICE = 0xFFFFFFFF  # TB_ACTION_DEVICE
HEADER = struct.Struct("<IHHII")
MAX_MESSAGE_BYTES = 1 << 20


class MessageType(enum.IntEnum):
    """What a message carries."""

    READY = 1
    PAGES = 2
    PROGRAM = 3
    BARRIER = 4
    END = 5
    FAILURE = 6
    STDOUT = 7
    STDERR = 8
    EXITED = 9


_OF_PROGRAM = {MessageType.STDOUT, MessageType.STDERR, MessageType.EXITED}


@dataclass(frozen=True)
class Message:
    """One message of the agent: its records as they came."""

    type: MessageType
    count: int
    record_bytes: int
    payload: bytes

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Decode the message's only record.

        :raise GuestLost: it has another size.
        """
        if len(self.payload) != layout.size:
            raise GuestLost(
                f"the agent's {self.type.name} message has {len(self.payload)} bytes, expected {layout.size}",
                "the cached image is not of this testbed: run `testbed setup --refresh`",
            )
        return layout.unpack(self.payload)

    def __str__(self) -> str:
        if self.type is MessageType.FAILURE:
            return f"the agent gave up: {self.payload.decode(errors='replace')}"
        return f"a message of type {self.type.name}"


@dataclass(frozen=True)
class Ready:
    """The agent waits for a program.

    :param mac: 6 bytes. :param max_events: rows of the table of events.
    """

    step_bytes: int
    event_bytes: int
    max_events: int
    ifindex: int
    mailbox_pages: int
    event_pages: int
    mac: bytes
    driver: str
    release: str

    LAYOUT = struct.Struct("<6I8s32s64s")

    @classmethod
    def of(cls, message: Message) -> Self:
        """Decode the message.

        :raise GuestLost: it has another size.
        """
        step, event, events, ifindex, mailbox, pages, mac, driver, release = message.unpack(cls.LAYOUT)
        return cls(step, event, events, ifindex, mailbox, pages, mac[:6], _text(driver), _text(release))


@dataclass(frozen=True)
class Barrier:
    """The agent stopped the machine in step ``step``; the host is to do its action number ``action``."""

    step: int
    action: int

    LAYOUT = struct.Struct("<II")

    @property
    def for_device(self) -> bool:
        """Whether the host has nothing to do itself: the device model is to act."""
        return self.action == ACTION_DEVICE

    @classmethod
    def of(cls, message: Message) -> Self:
        """Decode the message.

        :raise GuestLost: it has another size.
        """
        return cls(*message.unpack(cls.LAYOUT))


@dataclass(frozen=True)
class End:
    """The program ended: after all its steps, or at step ``steps_done`` with ``error``, a negative errno."""

    steps_done: int
    error: int

    LAYOUT = struct.Struct("<Ii")

    @classmethod
    def of(cls, message: Message) -> Self:
        """Decode the message.

        :raise GuestLost: it has another size.
        """
        return cls(*message.unpack(cls.LAYOUT))


@dataclass(frozen=True)
class Exited:
    """The user's program ended; ``status`` is what wait(2) says of it."""

    status: int

    LAYOUT = struct.Struct("<i")

    @classmethod
    def of(cls, message: Message) -> Self:
        """Decode the message.

        :raise GuestLost: it has another size.
        """
        return cls(*message.unpack(cls.LAYOUT))


def program_message(steps: bytes, count: int) -> bytes:
    """Return what belongs into the agent's mailbox: a header and ``count`` step records."""
    return HEADER.pack(MAGIC, VERSION, MessageType.PROGRAM, count, len(steps) // max(count, 1)) + steps


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="replace")


class Channel:
    """The host's end of the port that the agent writes messages to.

    A thread reads all the time, so that QEMU never waits for us.

    :param sock: a connected stream socket, whose other end QEMU has; it is closed with the channel.
    """

    def __init__(self, sock: socket.socket) -> None:
        #: Called in the channel's thread with what concerns the user's program: its output, its end, in order.
        self.on_program: Callable[[Message], None] = _forget
        self._sock = sock
        self._messages: queue.Queue[Message | GuestLost] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name="agent-channel", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # the other end may have gone first
            self._sock.shutdown(socket.SHUT_RDWR)
        self._reader.join(timeout=5)
        self._sock.close()

    def receive(self, timeout_s: float) -> Message:
        """Return the agent's next message.

        :raise GuestLost: none came within ``timeout_s``, or what came is not one.
        """
        try:
            message = self._messages.get(timeout=timeout_s)
        except queue.Empty as error:
            raise GuestLost(f"the agent sent no message within {timeout_s:g} s") from error
        if isinstance(message, GuestLost):
            self._messages.put(message)
            raise message
        return message

    def expect(self, kind: MessageType, timeout_s: float) -> Message:
        """Return the agent's next message, which must be of this kind.

        :raise GuestLost: it is not, or none came.
        """
        message = self.receive(timeout_s)
        if message.type is not kind:
            raise GuestLost(f"expected {kind.name} from the agent, got {message}")
        return message

    def _take(self, message: Message) -> None:
        if message.type in _OF_PROGRAM:
            self.on_program(message)
        else:
            self._messages.put(message)

    def _read(self) -> None:
        try:
            with self._sock.makefile("rb") as stream:
                while header := stream.read(HEADER.size):
                    self._take(_parse(header, stream.read))
        except GuestLost as error:
            self._messages.put(error)
        except OSError as error:
            self._messages.put(GuestLost(f"the agent's channel broke: {error}"))
        else:
            self._messages.put(GuestLost("QEMU closed the agent's channel"))


def _forget(_message: Message) -> None:
    """Take a message that nobody waits for."""


def _parse(header: bytes, read: Callable[[int], bytes]) -> Message:
    if len(header) != HEADER.size:
        raise GuestLost("the agent's channel ended within a message")
    magic, version, kind, count, record_bytes = HEADER.unpack(header)
    if magic != MAGIC or version != VERSION or kind not in set(MessageType):
        raise GuestLost(
            f"expected a message of version {VERSION} from the agent, "
            f"got magic {magic:#x}, version {version}, type {kind}"
        )
    size = count * record_bytes
    if size > MAX_MESSAGE_BYTES:
        raise GuestLost(f"the agent announced a message of {size} bytes, at most {MAX_MESSAGE_BYTES} allowed")
    payload = read(size)
    if len(payload) != size:
        raise GuestLost(f"the agent's channel ended after {len(payload)} of {size} bytes of a message")
    return Message(MessageType(kind), count, record_bytes, payload)
