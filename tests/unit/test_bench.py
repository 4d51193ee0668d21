"""The bench: what it makes of its measurements, and how it measures, with programs that play QEMU and testbed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from test_report import STOCK, result_of

import testbed.bench.host as host_module
import testbed.bench.runs as runs_module
from testbed.bench import FULL, QUICK, Bench, MachineRecord, ModelRecord, Repetition
from testbed.bench.boots import PROMPT, plain_boot
from testbed.bench.host import describe_machine
from testbed.bench.model import bar_address
from testbed.bench.records import BOOT, DIGESTS, FIRST_RUN, LIBRARY, PLAIN, RESTORE, RUN, SAVE, TARGETS_S
from testbed.bench.runs import private_cache, repetition, run_words, whole_run
from testbed.bench.summary import missed_targets, summarise
from testbed.cli import bench as command_module
from testbed.cli import main
from testbed.errors import BootError, BuildError, GuestLost, HostError
from testbed.guest.accelerator import Accelerator
from testbed.result import TraceRecord
from testbed.run import Run

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = {
    PLAIN: [6.0, 8.0, 7.0],
    BOOT: [7.0],
    SAVE: [0.5],
    RESTORE: [0.1, 0.2, 0.9],
    FIRST_RUN: [14.0],
    RUN: [3.5, 1.75, 4.5],
    LIBRARY: [200.0],
}
WORDS = ["run", "ring-full", "--nic", "igb"]
MODEL = ModelRecord(nic="stmmac", mmio_read_us=[9.0, 20.0, 50.0], median_us=20.0, idle_cpu_percent=0.5)
EQUAL = Repetition(what="ring-full", runs=20, digests=1, broken=0)
MACHINE = MachineRecord(
    cpu="A CPU",
    cores=2,
    memory_mib=4096,
    kernel="Linux 6.1",
    python="3.11",
    qemu="11.1",
    accelerator="tcg",
    load=0.1,
)


class PlayedToolchain:
    """Starts Python instead of QEMU."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.command: list[str] = []

    def argv(self, command: list[str], **_paths: object) -> list[str]:
        self.command = command
        return [sys.executable, "-c", self.text]

    def run(self, command: list[str], timeout_s: float) -> str:
        assert command == ["qemu-system-x86_64", "--version"]
        assert timeout_s > 0
        return "QEMU emulator version 11.1.3 (Debian)\nCopyright\n"


def test_targets_are_those_of_the_issues() -> None:
    assert TARGETS_S == {RESTORE: 0.3, RUN: 4.0, FIRST_RUN: 20.0, LIBRARY: 240.0}
    assert DIGESTS == 1
    assert (FULL.repetitions, FULL.runs, QUICK.repetitions) == (20, 5, 3)


def test_timings_keep_their_order_and_compare_medians_with_the_plain_boot() -> None:
    timings = summarise(SECONDS, WORDS)
    assert [each.name for each in timings] == list(SECONDS)
    by_name = {each.name: each for each in timings}
    assert by_name[PLAIN].median_s == 7.0
    assert by_name[PLAIN].ratio == 1.0
    assert by_name[RUN].median_s == 3.5
    assert by_name[RUN].ratio == 0.5
    assert "testbed run ring-full --nic igb`, with a snapshot" in by_name[RUN].what


def test_a_median_within_its_target_is_met_although_one_sample_is_not() -> None:
    assert missed_targets(summarise(SECONDS, WORDS), [EQUAL], MODEL) == []


@pytest.mark.parametrize(
    ("name", "seconds", "said"),
    [
        (RESTORE, 0.31, "restore took 0.31 s, target 0.3 s"),
        (RUN, 4.2, "run took 4.2 s, target 4 s"),
        (FIRST_RUN, 20.5, "first run took 20.5 s, target 20 s"),
    ],
)
def test_a_timing_over_its_target_is_named(name: str, seconds: float, said: str) -> None:
    assert missed_targets(summarise(SECONDS | {name: [seconds]}, WORDS), [EQUAL], MODEL) == [said]


def test_what_has_no_target_may_take_any_time() -> None:
    assert missed_targets(summarise(SECONDS | {BOOT: [500.0], SAVE: [500.0]}, WORDS), [], MODEL) == []


@pytest.mark.parametrize(
    ("digests", "broken", "said"),
    [
        (2, 0, "2 different digests in 20 runs, expected 1"),
        (1, 3, "3 of 20 runs broken: QEMU ended"),
        (0, 20, "20 of 20 runs broken: QEMU ended"),
    ],
)
def test_runs_that_differ_or_break_are_named(digests: int, broken: int, said: str) -> None:
    bad = Repetition(what="tx-only", runs=20, digests=digests, broken=broken, error="QEMU ended")
    assert missed_targets([], [EQUAL, bad], MODEL) == [f"tx-only: {said}"]


def test_a_slow_or_restless_model_is_named() -> None:
    slow = ModelRecord(nic="stmmac", mmio_read_us=[21.0], median_us=21.0, idle_cpu_percent=0.6)
    assert missed_targets([], [], slow) == [
        "reading a register of stmmac took 21 us, target 20 us",
        "stmmac's model took 0.6 % of a core when idle, target 0.5 %",
    ]


def test_the_models_registers_are_found_behind_a_bridge() -> None:
    other = {"id": {"vendor": 0x8086, "device": 1}, "regions": []}
    regions = [{"bar": 2, "address": 0x2000}, {"bar": 0, "address": 0x1000}]
    eqos = {"id": {"vendor": 0x8086, "device": 0x4B30, "subsystem": 1}, "regions": regions}
    bridge = {**other, "pci_bridge": {"devices": [eqos]}}
    assert bar_address([{"devices": [other, bridge]}]) == 0x1000
    with pytest.raises(GuestLost, match="8086:4b30"):
        bar_address([{"devices": [other]}, {}])


def test_virtual_time_is_asked_for_only_where_it_is_not_the_default() -> None:
    assert run_words("tcg") == WORDS
    assert run_words("kvm") == [*WORDS, "--clock", "virtual"]


def test_a_plain_boot_ends_at_the_prompt(tmp_path: Path) -> None:
    toolchain = PlayedToolchain(
        f"import time; print('[ 1.0] log\\r\\n{PROMPT.decode()}', end='', flush=True); time.sleep(60)"
    )
    assert plain_boot(toolchain, tmp_path / "vmlinuz", tmp_path / "cpio", limit_s=30) < 20
    assert "-icount" not in toolchain.command
    assert "q35,accel=tcg" in toolchain.command


@pytest.mark.parametrize("ending", ["", "; import time; time.sleep(60)"], ids=["ends", "hangs"])
def test_a_plain_boot_without_a_prompt_says_how_far_it_came(ending: str, tmp_path: Path) -> None:
    toolchain = PlayedToolchain(f"print('[ 1.0] first'); print('[ 2.0] last', flush=True){ending}")
    with pytest.raises(BootError, match=r"no shell within 2 s; last line of its log: \[ 2\.0\] last"):
        plain_boot(toolchain, tmp_path / "vmlinuz", tmp_path / "cpio", limit_s=2)


def test_a_private_cache_shares_everything_but_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    for name in ("kernels", "images", "locks", "snapshots", "run"):
        (shared / name).mkdir(parents=True)
    monkeypatch.setenv("TESTBED_CACHE", str(shared))
    with private_cache(tmp_path) as cache:
        assert sorted(entry.name for entry in cache.iterdir()) == ["images", "kernels", "locks"]
        (cache / "images" / "new").touch()
    assert (shared / "images" / "new").exists()


@pytest.fixture
def played_testbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a script where the program testbed would be, beside the interpreter."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return tmp_path / "testbed"


def play(script: Path, text: str) -> None:
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)


@pytest.mark.parametrize("status", [0, 1])
def test_a_whole_run_is_one_with_a_verdict(status: int, played_testbed: Path, tmp_path: Path) -> None:
    play(played_testbed, f'echo "$TESTBED_CACHE $*" >{tmp_path}/called; exit {status}')
    assert 0 < whole_run(WORDS, tmp_path / "cache") < 20
    assert (tmp_path / "called").read_text() == f"{tmp_path}/cache run ring-full --nic igb\n"


@pytest.mark.parametrize("status", [2, 3, 4])
def test_a_whole_run_without_a_verdict_is_not_timed(
    status: int, played_testbed: Path, tmp_path: Path
) -> None:
    play(played_testbed, f'echo "testbed: no such thing" >&2; exit {status}')
    with pytest.raises(GuestLost, match=f"ended with {status}: testbed: no such thing"):
        whole_run(WORDS, tmp_path)


def test_a_whole_run_that_never_ends_is_ended(
    played_testbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "RUN_LIMIT_S", 1.0)
    play(played_testbed, "exec sleep 60")
    with pytest.raises(BuildError, match="did not end within 1 s"):
        whole_run(WORDS, tmp_path)


@pytest.mark.usefixtures("played_testbed")
def test_a_missing_program_is_told(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"there is no .*testbed"):
        whole_run(WORDS, tmp_path)


def played_runs(monkeypatch: pytest.MonkeyPatch, *runs: tuple[str, str | None]) -> None:
    """Let run() return results with these verdicts and digests."""
    upcoming = iter(runs)

    def run(_request: object) -> Run:
        verdict, digest = next(upcoming)
        trace = TraceRecord(events=1, lost=0, sequence_digest=digest) if digest else None
        error = None if digest else f"{verdict}, once"
        return Run(result_of(STOCK, verdict=verdict, trace=trace, error=error))

    monkeypatch.setattr(runs_module, "run", run)


def test_equal_runs_have_one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    played_runs(monkeypatch, ("fail", "aa"), ("fail", "aa"), ("fail", "aa"))
    assert repetition("x", None, 3) == Repetition(what="x", runs=3, digests=1, broken=0)


def test_another_digest_and_a_broken_run_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    played_runs(monkeypatch, ("pass", "aa"), ("pass", "bb"), ("broken", None), ("unsupported", None))
    seen = repetition("x", None, 4)
    assert seen == Repetition(what="x", runs=4, digests=2, broken=2, error="broken, once")
    assert not seen.met


def test_the_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "probe", lambda _toolchain: Accelerator("tcg", "no /dev/kvm"))
    machine = describe_machine(PlayedToolchain(""))
    assert machine.qemu == "11.1.3 (Debian)"
    assert machine.accelerator.startswith("tcg (no /dev/kvm)")
    assert machine.cpu
    assert machine.cores > 0
    assert machine.memory_mib > 100


def measured(*missed: str) -> Bench:
    return Bench(
        started="2026-01-01T00:00:00+00:00",
        machine=MACHINE,
        guest_kernel="7.3.4 (linux 7.3.4-1)",
        timings=summarise(SECONDS, WORDS),
        repetitions=[EQUAL],
        model=MODEL,
        missed=list(missed),
    )


def called(monkeypatch: pytest.MonkeyPatch, done: Bench, *options: str) -> int:
    """Run the command with measurements made up; return its exit status."""
    monkeypatch.setattr(command_module, "open_toolchain", lambda: None)
    monkeypatch.setattr(command_module, "bench", lambda _toolchain, _effort, say: say("measuring") or done)
    monkeypatch.setattr(sys, "argv", ["testbed", "bench", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_table_names_machine_targets_and_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, measured()) == 0
    out, err = capsys.readouterr()
    assert "A CPU, 2 cores, 4096 MiB, Linux 6.1" in out
    assert ["restore", "0.20", "0.10", "0.90", "3", "0.03", "0.3"] in [
        line.split() for line in out.splitlines()
    ]
    assert ["ring-full", "20", "1", "1", "0"] in [line.split() for line in out.splitlines()]
    assert "all targets met" in out
    assert err == "bench: measuring\n"


def test_a_missed_target_is_told_and_is_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, measured("run took 5 s, target 4 s")) == 1
    assert "missed: run took 5 s, target 4 s" in capsys.readouterr().out


def test_json_is_one_document(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(monkeypatch, measured("x"), "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["machine"]["cores"] == 2
    assert document["missed"] == ["x"]
    assert [each["name"] for each in document["timings"]] == list(SECONDS)
