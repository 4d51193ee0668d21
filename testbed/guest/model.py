"""The process that plays the NIC: started before QEMU, asked through its own channel, watched, ended with the guest."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket
import threading
from typing import TYPE_CHECKING, Self

import msgspec

from testbed.errors import GuestLost
from testbed.guest.spare import take, warm
from testbed.nic import GUEST_MAC
from testbed.vfio_user.control import Answer, Ping, Question, Start, encode, receive
from testbed.vfio_user.events import ROW
from testbed.vfio_user.recorder import HEADER, HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

__all__ = ["MODEL_SOCKET", "STALL_LIMIT_S", "DeviceModel"]

MODEL_SOCKET = "nic"
STALL_LIMIT_S = 5.0  # QEMU's x-msg-timeout: beyond it a late answer makes the device useless
ANSWER_LIMIT_S = 8.0  # with the run's end within 10 s of the moment at which a model stood still
LOOK_MS = 1000
END_LIMIT_S = 5.0
EVENT_ROWS = 1 << 18  # as many as the guest's own
EVENT_BYTES = HEADER_BYTES + EVENT_ROWS * ROW.size


class DeviceModel:
    """A running device model.

    QEMU finds its socket through a descriptor of the directory: a path of any length, in any sandbox.

    :param name: the model, as :attr:`testbed.nic.Nic.model` names it.
    :param directory: for its socket; must exist and be ours alone.
    :param wire: its end of the cable; stays the caller's.
    """

    def __init__(self, name: str, directory: Path, wire: socket.socket) -> None:
        self._asking = threading.Lock()
        self._lost = ""  # why it is asked no more: a late answer would pass for that to the next question
        self._answers = msgspec.json.Decoder(Answer)
        self._name = name
        self._stack = contextlib.ExitStack()
        try:
            self._start(directory, wire)
        except BaseException:
            self._stack.close()
            raise

    def _start(self, directory: Path, wire: socket.socket) -> None:
        self.directory_fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._stack.callback(os.close, self.directory_fd)
        self.events_fd = os.memfd_create("device-events", os.MFD_CLOEXEC)
        self._stack.callback(os.close, self.events_fd)
        os.ftruncate(self.events_fd, EVENT_BYTES)
        self._process = self._stack.enter_context(contextlib.closing(take(self._name)))
        self._control = self._process.control
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(f"/proc/self/fd/{self.directory_fd}/{MODEL_SOCKET}")
            listener.listen(1)
            try:
                self._process.begin(GUEST_MAC, [listener.fileno(), wire.fileno(), self.events_fd])
            except OSError:
                raise self._died() from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def pid(self) -> int:
        """The model's process."""
        return self._process.pid

    def ask(self, question: Question, limit_s: float = ANSWER_LIMIT_S) -> Answer:
        """Return the model's answer.

        :raise GuestLost: it died, did not answer in time, or could not do what was asked.
        """
        with self._asking:
            answer = self._ask(question, limit_s)
        if answer.error:
            raise GuestLost(f"the device model could not {type(question).__name__.lower()}: {answer.error}")
        return answer

    def start_events(self, position: int) -> None:
        """Begin an empty table of events.

        :param position: physical address of the guest's count of its own, struct tb_position.
        :raise GuestLost: the model is gone.
        """
        self.ask(Start(position))

    def events(self) -> tuple[bytes, int]:
        """Return the rows of the table of events so far, and how many found no place; also of a model that died."""
        with mmap.mmap(self.events_fd, EVENT_BYTES, prot=mmap.PROT_READ) as table:
            head, lost = HEADER.unpack_from(table)
            return table[HEADER_BYTES : HEADER_BYTES + min(head, EVENT_ROWS) * ROW.size], lost

    def watch(self, lost: Callable[[str], None]) -> None:
        """From now on, look after the model in a thread, and say once how it was lost."""
        warm(self._name, again=True)
        stop = os.eventfd(0, os.EFD_CLOEXEC)
        thread = threading.Thread(target=self._watch, args=(stop, lost), name="device-model", daemon=True)
        thread.start()

        def end() -> None:
            os.eventfd_write(stop, 1)
            thread.join()
            os.close(stop)

        self._stack.callback(end)

    def _watch(self, stop: int, lost: Callable[[str], None]) -> None:
        poller = select.poll()
        poller.register(stop, select.POLLIN)
        poller.register(self._control, 0)  # its end is told always
        while True:
            ready = [fd for fd, _ in poller.poll(LOOK_MS)]
            if stop in ready:
                return
            if not self._asking.acquire(timeout=0 if not ready else END_LIMIT_S):
                continue  # somebody else is waiting for an answer, with a limit
            try:
                self._ask(Ping(), STALL_LIMIT_S)
            except GuestLost as error:
                lost(str(error))
                return
            finally:
                self._asking.release()

    def _ask(self, question: Question, limit_s: float) -> Answer:
        if self._lost:
            raise GuestLost(self._lost)
        self._control.settimeout(limit_s)
        try:
            self._control.sendall(encode(question))
            return self._answers.decode(receive(self._control))
        except TimeoutError:
            self._lost = f"the device model did not answer within {limit_s:g} s"
            raise GuestLost(self._lost) from None
        except (EOFError, OSError):
            died = self._died()
            self._lost = str(died)
            raise died from None

    def _died(self) -> GuestLost:
        return GuestLost(f"the device model died: {self._process.last_words()}")
