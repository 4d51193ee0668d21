"""A NIC that a device model plays, in a real guest: docs/examples/rtl8139.py, which a stranger could have written."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import ARP, Ether
from scapy.sendrecv import sr1, srp1

from testbed import nic
from testbed.bench import QUICK
from testbed.bench.model import measure_model
from testbed.errors import GuestLost
from testbed.guest import Guest, running
from testbed.guest.machine import Machine
from testbed.kernel import resolve
from testbed.nic import GUEST_MAC, Nic
from testbed.preparation import ready_guest, shape_of
from testbed.vfio_user.control import Ping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.pytest_plugin import RunScenario
    from testbed.toolchain import Toolchain

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "rtl8139.py"
RTL8139 = Nic(
    name="rtl8139",
    about="Realtek RTL8139C, the example of docs/adding-a-nic.md",
    device={},
    driver="8139too",
    modules=("8139too",),
    model=f"{EXAMPLE}:Rtl8139",
)
GUEST = "192.0.2.2"
LIMIT_S = 10.0


@pytest.fixture
def guest(toolchain: Toolchain) -> Iterator[Guest]:
    with ready_guest(toolchain, resolve(), RTL8139, shape_of(toolchain, "real")) as ready:
        yield ready


def arp() -> Ether | None:
    who_has = Ether(dst="ff:ff:ff:ff:ff:ff") / ARP(pdst=GUEST)
    answer: Ether | None = srp1(who_has, timeout=20, verbose=False)
    return answer


def lost_after(guest: Guest, deed: signal.Signals) -> str:
    """Return how a running guest ended after its device model got a signal."""
    since, model = time.monotonic(), guest.machine.model
    assert model is not None
    guest.machine.resume()
    os.kill(model.pid, deed)
    with pytest.raises(GuestLost) as lost:
        guest.machine.monitor.wait_for("never", LIMIT_S)
    assert time.monotonic() - since < LIMIT_S
    return str(lost.value)


def test_the_guest_finds_the_device_binds_its_driver_and_answers_a_ping(guest: Guest) -> None:
    assert guest.ready.driver == "8139too"
    with running(guest), guest.machine.wire.scapy():
        answer = arp()
        echo = sr1(IP(dst=GUEST) / ICMP(id=7, seq=3) / b"testbed", timeout=20, verbose=False)
    assert answer is not None
    assert answer[ARP].hwsrc == GUEST_MAC
    assert echo is not None
    assert bytes(echo[ICMP].payload).startswith(b"testbed")


def test_a_guest_with_our_eqos_answers_a_ping(toolchain: Toolchain) -> None:
    payload = bytes(range(256)) * 4
    with (
        ready_guest(toolchain, resolve(), nic.get("stmmac"), shape_of(toolchain, "real")) as guest,
        running(guest),
        guest.machine.wire.scapy(),
    ):
        answer = arp()
        echo = sr1(IP(dst=GUEST) / ICMP(id=7, seq=3) / payload, timeout=20, verbose=False)
    assert answer is not None
    assert answer[ARP].hwsrc == GUEST_MAC
    assert echo is not None
    assert bytes(echo[ICMP].payload) == payload


def test_what_an_access_costs_and_an_idle_model_takes_is_measured(toolchain: Toolchain) -> None:
    effort = dataclasses.replace(QUICK, restores=2)
    seen = measure_model(toolchain, resolve(), effort, lambda _line: None)
    assert len(seen.mmio_read_us) == 2
    assert 1.0 < seen.median_us < 10_000.0
    assert 0.0 <= seen.idle_cpu_percent < 50.0


def test_a_model_that_stalls_for_two_seconds_does_not_end_the_run(guest: Guest) -> None:
    model = guest.machine.model
    assert model is not None
    with running(guest), guest.machine.wire.scapy():
        assert arp() is not None
        os.kill(model.pid, signal.SIGSTOP)
        time.sleep(2)  # the stall itself
        os.kill(model.pid, signal.SIGCONT)
        assert arp() is not None
    model.ask(Ping())


def test_a_model_that_dies_is_told_with_the_reason_within_ten_seconds(guest: Guest) -> None:
    assert lost_after(guest, signal.SIGKILL) == "the device model died: signal 9"


def test_a_model_that_stalls_for_longer_than_qemu_waits_is_told_within_ten_seconds(guest: Guest) -> None:
    assert lost_after(guest, signal.SIGSTOP) == "the device model did not answer within 5 s"


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        (signal.SIGKILL, "the device model died: signal 9"),
        (signal.SIGSTOP, "the device model did not answer within 8 s"),
    ],
)
def test_a_run_whose_model_is_lost_in_the_middle_is_broken_with_the_reason_within_ten_seconds(
    run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch, deed: signal.Signals, reason: str
) -> None:
    inject, lost_at = Machine.inject, list[float]()

    def inject_for_the_last_time(machine: Machine, frames: list[bytes]) -> None:
        inject(machine, frames)
        assert machine.model is not None
        lost_at.append(time.monotonic())
        os.kill(machine.model.pid, deed)

    prepared = run_scenario("rx-tx-mix", nic="stmmac")
    assert prepared.result.verdict == "pass"
    monkeypatch.setattr(Machine, "inject", inject_for_the_last_time)
    result = run_scenario("rx-tx-mix", nic="stmmac").result
    assert time.monotonic() - lost_at[0] < LIMIT_S
    assert len(lost_at) == 1
    assert (result.verdict, result.exit_status()) == ("broken", 3)
    assert result.error is not None
    assert reason in result.error


def test_the_model_ends_with_its_guest(toolchain: Toolchain) -> None:
    with ready_guest(toolchain, resolve(), RTL8139, shape_of(toolchain, "real")) as guest:
        model = guest.machine.model
        assert model is not None
        assert Path(f"/proc/{model.pid}").exists()
    assert not Path(f"/proc/{model.pid}").exists()


def test_a_model_that_cannot_begin_says_why(toolchain: Toolchain) -> None:
    broken = dataclasses.replace(RTL8139, model=f"{EXAMPLE}:Rtl8138")
    said = "Rtl8138 is no device model: expected a class derived from testbed.vfio_user.Device"
    with (
        pytest.raises(GuestLost, match=said),
        ready_guest(toolchain, resolve(), broken, shape_of(toolchain, "real")),
    ):
        pass
