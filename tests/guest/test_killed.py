"""``kill -9`` of testbed or of QEMU, and Ctrl-C, at many moments: nothing is left, and the next run is right."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING, NamedTuple

import pytest
from victims import PrivateCache

from testbed.run import prepare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from victims import Ended, Victim

    from testbed.run import Request

PCAP_HEADER_BYTES = 24
FRAME_BYTES = 60 + 16
SCENARIO = """\
name: many-bursts
must_exercise: [chunk-single-owner]
settings: {rx_ring: 64, tx_ring: 64, umem_chunks: 256, fill_entries: 256, rx_entries: 64}
steps:
  - fill: all
  - wakeup: rx
  - repeat:
      times: 24
      steps:
        - inject: {count: 32, bytes: 64}
        - sleep_us: 2000
        - rx_drain: all
        - fill: all
        - wakeup: rx
  - snapshot_rings
"""
FRAMES = 24 * 32
PROMPT_S = 10.0
SOONER = ("--clock", "real")  # a boot that waits for nothing


class Place(NamedTuple):
    """Where a testbed leaves traces of its progress."""

    cache: PrivateCache
    out: Path

    def booting(self, name: str) -> list[Path]:
        return list((self.cache.path / "snapshots").glob(f".*.partial/{name}"))

    def running(self, name: str) -> list[Path]:
        return list((self.cache.path / "run").glob(f"*/{name}"))

    def log_holds(self, text: str) -> bool:
        return any(text in file.read_text(errors="replace") for file in self.booting("console.log"))

    def saved_bytes(self) -> int:
        return sum(file.stat().st_blocks * 512 for file in self.booting("state"))

    def frames(self) -> int:
        """Return how many frames have been recorded, about; -1 when there is no record yet."""
        file = self.out / "wire.pcap"
        return (file.stat().st_size - PCAP_HEADER_BYTES) // FRAME_BYTES if file.exists() else -1


Moment = "Callable[[Place], object]"
NEW_GUEST: dict[str, Moment] = {
    "boot begins": lambda at: at.booting(""),
    "QEMU starts": lambda at: at.cache.qemu(),
    "the kernel speaks": lambda at: at.log_holds("Linux version"),
    "saving": lambda at: at.saved_bytes() > 0,
}
SAVED_GUEST: dict[str, Moment] = {
    "a run begins": lambda at: at.running(""),
    "QEMU restores": lambda at: at.running("qemu.log") and at.cache.qemu(),
    "the wire is there": lambda at: at.frames() >= 0,
    "the first frames": lambda at: at.frames() >= 1,
    "half of the frames": lambda at: at.frames() >= FRAMES // 2,
    "most frames": lambda at: at.frames() >= FRAMES * 3 // 4,
}
BOOTING_QEMU = ("QEMU starts", "the kernel speaks")
RUNNING_QEMU = ("QEMU restores", "the first frames", "most frames")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    directory = tmp_path_factory.mktemp("killed")
    (directory / "scenario.yaml").write_text(SCENARIO)
    return Place(PrivateCache(directory / "cache"), directory / "out")


@pytest.fixture
def unsaved(place: Place) -> Place:
    """Return the place without any snapshot: a run boots first."""
    for entry in place.cache.entries():
        shutil.rmtree(entry)
    return place


@pytest.fixture(scope="module")
def recorded(place: Place, request_for: Callable[..., Request]) -> str:
    """Return the digest of an undisturbed run, which starts from a snapshot."""
    shared = prepare(request_for("rx-steady", nic="igb"))
    shutil.copytree(shared, place.cache.path / "snapshots" / shared.name)
    return assert_right(place.cache.call(*words(place)))


@pytest.fixture
def saved(place: Place, recorded: str) -> Place:
    """Return the place with a snapshot: a run restores it."""
    assert recorded
    assert place.cache.entries()
    return place


def words(place: Place) -> tuple[str | Path, ...]:
    scenario = place.cache.path.with_name("scenario.yaml")
    return ("run", scenario, "--nic", "igb", "--out", place.out, "--pcap", "--json")


def assert_right(ended: Ended) -> str:
    """See that a run came to its verdict; return the digest."""
    assert (ended.status, ended.err) == (0, ""), ended
    document = ended.document()
    assert document["verdict"] == "pass"
    assert document["counters"]["frames_to_socket"] == FRAMES
    digest: str = document["trace"]["sequence_digest"]
    return digest


def strike(place: Place, moment: Moment, name: str, blow: Callable[[Victim], None], *options: str) -> Ended:
    """Start a run, wait for a moment, deal the blow, and see that nothing is left; return how testbed ended."""
    (place.out / "wire.pcap").unlink(missing_ok=True)
    with place.cache.started(*words(place), *options) as victim:
        victim.wait_for(lambda: moment(place), name)
        blow(victim)
        ended = victim.end(PROMPT_S)
    place.cache.assert_nothing_left()
    return ended


def assert_broken(ended: Ended) -> None:
    assert ended.status == 3, ended
    assert ended.err.startswith("testbed: ")
    assert ended.err.count("\n") == 1, ended.err
    assert "QEMU" in ended.err
    document = ended.document()
    assert document["verdict"] == "broken"
    assert f"testbed: {document['error']}\n" == ended.err


def assert_interrupted(ended: Ended) -> None:
    assert (ended.status, ended.out) == (130, "")
    assert ended.err.strip() == "testbed: interrupted"


@pytest.mark.parametrize("name", NEW_GUEST)
def test_kill_9_of_testbed_while_a_guest_boots_leaves_no_process_lock_or_entry(
    unsaved: Place, name: str
) -> None:
    ended = strike(unsaved, NEW_GUEST[name], name, lambda victim: victim.kill(), *SOONER)
    assert (ended.status, ended.out) == (-signal.SIGKILL, "")
    assert unsaved.cache.entries() == []
    assert unsaved.cache.leftovers()  # for the next run to remove


@pytest.mark.parametrize("name", BOOTING_QEMU)
def test_kill_9_of_qemu_while_a_guest_boots_is_a_broken_run(unsaved: Place, name: str) -> None:
    assert_broken(strike(unsaved, NEW_GUEST[name], name, lambda _: unsaved.cache.kill_qemu(), *SOONER))
    assert unsaved.cache.entries() == []
    assert unsaved.cache.leftovers() == []


def test_ctrl_c_while_a_guest_boots_ends_at_once(unsaved: Place) -> None:
    moment = "the kernel speaks"
    assert_interrupted(strike(unsaved, NEW_GUEST[moment], moment, lambda victim: victim.interrupt(), *SOONER))
    assert unsaved.cache.entries() == []
    assert unsaved.cache.leftovers() == []


@pytest.mark.parametrize("name", SAVED_GUEST)
def test_the_run_after_a_kill_9_of_testbed_clears_up_and_is_right(
    saved: Place, recorded: str, name: str
) -> None:
    ended = strike(saved, SAVED_GUEST[name], name, lambda victim: victim.kill())
    assert (ended.status, ended.out) == (-signal.SIGKILL, "")
    assert saved.cache.leftovers()
    assert assert_right(saved.cache.call(*words(saved))) == recorded
    assert saved.cache.leftovers() == []


@pytest.mark.parametrize("name", RUNNING_QEMU)
def test_kill_9_of_qemu_is_a_broken_run(saved: Place, name: str) -> None:
    assert_broken(strike(saved, SAVED_GUEST[name], name, lambda _: saved.cache.kill_qemu()))
    assert saved.cache.leftovers() == []


def test_ctrl_c_in_a_run_ends_at_once(saved: Place) -> None:
    moment = "half of the frames"
    assert_interrupted(strike(saved, SAVED_GUEST[moment], moment, lambda victim: victim.interrupt()))
    assert saved.cache.leftovers() == []


def test_the_run_after_all_this_is_right(saved: Place, recorded: str) -> None:
    assert assert_right(saved.cache.call(*words(saved))) == recorded
    saved.cache.assert_nothing_left()
    assert saved.cache.leftovers() == []
