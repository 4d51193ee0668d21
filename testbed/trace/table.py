"""A trace: the event table of one run, with the few facts about the run that rules need to read it.

The table is what the agent sent at the end of a program, an array of :data:`~testbed.trace.events.EVENT`. Row
numbers are what results cite, so nothing ever sorts or filters a table in place.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from testbed.errors import GuestLost, UsageError
from testbed.trace.events import EVENT, Kind
from testbed.trace.polls import Polls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

#: A guest in real time loses its CPU to others: what takes 10 ms there may take so many times longer.
REAL_TIME_PATIENCE = 20

__all__ = ["Trace", "decode_events", "load_events", "save_events"]


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """What one run left behind, for rules and reports to read.

    :param events: shape ``(n,)``, dtype :data:`~testbed.trace.events.EVENT`, in the order of time over all
        CPUs.
    :param lost: records the guest could not keep.
    :param log: the kernel log's lines of this run; None when it was not captured.
    :param settings: the scenario's settings by their names. Rules read ``mode`` ("zerocopy", "copy" or
        "none"; or ``zero_copy``, bool), ``xdp_mode`` ("native", also when absent, or "generic"),
        ``need_wakeup`` (bool, absent is False), ``busy_poll`` (int, the budget; absent is 0), ``umem_chunks`` and
        ``rx_ring`` (int, absent is unknown).
    :param kernel: major and minor of the kernel's release.
    :param driver: the driver bound to the NIC under test; waivers name it.
    :param nic: the NIC's name in the registry.
    :param alive: False when the guest stopped answering, spun or spent its time after the first step.
    :param death: one line: how it died and where; empty while it is alive.
    :param injected: numbered frames the host put on the guest's wire.
    :param bursts: what the host put there at each barrier, in their order: the step's number, and how many
        numbered frames; empty when unknown. Their sequence numbers go on from burst to burst, from 0.
    :param links: what the host did to the NIC's link, in order: the barrier's step, and whether the link was up
        then; empty when it did nothing or that is unknown.
    :param steps: the program, shape ``(s,)``, dtype :data:`~testbed.scenario.program.STEP`; None when unknown.
    :param clock: "virtual", where a limit in time is exact, or "real", where the host may take time away.
    :param wire_sequences: shape ``(m,)``, the sequence numbers of the numbered frames seen leaving the guest,
        in order; None when the wire was not watched.
    """

    events: npt.NDArray[np.void]
    lost: int = 0
    log: Sequence[str] | None = None
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    kernel: tuple[int, int] = (0, 0)
    driver: str = ""
    nic: str = ""
    alive: bool = True
    death: str = ""
    injected: int = 0
    bursts: Sequence[tuple[int, int]] = ()
    links: Sequence[tuple[int, bool]] = ()
    steps: npt.NDArray[np.void] | None = None
    clock: str = "virtual"
    wire_sequences: npt.NDArray[np.int64] | None = None

    @cached_property
    def polls(self) -> Polls:
        """The polls of this trace, and which events belong to which."""
        return Polls.of(self.events, busy_poll=self.flag("busy_poll"))

    @cached_property
    def _rows(self) -> dict[tuple[object, ...], npt.NDArray[np.intp]]:
        """What :meth:`rows` has answered."""
        return {}

    @cached_property
    def kind(self) -> npt.NDArray[np.uint16]:
        """The kinds of all rows, shape ``(n,)``, in memory of their own: faster than a field of the table."""
        return np.ascontiguousarray(self.events["kind"])

    def rows(self, kind: Kind, **values: int) -> npt.NDArray[np.intp]:
        """Return the numbers of the rows of one kind, ascending.

        :param values: only those where these fields have these values, as in ``rows(Kind.REDIRECT, a=0)``.
        """
        key = (kind, *sorted(values.items()))
        if key not in self._rows:
            rows: npt.NDArray[np.intp] = np.flatnonzero(self.kind == kind)
            for name, value in values.items():
                rows = rows[self.events[name][rows] == value]
            rows.flags.writeable = False  # it is handed to all who ask the same
            self._rows[key] = rows
        return self._rows[key]

    def field(self, name: str, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Return one field of some rows as signed 64-bit numbers, so that differences never wrap."""
        return self.events[name][rows].astype(np.int64)

    def patience_ns(self, limit_ns: int) -> int:
        """Return how long to wait for what must happen within a limit: longer where time is not exact."""
        return limit_ns if self.clock == "virtual" else limit_ns * REAL_TIME_PATIENCE

    def time_ns(self, row: int) -> int:
        """Return when a row happened."""
        return int(self.events["time_ns"][row])

    @cached_property
    def end_ns(self) -> int:
        """When the trace ends; lines of the kernel log do not count."""
        times = self.events["time_ns"][self.kind != Kind.LOG]
        return int(times[-1]) if len(times) else 0

    def flag(self, name: str) -> bool:
        """Return whether a setting of this run is set."""
        return bool(self.settings.get(name, False))

    def number(self, name: str) -> int | None:
        """Return a setting that is a whole number; None when it is absent or something else."""
        value = self.settings.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def generic_xdp(self) -> bool:
        """Whether the XDP program ran in the stack (generic XDP) and not in the driver."""
        return self.settings.get("xdp_mode") == "generic"

    @property
    def zero_copy(self) -> bool:
        """Whether the socket was bound in zero-copy mode."""
        return bool(self.settings.get("zero_copy", self.settings.get("mode") == "zerocopy"))


def decode_events(data: bytes | bytearray | memoryview) -> npt.NDArray[np.void]:
    """Return the records in ``data`` as an event table of its own memory, shape ``(n,)``.

    :raise GuestLost: the length is not a whole number of records, or a record's kind is none we know.
    """
    size = memoryview(data).nbytes
    if size % EVENT.itemsize:
        raise GuestLost(
            f"expected event records of {EVENT.itemsize} bytes each, got {size} bytes in all",
            "the channel was cut, or the image is not of this version: run 'testbed setup --refresh'",
        )
    events = np.frombuffer(data, dtype=EVENT).copy()
    known = np.isin(events["kind"], list(Kind))
    if not known.all():
        row = int(np.argmin(known))
        raise GuestLost(
            f"event {row} is of the unknown kind {int(events['kind'][row])}",
            "the image is not of this version: run 'testbed setup --refresh'",
        )
    return events


def save_events(path: Path, events: npt.NDArray[np.void]) -> None:
    """Write the table to ``path`` (``trace.npy`` of a result); :func:`load_events` and numpy.load read it."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as stream:
        np.save(stream, events, allow_pickle=False)
    partial.replace(path)


def load_events(path: Path) -> npt.NDArray[np.void]:
    """Return the table saved in ``path``, shape ``(n,)``.

    :raise UsageError: there is no such file, or it is not a table of events.
    """
    remedy = "name a trace.npy that 'testbed run --out' left"
    try:
        with path.open("rb") as stream:
            events = np.load(stream, allow_pickle=False)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", remedy) from error
    except (ValueError, EOFError) as error:
        raise UsageError(f"expected an event table in {path}: {error}", remedy) from error
    if not isinstance(events, np.ndarray) or events.dtype != EVENT or events.ndim != 1:
        raise UsageError(f"expected an event table in {path}, found another array", remedy)
    return events
