"""The command line with real guests: results kept, replayed and shown, and a machine that does not play along."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from victims import Cache, PrivateCache

from testbed.kernel import resolve

if TYPE_CHECKING:
    from pathlib import Path

    from victims import Ended


@pytest.fixture(scope="module")
def out(cache: Cache, scenario: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run that passed."""
    directory = tmp_path_factory.mktemp("out") / "kept"
    ended = cache.call("run", scenario, "--nic", "igb", "--out", directory, "--pcap")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("pass ")
    return directory


def assert_one_line(ended: Ended, status: int, text: str) -> None:
    assert ended.status == status, ended
    assert ended.err.startswith("testbed: ")
    assert ended.err.count("\n") == 1, ended.err
    assert text in ended.err


def test_a_run_keeps_what_it_saw(out: Path) -> None:
    kept = {file.name for file in out.iterdir() if not file.name.startswith(".")}
    assert kept == {"result.json", "trace.npy", "console.log", "scenario.yaml", "wire.pcap"}


def test_show_tells_the_run(cache: Cache, out: Path) -> None:
    for place in (out, out / "result.json"):
        ended = cache.call("show", place)
        assert (ended.status, ended.err) == (0, "")
        assert ended.out.startswith("pass  one-burst on igb")


def test_replay_of_the_same_gives_the_same_sequence(cache: Cache, out: Path) -> None:
    assert_one_line(cache.call("replay", out), 0, "the sequence of events is the same")


def test_replay_of_one_frame_more_gives_another_sequence(cache: Cache, out: Path, tmp_path: Path) -> None:
    document = json.loads((out / "result.json").read_text())
    inject = next(step for step in document["program"]["steps"] if step["step"] == "inject")
    inject["count"] += 1
    (tmp_path / "result.json").write_text(json.dumps(document))
    assert_one_line(cache.call("replay", tmp_path), 1, "the sequence of events is another one")


def test_several_runs_are_one_document_of_equal_sequences(cache: Cache, scenario: Path) -> None:
    ended = cache.call("run", scenario, "--nic", "igb", "--runs", "2", "--json")
    assert (ended.status, ended.err) == (0, "")
    runs = ended.document()["runs"]
    assert len(runs) == 2
    assert runs[0]["trace"] == runs[1]["trace"]


def test_bisect_tells_good_bad_skip_and_wrong_usage(cache: Cache, scenario: Path) -> None:
    good = cache.call("run", scenario, "--nic", "igb", "--bisect", "--rule", "chunk-single-owner")
    skip = cache.call("run", "ring-full", "--nic", "igb", "--kernel", "debian:trixie", "--bisect")
    wrong = cache.call("run", scenario, "--nic", "igb", "--bisect", "--rule", "nope")
    assert (good.status, skip.status, wrong.status) == (0, 125, 128)


def test_a_violated_rule_is_status_1_with_bisect_too(cache: Cache, tmp_path: Path) -> None:
    words = ("run", "ring-full", "--nic", "igb", "--variant", "igb/ring-full-exit-naive")
    for options in ((), ("--bisect", "--rule", "chunk-single-owner")):
        ended = cache.call(*words, *options, "--out", tmp_path / "out")
        assert (ended.status, ended.err) == (1, "")
    shown = cache.call("show", tmp_path / "out", "chunk-single-owner")
    assert shown.status == 0
    assert shown.out.count("\n") > 1


def test_a_kernel_that_cannot_do_it_is_status_4_and_one_line(cache: Cache) -> None:
    ended = cache.call("run", "ring-full", "--nic", "igb", "--kernel", "debian:trixie")
    assert_one_line(ended, 4, "igb has zero_copy from kernel 6.14 on")
    assert ended.out == ""


def test_a_file_that_is_no_kernel_is_status_3(cache: Cache, scenario: Path) -> None:
    kernel = f"image:{scenario},{resolve().modules}"
    ended = cache.call("run", scenario, "--nic", "igb", "--kernel", kernel, "--json")
    assert_one_line(ended, 3, "is not an x86 kernel image")
    assert ended.document()["verdict"] == "broken"


def test_a_second_testbed_with_the_same_directory_is_status_3(
    cache: Cache, scenario: Path, out: Path, tmp_path: Path
) -> None:
    assert out.exists()  # there is a snapshot
    shared = tmp_path / "shared"
    with cache.started("run", scenario, "--nic", "igb", "--out", shared, "--pcap", "--runs", "3") as first:
        first.wait_for((shared / "run-1" / "wire.pcap").exists, "its first run")
        second = cache.call("run", scenario, "--nic", "igb", "--out", shared, "--json")
        assert_one_line(second, 3, f"another testbed is writing to {shared}")
        assert second.document()["exit_status"] == 3
        assert first.end().status == 0


# A cache that cannot be written to, in a mount namespace of testbed's own


def mounted(shell: str) -> tuple[str, ...]:
    """Return the start of an argv: the rest runs where ``shell`` has mounted something."""
    mapping = () if os.geteuid() == 0 else ("--map-root-user",)
    return ("unshare", "--mount", *mapping, "sh", "-ec", f'{shell}; exec "$@"', "sh")


@pytest.mark.parametrize("made", ["", "locks run snapshots"], ids=["new", "used before"])
def test_a_read_only_cache_is_status_3(scenario: Path, tmp_path: Path, made: str) -> None:
    cache = PrivateCache(tmp_path / "cache")
    for name in made.split():
        (cache.path / name).mkdir()
    prefix = mounted(f"mount --bind {cache.path} {cache.path}; mount -o remount,bind,ro {cache.path}")
    ended = cache.call("run", scenario, "--nic", "igb", "--json", prefix=prefix)
    assert_one_line(ended, 3, "point TESTBED_CACHE to a directory you can write to")
    assert "read-only" in ended.err
    assert ended.document()["verdict"] == "broken"


@pytest.mark.parametrize(
    ("place", "options"),
    [("run", "nr_inodes=2"), ("snapshots", "size=16m")],
    ids=["no room to run", "no room to save"],
)
def test_a_full_cache_is_status_3_and_says_so(
    scenario: Path, tmp_path: Path, place: str, options: str
) -> None:
    cache = PrivateCache(tmp_path / "cache")
    (cache.path / place).mkdir()
    prefix = mounted(f"mount -t tmpfs -o {options} tmpfs {cache.path / place}")
    ended = cache.call(
        "run", scenario, "--nic", "igb", "--clock", "real", "--json", prefix=prefix
    )  # it boots sooner
    assert_one_line(ended, 3, "No space left on device")
    assert ended.document()["verdict"] == "broken"
    cache.assert_nothing_left()
