"""What testbed cache keeps and removes, in caches made up for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import filelock
import msgspec
import pytest
from click.testing import CliRunner

from testbed import inventory
from testbed.cache import ORIGIN, Origin, build_once, cache_dir, hold, locked
from testbed.cli import cache as command
from testbed.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BASE = "0" * 16
TOOLCHAIN = "toolchain:now"
HOLDER = """
import sys
from pathlib import Path
from testbed.cache import hold
print(hold(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a toolchain of identity ``now`` and the image BASE be current."""
    monkeypatch.setenv("TESTBED_CACHE", str(tmp_path / "cache"))

    def open_toolchain(kind: str) -> SimpleNamespace:
        if kind == "host":
            raise HostError("this host has no QEMU")
        return SimpleNamespace(identity="now")

    monkeypatch.setattr(inventory, "open_toolchain", open_toolchain)
    monkeypatch.setattr(inventory, "current_root", lambda: None)
    monkeypatch.setattr(inventory.image, "key", lambda _toolchain: BASE)
    return cache_dir()


def entry(name: str, *made_of: str, days: float = 0) -> Path:
    """Make an entry of the cache that was last used some days ago."""
    path = cache_dir() / name
    path.mkdir(parents=True)
    (path / "data").write_bytes(b"x" * 10_000)
    if made_of:
        (path / ORIGIN).write_bytes(msgspec.json.encode(Origin("made up", made_of)))
    then = time.time() - days * 86400
    os.utime(path, (then, then))
    return path


def link(name: str, target: Path) -> None:
    target.with_name(name).symlink_to(target.name)


def number(digit: str) -> str:
    return digit * 16


def states() -> dict[str, str]:
    return {f"{each.kind}/{each.name}": each.state for each in inventory.examine()}


@pytest.fixture
def usual() -> dict[str, Path]:
    """Fill the cache as a run leaves it."""
    kernel = entry(f"kernels/{number('a')}")
    link("debian-trixie", kernel)
    names = {
        "kernel": kernel,
        "base": entry(f"images/{BASE}", TOOLCHAIN),
        "image": entry(f"images/{number('1')}", f"images/{BASE}"),
        "vmlinux": entry(f"vmlinux/{number('2')}", TOOLCHAIN, f"kernels/{number('a')}"),
        "variant": entry(f"variants/{number('3')}", TOOLCHAIN, f"kernels/{number('a')}", days=99),
    }
    made_of = (TOOLCHAIN, f"images/{number('1')}", f"vmlinux/{number('2')}")
    return {**names, "snapshot": entry(f"snapshots/{number('4')}", *made_of, days=3)}


def test_what_a_run_leaves_is_current_and_stays(usual: dict[str, Path]) -> None:
    assert set(states().values()) == {"current"}
    assert inventory.prune() == []
    assert all(path.exists() for path in usual.values())


def test_a_snapshot_that_nobody_used_for_long_goes_with_what_only_it_needs(usual: dict[str, Path]) -> None:
    removed = {each.kind for each in inventory.prune(days=2)}
    assert removed == {"snapshots", "images", "vmlinux"}
    assert usual["base"].exists()
    assert usual["variant"].exists()
    assert not usual["image"].exists()


def test_with_another_kernel_everything_made_with_the_old_one_goes(usual: dict[str, Path]) -> None:
    (cache_dir() / "kernels/debian-trixie").unlink()
    link("debian-trixie", entry(f"kernels/{number('b')}"))
    removed = {each.path: each.why for each in inventory.prune()}
    assert set(removed) == {usual[name] for name in ("kernel", "image", "vmlinux", "variant", "snapshot")}
    assert removed[usual["kernel"]] == "superseded"
    assert removed[usual["variant"]] == f"made with kernels/{number('a')}, which is superseded"
    assert states() == {f"kernels/{number('b')}": "current", f"images/{BASE}": "current"}


def test_with_another_agent_images_and_snapshots_go(
    usual: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory.image, "key", lambda _toolchain: number("f"))
    inventory.prune()
    assert [name for name, path in usual.items() if path.exists()] == ["kernel", "variant"]


def test_with_another_toolchain_all_that_it_made_goes(
    usual: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    new = SimpleNamespace(identity="newer")
    monkeypatch.setattr(inventory, "open_toolchain", lambda _kind: new)
    monkeypatch.setattr(inventory.image, "key", lambda _toolchain: number("f"))
    inventory.prune()
    assert [name for name, path in usual.items() if path.exists()] == ["kernel"]


def test_an_old_toolchain_root_goes_and_its_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (entry(f"toolchain/{number(digit)}.{number('c')}") for digit in "de")
    link(number("d"), old)
    link(number("e"), new)
    monkeypatch.setattr(inventory, "current_root", lambda: new)
    assert [each.path for each in inventory.prune()] == [old]
    assert sorted(path.name for path in (cache_dir() / "toolchain").iterdir()) == [number("e"), new.name]


@pytest.fixture
def holder(usual: dict[str, Path]) -> Iterator[Path]:
    """Let another process hold the variant."""
    argv = [sys.executable, "-c", HOLDER, str(usual["variant"])]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield usual["variant"]
        process.kill()


def test_what_a_running_testbed_holds_stays(holder: Path) -> None:
    (cache_dir() / "kernels/debian-trixie").unlink()
    assert states()[f"variants/{holder.name}"] == "in use"
    inventory.prune()
    assert holder.exists()


def test_what_a_killed_testbed_held_is_free_again(usual: dict[str, Path], holder: Path) -> None:
    assert time.time() - holder.stat().st_mtime < 60  # taking it was a use
    del holder
    assert states()[f"variants/{usual['variant'].name}"] == "current"


def test_an_entry_that_was_removed_and_made_again_is_held_anew() -> None:
    first = build_once(cache_dir() / "variants" / number("5"), lambda path: (path / "one").touch())
    (first / "one").unlink()
    first.rmdir()
    assert not hold(first)
    again = build_once(first, lambda path: (path / "two").touch(), Origin("again", (TOOLCHAIN,)))
    assert sorted(path.name for path in again.iterdir()) == [ORIGIN, "two"]
    with inventory._exclusive(again) as free:
        assert not free


def test_builds_and_runs_of_the_dead_go_and_those_of_the_living_stay() -> None:
    partial, building = (entry(f"variants/.{number(digit)}.partial") for digit in "67")
    ended, running = (entry(f"run/999999{digit}-x") for digit in "12")
    for path in (ended, running):
        (path / "alive").touch()
    with locked(f"variants-{number('7')}"), filelock.FileLock(running / "alive"):
        removed = {each.path for each in inventory.prune()}
    assert removed == {partial, ended}
    assert building.exists()
    assert running.exists()


def test_what_is_not_ours_to_judge_is_shown_and_kept() -> None:
    entry("corpus/igb", days=99)
    (shown,) = inventory.examine()
    assert (shown.kind, shown.state) == ("corpus", "current")
    assert shown.bytes >= 10_000
    assert inventory.prune() == []


def test_the_command_prints_totals(usual: dict[str, Path]) -> None:
    runner = CliRunner()
    text = runner.invoke(command.command, ["--prune", "--days", "2"]).output
    assert f"removed snapshots/{usual['snapshot'].name}" in text
    assert "MB freed" in text
    document = json.loads(runner.invoke(command.command, ["--json"]).output)
    assert document["schema_version"] == 1
    assert document["bytes"] == sum(each["bytes"] for each in document["entries"]) > 0
    assert document["removed"] == []
