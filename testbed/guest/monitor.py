"""QEMU's monitor: commands, events, and word of QEMU's end; qemu.qmp in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, Self

from qemu.qmp import EventListener, ExecuteError, QMPClient, QMPError, Runstate

from testbed.errors import GuestLost

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine, Mapping
    from types import TracebackType

__all__ = ["Monitor"]

COMMAND_LIMIT_S = 30.0
LOST = "LOST"  # our own, beside QEMU's events


class Monitor:
    """A connection to QEMU's monitor.

    :param sock: a connected stream socket, whose other end QEMU has.
    :raise GuestLost: QEMU did not greet within the time limit.
    """

    def __init__(self, sock: socket.socket, timeout_s: float = COMMAND_LIMIT_S) -> None:
        self._events: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="qmp", daemon=True)
        self._thread.start()
        self._client = QMPClient("testbed")
        self._tasks: list[asyncio.Task[None]] = []
        try:
            self._call(self._connect(sock), timeout_s, "greet")
        except GuestLost:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection and its thread."""
        with contextlib.suppress(GuestLost):
            self._call(self._disconnect(), 5.0, "disconnect")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._loop.close()

    def execute(self, command: str, timeout_s: float = COMMAND_LIMIT_S, **arguments: object) -> Any:
        """Run a QMP command and return its answer; ``_`` in argument names stands for ``-``.

        :raise GuestLost: QEMU refuses it, does not answer in time, or is gone.
        """
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        return self._call(self._client.execute(command, named), timeout_s, command)

    def next_event(self, timeout_s: float) -> tuple[str, Mapping[str, Any]]:
        """Return the name and data of the next event.

        :raise GuestLost: QEMU is gone.
        :raise TimeoutError: none came within ``timeout_s``.
        """
        try:
            name, data = self._events.get(timeout=max(timeout_s, 0))
        except queue.Empty as error:
            raise TimeoutError from error
        if name == LOST:
            self._events.put((name, data))
            raise GuestLost(data["why"])
        return name, data

    def lose(self, why: str) -> None:
        """Let whoever waits for an event, now or later, get :class:`GuestLost` with this reason."""
        self._events.put((LOST, {"why": why}))

    def wait_for(self, name: str, timeout_s: float) -> Mapping[str, Any]:
        """Drop events until one is called ``name``; return its data.

        :raise GuestLost: QEMU is gone, or the event did not come.
        """
        try:
            while True:
                seen, data = self.next_event(timeout_s)
                if seen == name:
                    return data
        except TimeoutError as error:
            raise GuestLost(f"QEMU sent no {name} event within {timeout_s:g} s") from error

    async def _connect(self, sock: socket.socket) -> None:
        listener = EventListener()
        self._client.register_listener(listener)
        await self._client.connect(sock)
        self._tasks = [asyncio.create_task(self._listen(listener)), asyncio.create_task(self._watch())]

    async def _listen(self, listener: EventListener) -> None:
        async for event in listener:
            data: dict[str, Any] = event.get("data") or {}  # type: ignore[assignment] # qemu.qmp says object
            self._events.put((str(event["event"]), data))

    async def _watch(self) -> None:
        while self._client.runstate is Runstate.RUNNING:
            await self._client.runstate_changed()
        self.lose("QEMU ended")

    async def _disconnect(self) -> None:
        with contextlib.suppress(QMPError, EOFError, OSError):
            await self._client.disconnect()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _call(self, coroutine: Coroutine[Any, Any, Any], timeout_s: float, what: str) -> Any:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            future.cancel()
            raise GuestLost(f"QEMU did not answer '{what}' within {timeout_s:g} s") from error
        except ExecuteError as error:
            raise GuestLost(f"QEMU refuses '{what}': {error}") from error
        except (QMPError, EOFError, OSError) as error:
            raise GuestLost(f"QEMU ended during '{what}'") from error
