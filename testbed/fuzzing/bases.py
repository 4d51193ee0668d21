"""Where an input starts: guests that have been set up and saved, so that no execution pays for a device's reset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.scenario import Settings, required
from testbed.scenario.model import Scenario
from testbed.scenario.steps import Set, Sleep, Wakeup

if TYPE_CHECKING:
    from testbed.nic import Nic
    from testbed.scenario.steps import AnyStep

__all__ = ["BASES", "Base", "bases_for"]


@dataclass(frozen=True)
class Base:
    """A guest with its rings set, its XDP program attached, its socket bound, and a few steps done.

    :param steps: what is done after the set-up; none injects, as a saved guest has no frames on its way.
    """

    name: str
    about: str
    settings: Settings
    steps: tuple[AnyStep, ...]

    def scenario(self) -> Scenario:
        """Return what is run before the guest is saved."""
        return Scenario(name=f"base-{self.name}", settings=self.settings, steps=self.steps)


_QUIET = Sleep(us=5000)


def _small(**changes: object) -> Settings:
    """Return settings with rings of 64 and few chunks: what overflows or leaks does so within a short input."""
    sizes = {"rx_ring": 64, "tx_ring": 64, "umem_chunks": 256, "fill_entries": 256, "completion_entries": 64}
    sockets = {"rx_entries": 64, "tx_entries": 64, "prefill": 192}
    return Settings(**{**sizes, **sockets, **changes})  # type: ignore[arg-type] # names of fields


#: The order is part of the input format: append only.
BASES = (
    Base(
        "filled", "rings of 64, 192 of 256 chunks posted, need_wakeup", _small(), (Wakeup(side="rx"), _QUIET)
    ),
    Base("starved", "nothing posted to FILL, need_wakeup", _small(prefill=0), (_QUIET,)),
    Base(
        "deferred",
        "interrupts deferred: napi_defer_hard_irqs 2, gro_flush_timeout 200 us",
        _small(),
        (Wakeup(side="rx"), Set(napi_defer_hard_irqs=2, gro_flush_timeout=200_000), _QUIET),
    ),
    Base("driven", "bound without need_wakeup", _small(need_wakeup=False), (_QUIET,)),
    Base("edge", "an RX ring of 8 entries", _small(rx_entries=8), (Wakeup(side="rx"), _QUIET)),
    Base(
        "verdicts",
        "each frame says what becomes of it: redirect, pass, drop or tx",
        _small(verdict="by_frame"),
        (Wakeup(side="rx"), _QUIET),
    ),
)


def bases_for(nic: Nic, kernel: tuple[int, int]) -> list[Base]:
    """Return those that driver and kernel can be set up as."""
    return [
        base
        for base in BASES
        if not nic.missing(frozenset(str(each) for each in required(base.scenario())), kernel)
    ]
