"""What testbed tells the process of a device model, and what it answers: JSON behind a length, over a stream socket."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Advance",
    "Answer",
    "CatchUp",
    "Follow",
    "Freeze",
    "Load",
    "Ping",
    "Plug",
    "Question",
    "RestoreTable",
    "Run",
    "Save",
    "Start",
    "Tell",
    "await_beginning",
    "begin",
    "encode",
    "receive",
]

LENGTH = struct.Struct("<I")
MAX_BYTES = 64 << 20  # a saved device


class _Question(msgspec.Struct, frozen=True, tag_field="ask"):
    """Each is answered by one :class:`Answer`, in order."""


class Ping(_Question, frozen=True, tag="ping"):
    """Is anybody there?"""


class Save(_Question, frozen=True, tag="save"):
    """Return what :class:`Load` needs; the guest stands still."""


class Load(_Question, frozen=True, tag="load"):
    """Be the device that was saved, and stand still until Run."""

    state: bytes


class RestoreTable(_Question, frozen=True, tag="restore_table"):
    """Write the table of MSI-X, which lies with QEMU, as it was: after Load, once the device can reach memory."""


class Start(_Question, frozen=True, tag="start"):
    """Begin an empty table of events; ``position`` is the physical address of the guest's count of its own."""

    position: int


class Freeze(_Question, frozen=True, tag="freeze"):
    """Do nothing by yourself, and let your clock stand: the guest stands still too."""


class Run(_Question, frozen=True, tag="run"):
    """Act by yourself again: the guest goes on."""


class Advance(_Question, frozen=True, tag="advance"):
    """Frozen, do all that is due in so many nanoseconds."""

    by_ns: int


class Follow(_Question, frozen=True, tag="follow"):
    """Live in the guest's time from now on, frozen as you are: act when the guest accesses you and when told to catch
    up; send interrupts only then. ``position`` is the physical address of its struct tb_position.
    """

    position: int


class CatchUp(_Question, frozen=True, tag="catch_up"):
    """Following, do all that is due by now; the guest stands still."""


class Plug(_Question, frozen=True, tag="plug"):
    """Put the cable in, or pull it."""

    connected: bool


class Tell(_Question, frozen=True, tag="tell"):
    """Do what a ``device`` step asks: one of the model's commands, as JSON."""

    command: msgspec.Raw


Question: TypeAlias = (
    Ping | Save | Load | RestoreTable | Start | Freeze | Run | Follow | CatchUp | Advance | Plug | Tell
)


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a question.

    :param error: why it was not done, one line.
    :param state: of Save. :param dwords: of Save: what of the configuration space to keep: offsets, in the order in
        which to write them back; before the last, which may switch MSI-X on, comes RestoreTable.
    :param next_ns: of Advance: in how many nanoseconds the device has something to do again by itself.
    """

    error: str = ""
    state: bytes = b""
    dwords: list[int] = []
    next_ns: int | None = None


def encode(message: Question | Answer) -> bytes:
    """Return a message as it goes over the socket."""
    body = msgspec.json.encode(message)
    return LENGTH.pack(len(body)) + body


class _Beginning(msgspec.Struct):
    """The first message: what the process is for. Descriptors come with it, see :func:`begin`."""

    mac: str


def begin(sock: socket.socket, mac: str, fds: Sequence[int]) -> None:
    """Send a process that waits for it what it needs to serve.

    :param fds: a listening socket, the wire, memory for events.
    """
    socket.send_fds(sock, [msgspec.json.encode(_Beginning(mac))], fds)


def await_beginning(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Return the MAC address and the descriptors that :func:`begin` sent.

    :raise EOFError: the other side is gone.
    """
    data, fds, _, _ = socket.recv_fds(sock, 1024, 3)
    if not data:
        raise EOFError("the other side closed")
    mac = msgspec.json.decode(data, type=_Beginning).mac
    return bytes.fromhex(mac.replace(":", "")), fds


def receive(sock: socket.socket) -> bytes:
    """Return the body of the next message from a blocking socket.

    :raise EOFError: the other side is gone, or says what cannot be a message.
    :raise TimeoutError: it did not come within the socket's timeout.
    """
    (size,) = LENGTH.unpack(_exactly(sock, LENGTH.size))
    if size > MAX_BYTES:
        raise EOFError(f"a message of {size} bytes")
    return _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            piece = sock.recv(min(size - len(data), 1 << 20))
        except TimeoutError:
            raise
        except OSError as error:
            raise EOFError(str(error)) from error
        if not piece:
            raise EOFError("the other side closed")
        data += piece
    return bytes(data)
