"""A person's terminal, joined to a serial port of a guest."""

from __future__ import annotations

import os
import select
import termios
import threading
import tty
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

__all__ = ["LEAVE", "JoinedTerminal"]

LEAVE = b"\x1d"  # Ctrl-], as telnet has it
_PIECE_BYTES = 4096


class JoinedTerminal:
    """While the context lasts, what is typed goes to the port, key by key, and what the port says is shown.

    :param terminal: file descriptor of the terminal, for both directions.
    :param port: what to join it with; stays open.
    :param leave: called from another thread when :data:`LEAVE` is typed, or the terminal has hung up.
    """

    def __init__(self, terminal: int, port: socket.socket, leave: Callable[[], None]) -> None:
        self._terminal = terminal
        self._port = port
        self._leave = leave
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._relay, name="terminal", daemon=True)

    def __enter__(self) -> Self:
        self._settings = termios.tcgetattr(self._terminal)
        tty.setraw(self._terminal)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)
        with suppress(termios.error):  # it has hung up
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._settings)

    def _relay(self) -> None:
        """Copy both ways until told to stop, then what the port still has; the thread's body."""
        files = [self._terminal, self._port.fileno(), self._stop]
        try:
            while True:
                ready, _, _ = select.select(files, [], [])
                if self._port.fileno() in ready and not self._show():
                    files.remove(self._port.fileno())
                elif self._stop in ready:
                    return
                elif self._terminal in ready and not self._type():
                    files.remove(self._terminal)
                    self._leave()
        except OSError:
            self._leave()

    def _type(self) -> bool:
        """Send what was typed; return False when that was to leave, or nothing can be typed any more."""
        typed, leave, _ = os.read(self._terminal, _PIECE_BYTES).partition(LEAVE)
        with suppress(BrokenPipeError):  # QEMU has gone
            self._port.sendall(typed)
        return bool(typed) and not leave

    def _show(self) -> bool:
        """Show what the port said; return False when it says nothing any more."""
        try:
            said = self._port.recv(_PIECE_BYTES)
        except ConnectionError:
            return False
        text = said
        while text:
            text = text[os.write(self._terminal, text) :]
        return bool(said)
