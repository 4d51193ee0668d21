"""The process of one device model: a client's socket, testbed's control channel, the wire, and the model in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Union

import msgspec

from testbed.vfio_user.connection import Connection, Disconnected
from testbed.vfio_user.control import (
    Advance,
    Answer,
    CatchUp,
    Follow,
    Freeze,
    Load,
    Plug,
    Question,
    RestoreTable,
    Run,
    Save,
    Start,
    Tell,
    encode,
    receive,
)
from testbed.vfio_user.events import DeviceEvent
from testbed.vfio_user.follower import Follower
from testbed.vfio_user.interrupts import Interrupts
from testbed.vfio_user.loop import Loop, Restless
from testbed.vfio_user.memory import GuestMemory
from testbed.vfio_user.recorder import Recorder
from testbed.vfio_user.session import Session
from testbed.vfio_user.state import State
from testbed.vfio_user.wire import StreamWire

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from testbed.vfio_user.device import Command, Device, Timer

__all__ = ["Channels", "Server"]


@dataclass(frozen=True)
class Channels:
    """What the process was started with.

    :param listener: a listening socket, at which QEMU will knock.
    :param control: a stream socket to testbed. :param wire: the cable, a stream socket.
    :param events: descriptor of the memory for the device's half of the trace.
    """

    listener: socket.socket
    control: socket.socket | None = None
    wire: socket.socket | None = None
    events: int | None = None


class Server:
    """Makes the device and is its :class:`testbed.vfio_user.device.Host`.

    :param mac: the address that the NIC is to have, 6 bytes.
    """

    def __init__(self, model: type[Device], channels: Channels, mac: bytes) -> None:
        self.mac = mac
        self.memory = GuestMemory()
        self._channels = channels
        self._loop = Loop()
        self._interrupts = Interrupts(model.declaration, self._loop)
        self._session = Session(model.declaration, self.memory, self._interrupts, self._send)
        self._recorder = Recorder(channels.events, self.memory)
        self._connection: Connection | None = None
        self.wire = StreamWire(channels.wire, self._loop)
        # The hottest three, without a call between.
        self.now_ns = self._loop.now_ns
        self.call_at: Callable[[int, Callable[[], None]], Timer] = self._loop.call_at
        self.watch, self.unwatch = self._loop.watch, self._loop.unwatch
        self.device = model(self)
        self._session.attach(self.device)
        self._state = State(model.declaration, self._session, self._send)
        self._commands: msgspec.json.Decoder[Any] | None = (
            msgspec.json.Decoder(Union[model.commands]) if model.commands else None  # noqa: UP007 - a tuple of types
        )
        self._questions: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Question)
        self._loop.serve(channels.listener.fileno(), self._accept)
        if channels.control:
            self._loop.serve(channels.control.fileno(), self._hear)

    def serve(self) -> None:
        """Serve one client until it or testbed is gone."""
        try:
            self._loop.run()
        except Disconnected:
            return
        finally:
            self.close()

    def turn(self, wait_s: float = 0) -> None:
        """Serve what is there, for one turn; for those that have a loop of their own.

        :raise Disconnected: the client is gone.
        """
        self._loop.turn(wait_s)

    def close(self) -> None:
        """Forget the client and everything it gave."""
        self._session.end()
        if self._connection:
            self._connection.close()
        self._loop.close()

    # The host of the device

    @property
    def interrupts(self) -> Literal["none", "intx", "msi", "msix"]:
        """See the protocol."""
        return self._interrupts.mode

    def interrupt(self, vector: int = 0) -> None:
        """See the protocol."""
        if self._session.follower:
            self._session.follower.interrupt(vector)
        else:
            self._send_interrupt(vector)

    def _send_interrupt(self, vector: int) -> None:
        sent = self._interrupts.message(vector)
        self.record(DeviceEvent.RAISED, vector, int(sent))

    def level(self, *, high: bool) -> None:
        """See the protocol."""
        if high != self._interrupts.high and self._interrupts.level(high=high):
            self.record(DeviceEvent.RAISED, 0, 1)

    def record(self, kind: DeviceEvent, queue: int = 0, a: int = 0, b: int = 0, c: int = 0) -> None:
        """See the protocol."""
        self._recorder.record(self._loop.now_ns(), kind, queue, a, b, c)

    # The client

    def _accept(self) -> None:
        sock, _ = self._channels.listener.accept()
        if self._connection:
            sock.close()  # one device, one client
            return
        self._connection = Connection(sock, self._session)
        self._loop.serve(sock.fileno(), self._connection.receive)

    def _send(self, message: bytes) -> None:
        if self._connection:
            self._connection.send(message)

    # Testbed

    def _hear(self) -> None:
        """Answer one question; testbed's end is the end."""
        control = self._channels.control
        if control is None:
            return
        try:
            question = self._questions.decode(receive(control))
        except EOFError:
            self._loop.stop()
            return
        if self._connection:
            self._connection.drain()  # what the guest wrote before it was stopped comes first
        try:
            answer = self._do(question)
        except (ValueError, Restless) as error:
            answer = Answer(error=" ".join(str(error).split()))
        if answer:
            self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        if self._channels.control:
            self._channels.control.sendall(encode(answer))

    def _do(self, question: Question) -> Answer | None:
        """Do what is asked; None: the answer comes when the client's has come."""
        match question:
            case Save():
                self._state.save(self.device, self._saved)
                return None
            case RestoreTable():
                self._state.restore_table(lambda error: self._answer(Answer(error=error)))
                return None
            case Load():
                self._loop.freeze()  # what it would do now it could not: it reaches no memory before its BARs are back
                self.wire.serve()
                self._state.load(self.device, question.state)
            case Plug():
                self.device.plug(connected=question.connected)
            case Tell():
                self._tell(question.command)
            case _:
                return self._keep_time(question)
        return Answer()

    def _keep_time(self, question: Question) -> Answer:
        """Do what is asked about the device's time."""
        match question:
            case Start():
                self._recorder.start(question.position)
            case Freeze():
                self._loop.freeze()
                self.wire.serve()
            case Run():
                if not self._session.follower:
                    self._loop.run_freely()
                self.wire.serve()
            case Follow():
                self._loop.freeze()
                self._session.follower = Follower(
                    self._loop, self.memory, question.position, self._send_interrupt
                )
                self._session.follower.tell()
            case CatchUp():
                if self._session.follower:
                    self._session.follower.at_stop()
            case Advance():
                return Answer(next_ns=self._loop.advance(question.by_ns))
        return Answer()

    def _saved(self, state: bytes, error: str) -> None:
        self._answer(Answer(error=error, state=state, dwords=self._session.config.saved_dwords()))

    def _tell(self, words: msgspec.Raw) -> None:
        if self._commands is None:
            raise ValueError(f"{type(self.device).__name__} has no commands")
        command: Command = self._commands.decode(words)
        self.record(DeviceEvent.COMMAND)
        self.device.command(command)
