"""The life of one QEMU machine: from its command line to its end, with our three sockets to it."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any, Self

import msgspec

from testbed.errors import GuestLost, HostError
from testbed.guest.channel import Channel
from testbed.guest.device_state import restore_device, save_device
from testbed.guest.memory import GuestMemory
from testbed.guest.model import STALL_LIMIT_S, DeviceModel
from testbed.guest.monitor import Monitor
from testbed.guest.qemu import GDB, NIC_ID, PACER, Descriptors, command_line
from testbed.traffic.wire import Wire
from testbed.vfio_user.control import CatchUp, Follow, Freeze, Ping, Plug, Run, Tell
from testbed.vfio_user.follower import FOLLOWS_OFFSET

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from testbed.guest.qemu import Blueprint
    from testbed.toolchain import Toolchain

__all__ = ["Machine"]

MIGRATION_LIMIT_S = 60.0
WIRE_BUFFER_BYTES = 4 << 20  # for what the guest sends while we do not get to read; the kernel may grant less
END_LIMIT_S = 10.0
TOO_LATE = "timed out waiting for reply"  # QEMU of a device model; the device is useless from then on
NO_SPACE = os.strerror(errno.ENOSPC)


class Machine:
    """QEMU with a guest that has not run an instruction yet.

    It dies with us: bubblewrap and the kernel see to that, whatever ends us. As a context manager it also ends
    sooner, and says goodbye to everything it opened.

    :param directory: for the console log and QEMU's own messages; must exist and be ours alone.
    :param gdb: a listening socket on which QEMU serves a debugger.
    :param state: a file that :meth:`save` of such a machine wrote; the guest continues from there.
    :raise GuestLost: QEMU does not start, or does not take the state.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        blueprint: Blueprint,
        directory: Path,
        state: Path | None = None,
        pcap: Path | None = None,
        gdb: socket.socket | None = None,
    ) -> None:
        self.debugged = gdb is not None
        self._left_to_debugger = False
        self.model: DeviceModel | None = None
        self.console = directory / "console.log"
        self._messages = directory / "qemu.log"
        self.console.touch()
        self._stack = contextlib.ExitStack()
        try:
            self._start(toolchain, blueprint, state, pcap, gdb)
        except BaseException:
            self._stack.close()
            raise

    def _start(
        self,
        toolchain: Toolchain,
        blueprint: Blueprint,
        state: Path | None,
        pcap: Path | None,
        gdb: socket.socket | None,
    ) -> None:
        self.memory = self._stack.enter_context(GuestMemory(blueprint.shape.memory_mib << 20))
        pairs = [socket.socketpair() for _ in range(4)]
        theirs = [pair[1] for pair in pairs]
        theirs[2].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WIRE_BUFFER_BYTES)
        monitor, agent, wire, self.terminal = (pair[0] for pair in pairs)
        for end in (*theirs, monitor, agent, wire, self.terminal):
            self._stack.callback(end.close)
        if blueprint.nic.model:
            self.model = self._stack.enter_context(
                DeviceModel(blueprint.nic.model, self.console.parent, theirs[2])
            )
        inherited = self._inherited(blueprint, theirs, gdb)
        command = command_line(blueprint, self.console, inherited, incoming=state is not None)
        probe = [blueprint.probe.plugin, blueprint.probe.leaders] if blueprint.probe else []
        inputs = [blueprint.kernel, blueprint.initramfs, *probe, *([state] if state else [])]
        argv = toolchain.argv(command, read=inputs, write=[self.console.parent])
        self._process = self._launch(argv, inherited)
        for end in theirs:
            end.close()
        self._stack.callback(self._end_process)
        try:
            self.monitor = self._stack.enter_context(Monitor(monitor))
        except GuestLost as error:
            if self.model:
                self.model.ask(Ping())  # it may be the model that died first, and QEMU of that
            raise GuestLost(
                f"QEMU did not start: {self.last_words() or error}", "run `testbed doctor`"
            ) from error
        self.channel = self._stack.enter_context(Channel(agent))
        self.wire = self._stack.enter_context(Wire(wire, pcap))
        self._keeps_pacer = blueprint.shape.clock == "virtual"
        self._paced = False
        self._followed = False
        if state:
            self._migrate("migrate-incoming", state)
        if self.model:
            if state:
                restore_device(self.monitor, self.model, state)
            self.model.watch(self.monitor.lose)

    def _inherited(
        self, blueprint: Blueprint, theirs: list[socket.socket], gdb: socket.socket | None
    ) -> Descriptors:
        monitor, agent, wire, terminal = (end.fileno() for end in theirs)
        return Descriptors(
            monitor=monitor,
            agent=agent,
            wire=-1 if self.model else wire,
            model=self.model.directory_fd if self.model else -1,
            memory=self.memory.fd,
            terminal=terminal if blueprint.shape.terminal else -1,
            gdb=gdb.fileno() if gdb else -1,
            counters=blueprint.probe.counters if blueprint.probe else -1,
        )

    def _launch(self, argv: list[str], inherited: Descriptors) -> subprocess.Popen[bytes]:
        with self._messages.open("wb") as messages:
            try:
                return subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=messages,
                    stderr=subprocess.STDOUT,
                    pass_fds=inherited.all(),
                    start_new_session=True,  # Ctrl-C is ours to handle, not QEMU's
                )
            except OSError as error:
                raise HostError(f"QEMU cannot be started: {error}", "run `testbed doctor`") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def pid(self) -> int:
        """The process we started: QEMU, or the sandbox round it."""
        return self._process.pid

    def last_words(self) -> str:
        """Return the last line QEMU itself wrote, or nothing."""
        lines = self._messages.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def console_text(self) -> str:
        """Return the kernel's log since this QEMU started."""
        return self.console.read_text(errors="replace").replace("\r", "")

    def inject(self, frames: list[bytes]) -> None:
        """Put frames on the wire of the stopped machine; when this returns, QEMU has them all.

        A stopped QEMU reads its wire no further than its first buffer, unless a filter takes the frames. In virtual
        time the filter stays, as frames enter the NIC at its ticks, which count from the first call: while there is
        none, guests that wait cost nothing. In real time they enter when the machine goes on, and the filter goes, as
        it would take from the wire its back-pressure.

        :param frames: at most 10000; QEMU drops what is more.
        :raise GuestLost: QEMU does not take them.
        """
        if self.model:  # it is frozen, and keeps them until it runs
            self.wire.send(frames)
            self.wire.flush()
            return
        if not self._paced:
            self.monitor.execute("object-add", **dict[str, Any](PACER))
        self._paced = True
        self.wire.send(frames)
        self.wire.flush()
        self.monitor.execute("query-status")
        if not self._keeps_pacer:
            self.monitor.execute("object-del", id=PACER["id"])
            self._paced = False

    def plug(self, *, connected: bool) -> None:
        """Put the NIC's cable in, or pull it.

        :raise GuestLost: QEMU or the device model could not.
        """
        if self.model:
            self.model.ask(Plug(connected))
        else:
            self.monitor.execute("set_link", name=NIC_ID, up=connected)

    def command(self, word: str, arguments: Mapping[str, int | bool | str | None]) -> None:
        """Let the device model of the stopped machine do one of its commands.

        :raise GuestLost: there is no model, or it could not.
        """
        if not self.model:
            raise GuestLost(f"expected a NIC with a device model for '{word}', seen QEMU's own")
        self.model.ask(Tell(msgspec.Raw(msgspec.json.encode({"command": word, **arguments}))))

    def follow(self, position: int) -> None:
        """In virtual time, let the device model of the stopped machine live in the guest's time.

        :param position: physical address of struct tb_position.
        :raise GuestLost: the model is gone.
        """
        self._followed = bool(self.model) and self._keeps_pacer
        if self.model and self._followed:
            self.memory.write_pages([position + FOLLOWS_OFFSET], (1).to_bytes(8, "little"))
            self.model.ask(Follow(position))

    def catch_up(self) -> None:
        """Let such a model do what is due, with the machine stopped; when this returns QEMU has its interrupts.

        :raise GuestLost: the model is gone.
        """
        if self.model and self._followed:
            self.model.ask(CatchUp())
            for _ in range(2):  # QEMU's main loop reads eventfds and monitor in no order that we know
                self.monitor.execute("query-status")

    def hold(self) -> None:
        """See that the device stands still too, now that the machine has stopped.

        :raise GuestLost: the device model is gone.
        """
        if self.model:
            self.model.ask(Freeze())
            if TOO_LATE in self._messages.read_text(errors="replace"):
                raise GuestLost(
                    f"QEMU gave its device up: the model did not answer within {STALL_LIMIT_S:g} s"
                )

    def resume(self) -> None:
        """Let the guest run on; right after :meth:`serve_debugger` that is left to the debugger."""
        if self.model:
            self.model.ask(Run())
        if not self._left_to_debugger:
            self.monitor.execute("cont")
        self._left_to_debugger = False

    def serve_debugger(self) -> None:
        """Let a debugger in, with the machine stopped: it goes on when one has attached and says so.

        QEMU's stub takes no packet while the guest runs, so nobody else may resume it then.
        """
        self.monitor.execute("human-monitor-command", command_line=f"gdbserver chardev:{GDB}")
        self._left_to_debugger = True

    def end(self) -> None:
        """End QEMU at once, also from another thread; whoever waits for it gets :class:`GuestLost`."""
        self._process.terminate()

    def save(self, path: Path) -> None:
        """Write the state of the stopped machine to a file in the machine's own directory.

        :raise GuestLost: QEMU could not.
        """
        if self.model:
            save_device(self.monitor, self.model, path)
        self._migrate("migrate", path)

    def _migrate(self, command: str, path: Path) -> None:
        capabilities = [{"capability": name, "state": True} for name in ("mapped-ram", "events")]
        self.monitor.execute("migrate-set-capabilities", capabilities=capabilities)
        # No RARP of QEMU's own on the wire: it sends them when the host's clock, not the guest's, says so.
        self.monitor.execute("migrate-set-parameters", announce_rounds=0)
        self.monitor.execute(command, uri=f"file:{path}")
        deadline = time.monotonic() + MIGRATION_LIMIT_S
        status = ""
        while status != "completed":
            status = str(self.monitor.wait_for("MIGRATION", deadline - time.monotonic())["status"])
            if status == "failed":
                raise self._not_migrated(command, path)

    def _not_migrated(self, command: str, path: Path) -> GuestLost:
        why = (
            self.monitor.execute("query-migrate").get("error-desc") or self.last_words() or "no reason given"
        )
        remedy = "free some space, or point TESTBED_CACHE to a larger disk" if NO_SPACE in why else ""
        return GuestLost(f"QEMU could not {command} {path}: {' '.join(why.split())}", remedy)

    def _end_process(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_LIMIT_S)
