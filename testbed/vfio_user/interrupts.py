"""The device's interrupts: which eventfds the client wants written, and the level of INTA.

INTx as QEMU's client does it: after an interrupt the line is masked until QEMU unmasks it, which it does on the guest's
next access to a BAR, whatever register that is. A line that is still high then must be raised again, but not at once:
the guest's handler is still reading (seven interrupts for one were seen), so a little later.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from testbed.vfio_user.device import Msi, MsiX
from testbed.vfio_user.memory import Refused
from testbed.vfio_user.protocol import Irq, IrqInfo, IrqSet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from testbed.vfio_user.device import Declaration, Timer

__all__ = ["Clock", "Interrupts"]

AGAIN_NS = 1_000_000
_EVENTFD = "anon_inode:[eventfd]"


class Clock(Protocol):
    """What re-triggering and unmasking need of the server's loop."""

    def now_ns(self) -> int:
        """Return the time."""

    def call_at(self, when_ns: int, callback: Callable[[], None]) -> Timer:
        """Call later."""

    def serve(self, fd: int, callback: Callable[[], None]) -> None:
        """Call when readable."""

    def ignore(self, fd: int) -> None:
        """Stop that."""


class Interrupts:
    """Owns the eventfds that the client hands in."""

    def __init__(self, declaration: Declaration, clock: Clock) -> None:
        messages = {type(capability): capability for capability in declaration.capabilities}
        msi, msix = messages.get(Msi), messages.get(MsiX)
        counts = [0] * Irq.COUNT
        counts[Irq.INTX] = int(declaration.intx)
        counts[Irq.MSI] = msi.vectors if isinstance(msi, Msi) else 0
        counts[Irq.MSIX] = msix.vectors if isinstance(msix, MsiX) else 0
        self.counts = tuple(counts)
        self.intx_disabled = False
        self._clock = clock
        self._triggers: list[list[int]] = [[-1] * count for count in counts]
        self._unmask_fd = -1
        self._high = False
        self._masked = False
        self._again: Timer | None = None
        self._messages = self._triggers[Irq.MSIX]  # the kind of messages in use
        self.mode: Literal["none", "intx", "msi", "msix"] = "none"

    def info(self, index: int) -> tuple[int, int]:
        """Return the flags and the number of interrupts of a type."""
        count = self.counts[index]
        if not count:
            return 0, 0
        if index == Irq.INTX:
            return IrqInfo.EVENTFD | IrqInfo.MASKABLE | IrqInfo.AUTOMASKED, count
        return IrqInfo.EVENTFD | IrqInfo.NORESIZE, count

    # The device's side

    def message(self, vector: int) -> bool:
        """Send a message; return whether somebody listens."""
        if not 0 <= vector < len(self._messages):
            return False
        return _write(self._messages[vector])

    def level(self, *, high: bool) -> bool:
        """Set INTA; return whether an interrupt went out."""
        rises = high and not self._high
        self._high = high
        return rises and self._assert()

    @property
    def high(self) -> bool:
        """The level of INTA."""
        return self._high

    def _assert(self) -> bool:
        triggers = self._triggers[Irq.INTX]
        if self._masked or self.intx_disabled or not triggers or not _write(triggers[0]):
            return False
        self._masked = True
        return True

    def _unmask(self) -> None:
        self._masked = False
        if self._high and self._again is None:
            self._again = self._clock.call_at(self._clock.now_ns() + AGAIN_NS, self._try_again)

    def _try_again(self) -> None:
        self._again = None
        if self._high:
            self._assert()

    # The client's side

    def set(
        self, flags: int, index: int, start: int, count: int, data: Sequence[int], fds: list[int]
    ) -> None:
        """Obey DEVICE_SET_IRQS; takes those of ``fds`` that it keeps out of the list.

        :param data: of BOOL, one for each interrupt.
        :raise Refused: it is not allowed, or an interrupt does not exist.
        """
        if index >= Irq.COUNT or start + count > self.counts[index]:
            raise Refused(
                errno.EINVAL, f"there are no interrupts {start} to {start + count - 1} of type {index}"
            )
        kind, action = flags & IrqSet.DATA, flags & IrqSet.ACTION
        if kind == IrqSet.EVENTFD:
            self._set_eventfds(action, index, start, count, fds)
        elif kind == IrqSet.NONE and action == IrqSet.TRIGGER and not count:
            self._release(index, 0, self.counts[index])
        elif kind in {IrqSet.NONE, IrqSet.BOOL}:
            chosen: Sequence[int] = range(start, start + count)
            if kind == IrqSet.BOOL:
                if len(data) < count:
                    raise Refused(errno.EINVAL, f"{len(data)} truth values for {count} interrupts")
                chosen = [at for at, wanted in zip(chosen, data, strict=False) if wanted]
            self._act(action, index, chosen)
        else:
            raise Refused(errno.EINVAL, f"flags {flags:#x} name no one kind of data")
        self._choose_mode()

    def close(self) -> None:
        """Close everything that the client handed in."""
        for index, count in enumerate(self.counts):
            self._release(index, 0, count)
        self._choose_mode()

    def _act(self, action: int, index: int, chosen: Sequence[int]) -> None:
        if action == IrqSet.TRIGGER:
            for vector in chosen:
                _write(self._triggers[index][vector])
        elif index != Irq.INTX or action not in {IrqSet.MASK, IrqSet.UNMASK}:
            raise Refused(errno.EINVAL, f"action {action:#x} is not for interrupts of type {index}")
        elif chosen and action == IrqSet.MASK:
            self._masked = True
        elif chosen:
            self._unmask()

    def _set_eventfds(self, action: int, index: int, start: int, count: int, fds: list[int]) -> None:
        if fds and len(fds) != count:
            raise Refused(errno.EINVAL, f"{len(fds)} descriptors for {count} interrupts")
        for fd in fds:
            if str(Path(f"/proc/self/fd/{fd}").readlink()) != _EVENTFD:
                raise Refused(errno.EINVAL, "a descriptor is no eventfd")
            os.set_blocking(fd, False)
        if action == IrqSet.TRIGGER:
            self._release(index, start, count)
            self._triggers[index][start : start + count] = fds or [-1] * count
        elif action == IrqSet.UNMASK and index == Irq.INTX and count:
            self._release_unmask()
            if fds:
                self._unmask_fd = fds[0]
                self._clock.serve(self._unmask_fd, self._on_unmask_fd)
        else:
            raise Refused(errno.EINVAL, f"no descriptors for action {action:#x} of type {index}")
        fds.clear()

    def _on_unmask_fd(self) -> None:
        try:
            os.eventfd_read(self._unmask_fd)
        except BlockingIOError:
            return
        self._unmask()

    def _release(self, index: int, start: int, count: int) -> None:
        triggers = self._triggers[index]
        for vector in range(start, start + count):
            if triggers[vector] >= 0:
                os.close(triggers[vector])
                triggers[vector] = -1
        if index == Irq.INTX and count:
            self._release_unmask()
            self._masked = False

    def _release_unmask(self) -> None:
        if self._unmask_fd >= 0:
            self._clock.ignore(self._unmask_fd)
            os.close(self._unmask_fd)
            self._unmask_fd = -1

    def _listened(self, index: int) -> bool:
        return any(fd >= 0 for fd in self._triggers[index])

    def _choose_mode(self) -> None:
        before = self.mode
        self.mode = "none"
        if self._listened(Irq.MSIX):
            self.mode = "msix"
        elif self._listened(Irq.MSI):
            self.mode = "msi"
        elif self._listened(Irq.INTX):
            self.mode = "intx"
        self._messages = self._triggers[Irq.MSI if self.mode == "msi" else Irq.MSIX]
        if self.mode == "intx" and before != "intx" and self._high:
            self._assert()  # the line was high before anybody listened


def _write(fd: int) -> bool:
    """Write one event; a counter that is full has told its reader enough."""
    if fd < 0:
        return False
    with contextlib.suppress(BlockingIOError):
        os.eventfd_write(fd, 1)
    return True
