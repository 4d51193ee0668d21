"""The process that plays the NIC: started before QEMU, asked through its own channel, watched, ended with the guest."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Self

import msgspec

from testbed.errors import GuestLost
from testbed.nic import GUEST_MAC
from testbed.toolchain.host import mortal
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
ANSWER_LIMIT_S = 30.0
LOOK_MS = 1000
END_LIMIT_S = 5.0
EVENT_ROWS = 1 << 18  # as many as the guest's own
EVENT_BYTES = HEADER_BYTES + EVENT_ROWS * ROW.size


class DeviceModel:
    """A running device model.

    QEMU finds its socket through a descriptor of the directory: a path of any length, in any sandbox.

    :param name: the model, as :attr:`testbed.nic.Nic.model` names it.
    :param directory: for its socket and its log; must exist and be ours alone.
    :param wire: its end of the cable; stays the caller's.
    """

    def __init__(self, name: str, directory: Path, wire: socket.socket) -> None:
        self._log = directory / "model.log"
        self._asking = threading.Lock()
        self._answers = msgspec.json.Decoder(Answer)
        self._stack = contextlib.ExitStack()
        try:
            self._start(name, directory, wire)
        except BaseException:
            self._stack.close()
            raise

    def _start(self, name: str, directory: Path, wire: socket.socket) -> None:
        enter = self._stack.enter_context
        self.directory_fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._stack.callback(os.close, self.directory_fd)
        listener = enter(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(f"/proc/self/fd/{self.directory_fd}/{MODEL_SOCKET}")
        listener.listen(1)
        self._control, theirs = (enter(end) for end in socket.socketpair())
        self.events_fd = os.memfd_create("device-events", os.MFD_CLOEXEC)
        self._stack.callback(os.close, self.events_fd)
        os.ftruncate(self.events_fd, EVENT_BYTES)
        channels = {
            "--listener": listener.fileno(),
            "--control": theirs.fileno(),
            "--wire": wire.fileno(),
            "--events": self.events_fd,
        }
        options = [str(word) for pair in channels.items() for word in pair]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                mortal([sys.executable, "-P", "-m", "testbed.vfio_user", name, *options, "--mac", GUEST_MAC]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=list(channels.values()),
                start_new_session=True,
            )
        self._stack.callback(self._end_process)
        theirs.close()
        listener.close()

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
        self._control.settimeout(limit_s)
        try:
            self._control.sendall(encode(question))
            return self._answers.decode(receive(self._control))
        except TimeoutError:
            raise GuestLost(f"the device model did not answer within {limit_s:g} s") from None
        except (EOFError, OSError):
            raise GuestLost(f"the device model died: {self._last_words()}") from None

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        if lines:
            return lines[-1]
        try:
            status = self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            return "it closed its control channel"
        return f"status {status}" if status >= 0 else f"signal {-status}"

    def _end_process(self) -> None:
        self._process.kill()  # what it knows is ours or QEMU's
        self._process.wait(END_LIMIT_S)
