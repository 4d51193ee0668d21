"""The command line: what it says and how it exits when the user or the machine is at fault. No guest is started."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, NamedTuple, Protocol

import filelock
import pytest

import testbed.cli.run as run_command
from testbed import nic, order
from testbed.cli import main
from testbed.kernel.kernel import Kernel
from testbed.result import KernelRecord, Result
from testbed.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Said(NamedTuple):
    """How a command line ended."""

    status: int
    out: str
    err: str


class CommandLine(Protocol):
    def __call__(self, *words: str) -> Said: ...


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let there be no toolchain, whatever this machine has."""
    monkeypatch.setenv("TESTBED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def testbed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    def call(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["testbed", *words])
        with pytest.raises(SystemExit) as end:
            main()
        return Said(int(end.value.code or 0), *capsys.readouterr())

    return call


def assert_one_line(said: Said, status: int, text: str) -> None:
    assert said.status == status
    assert said.err.startswith("testbed: ")
    assert said.err.count("\n") == 1
    assert said.err.endswith("\n")
    assert text in said.err


RUN = ("run", "ring-full", "--nic", "igb")
WRONG = {
    "nic": (("run", "ring-full", "--nic", "nope"), "unknown nic 'nope'; choose one of: e1000e, igb"),
    "kernel": ((*RUN, "--kernel", "nope"), "unknown kernel 'nope'"),
    "part of a kernel": (
        (*RUN, "--kernel", "debian:trixie@nope"),
        "expected a part such as @variant=NAME, seen @nope",
    ),
    "variant of a kernel": ((*RUN, "--kernel", "@variant=igb/nope"), "unknown variant 'igb/nope'"),
    "scenario": (("run", "nope", "--nic", "igb"), "seen 'nope'; scenarios are "),
    "file": (
        ("run", "./nope.yaml", "--nic", "igb"),
        "nope.yaml: expected a scenario file, seen: No such file",
    ),
    "variant": ((*RUN, "--variant", "igb/ring-ful-exit"), "did you mean igb/ring-full-exit?"),
    "setting": ((*RUN, "--set", "nope=1"), "expected the name of a setting, seen 'nope'"),
    "value of a setting": ((*RUN, "--set", "rx_ring=65"), "a multiple of 8, seen 65"),
    "setting without value": ((*RUN, "--set", "rx_ring"), "expected key=value after --set, seen 'rx_ring'"),
    "rule": ((*RUN, "--rule", "nope"), "there is no rule nope"),
    "rule to explain": (("explain", "nope"), "there is no rule nope"),
    "option": ((*RUN, "--nope"), "No such option '--nope'"),
    "command": (("nope",), "No such command 'nope'"),
    "list": (("list", "nope"), "'nope' is not one of 'nics'"),
    "number of runs": ((*RUN, "--runs", "0"), "0 is not in the range"),
    "time limit": ((*RUN, "--timeout", "nan"), "nan is not a number"),
    "clock": ((*RUN, "--clock", "nope"), "'nope' is not one of 'virtual', 'real'"),
    "want of a nic": (("run", "ring-full"), "Missing option '--nic'"),
    "want of a scenario": (("run", "--nic", "igb"), "Missing argument 'SCENARIO'"),
    "pcap without a place": ((*RUN, "--pcap"), "add --out DIR"),
    "result to show": (("show", "nope"), "cannot read nope: No such file"),
    "result to replay": (("replay", "nope"), "cannot read nope: No such file"),
}


@pytest.mark.parametrize(("words", "text"), WRONG.values(), ids=WRONG)
def test_wrong_usage_is_status_2_and_one_line_without_any_toolchain(
    testbed: CommandLine, words: tuple[str, ...], text: str
) -> None:
    said = testbed(*words)
    assert_one_line(said, 2, text)
    assert said.out == ""


@pytest.mark.parametrize(("words", "text"), WRONG.values(), ids=WRONG)
def test_wrong_usage_with_json_is_one_document_beside_the_line(
    testbed: CommandLine, words: tuple[str, ...], text: str
) -> None:
    said = testbed(*words, "--json")
    assert_one_line(said, 2, "")
    document = json.loads(said.out)
    assert document["exit_status"] == 2
    assert text in document["error"] or "--json" in document["error"]  # show and explain have no --json


SCENARIOS = {
    "not YAML": ("name: [1\nsteps: }", "file.yaml:"),
    "unknown step": ("name: a\nsteps:\n  - fill: all\n  - jump: 3\n", "file.yaml:4:"),
    "negative count": ("name: a\nsteps:\n  - inject: {count: -1, bytes: 64}\n", "file.yaml:3:"),
    "10^9 frames": ("name: a\nsteps:\n  - inject: {count: 1000000000, bytes: 64}\n", "file.yaml:3:"),
    "frame longer than any MTU allows": (
        "name: a\nsteps:\n  - inject: {count: 1, bytes: 9100}\n",
        "file.yaml:3:",
    ),
    "unknown rule": ("name: a\nmust_exercise: [nope]\nsteps:\n  - sleep_us: 1\n", "file.yaml:2:"),
    "no step": ("name: a\n", "file.yaml:"),
    "nothing": ("", "file.yaml:"),
}


@pytest.mark.parametrize(("text", "place"), SCENARIOS.values(), ids=SCENARIOS)
def test_a_wrong_scenario_is_status_2_with_file_and_line(
    testbed: CommandLine, tmp_path: Path, text: str, place: str
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    assert_one_line(testbed("run", str(file), "--nic", "igb"), 2, place)


def test_without_a_command_the_help_is_shown(testbed: CommandLine) -> None:
    said = testbed()
    assert said.status == 2
    assert said.err.startswith("Usage: testbed")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("statistics-agree", "statistics-agrees"), "w.toml:2: there is no rule statistics-agrees"),
        (("igb", "igp"), "w.toml:2: there is no driver igp; known are e1000e, igb"),
        (("reason", "raison"), "w.toml:2: in this waiver: Object contains unknown field `raison`"),
        (("[[waiver]]", "[[waiver"), "w.toml: expected [[waiver]] tables"),
    ],
)
def test_a_wrong_waiver_of_the_users_is_status_2_with_its_line(
    testbed: CommandLine, tmp_path: Path, change: tuple[str, str], text: str
) -> None:
    waiver = '\n[[waiver]]\ndriver = "igb"\nrule = "statistics-agree"\nreason = "r"\nreference = "f"\ncontrol = "c"\n'
    (tmp_path / "w.toml").write_text(waiver.replace(*change, 1))
    said = testbed("run", "ring-full", "--nic", "igb", "--waivers", str(tmp_path / "w.toml"))
    assert_one_line(said, 2, text)


def test_what_is_no_result_is_status_2(testbed: CommandLine, tmp_path: Path) -> None:
    for text in ("", "{}", "[1, 2]", '{"schema_version": 99}', '{"schema_version": 1, "runs": []}', "\0\xff"):
        (tmp_path / "result.json").write_text(text)
        assert_one_line(testbed("show", str(tmp_path)), 2, str(tmp_path / "result.json"))
        assert_one_line(testbed("replay", str(tmp_path)), 2, str(tmp_path / "result.json"))


def test_without_a_toolchain_root_set_up_is_the_remedy(testbed: CommandLine) -> None:
    said = testbed(*RUN, "--json")
    assert_one_line(said, 3, "there is no toolchain root")
    assert said.err.endswith("run: testbed setup\n")
    assert json.loads(said.out)["exit_status"] == 3


def test_a_host_without_qemu_is_status_3(testbed: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.toolchain.sandbox._on_path", lambda _name: None)
    assert_one_line(testbed(*RUN, "--toolchain", "host"), 3, "qemu-system-x86_64")


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nope"])
def test_a_cache_that_cannot_be_made_is_status_3(
    testbed: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TESTBED_CACHE", str(tmp_path / place))
    assert_one_line(testbed(*RUN), 3, "TESTBED_CACHE")


def test_a_directory_that_another_testbed_writes_is_status_3(testbed: CommandLine, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with filelock.FileLock(out / ".lock"):
        assert_one_line(testbed(*RUN, "--out", str(out)), 3, f"another testbed is writing to {out}")
    assert_one_line(testbed(*RUN, "--out", str(out)), 3, "there is no toolchain root")


def test_out_that_is_a_file_is_status_3(testbed: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    assert_one_line(testbed(*RUN, "--out", str(tmp_path / "out")), 3, "choose another --out")


def test_a_fault_of_testbed_itself_is_never_taken_for_a_violated_rule(
    testbed: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(_name: str) -> None:
        raise ZeroDivisionError("who did that")

    monkeypatch.setattr(nic, "get", fault)
    said = testbed(*RUN, "--json")
    assert said.status == 3
    assert "ZeroDivisionError" in said.err
    assert "who did that" in json.loads(said.out)["error"]
    assert testbed(*RUN, "--bisect").status == 125


def test_an_error_of_the_operating_system_is_one_line(
    testbed: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(_name: str) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/a/file")

    monkeypatch.setattr(nic, "get", fault)
    assert_one_line(testbed(*RUN), 3, "/a/file: No such file or directory")


def test_ctrl_c_is_status_130(testbed: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(nic, "get", interrupt)
    said = testbed(*RUN)
    assert (said.status, said.out, said.err.strip()) == (130, "", "testbed: interrupted")


# How a run ends, with what testbed.run says of it made up


def result_of(verdict: str, error: str | None = None) -> Result:
    return Result(
        verdict=verdict,
        kernel=KernelRecord(name="debian:any"),
        nic="igb",
        driver="igb",
        scenario="ring-full",
        clock="virtual",
        accelerator="tcg",
        error=error,
        program={"name": "a", "steps": [{"step": "sleep_us", "us": 1}]},
    )


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Let runs end as told, one after the other."""
    kernel = Kernel("debian:any", "7.3.0", "", tmp_path, tmp_path, tmp_path, None, "")
    monkeypatch.setattr(order, "open_toolchain", lambda _kind: None)
    monkeypatch.setattr(order, "resolve", lambda _spec, _toolchain, _progress: kernel)

    def let(*names: str) -> None:
        ends = iter(Run(result_of(name, f"why {name}" if name != "fail" else None)) for name in names)
        monkeypatch.setattr(run_command, "run", lambda _request: next(ends))

    return let


STATUSES = {
    ("pass",): (0, 0),
    ("fail",): (1, 1),
    ("broken",): (3, 125),
    ("unsupported",): (4, 125),
    ("pass", "unsupported"): (4, 125),
    ("unsupported", "broken", "pass"): (3, 125),
    ("broken", "fail", "unsupported"): (1, 1),
}


@pytest.mark.parametrize(("names", "statuses"), STATUSES.items())
def test_the_status_tells_the_worst_verdict(
    testbed: CommandLine, verdicts: Callable[..., None], names: tuple[str, ...], statuses: tuple[int, int]
) -> None:
    for options, status in zip(((), ("--bisect",)), statuses, strict=True):
        verdicts(*names)
        assert testbed(*RUN, "--runs", str(len(names)), *options).status == status


def test_bisect_says_128_to_wrong_usage(testbed: CommandLine) -> None:
    assert_one_line(testbed(*RUN, "--rule", "nope", "--bisect"), 128, "there is no rule nope")


@pytest.mark.parametrize("name", ["broken", "unsupported"])
def test_what_could_not_be_judged_is_one_line(
    testbed: CommandLine, verdicts: Callable[..., None], name: str
) -> None:
    verdicts(name, name)
    said = testbed(*RUN)
    assert said[1:] == ("", f"testbed: why {name}\n")
    said = testbed(*RUN, "--json")
    assert said.err == f"testbed: why {name}\n"
    assert json.loads(said.out)["verdict"] == name


def test_several_runs_are_one_document(testbed: CommandLine, verdicts: Callable[..., None]) -> None:
    verdicts("pass", "fail")
    said = testbed(*RUN, "--runs", "2", "--json")
    document = json.loads(said.out)
    assert document["schema_version"] == 1
    assert [each["verdict"] for each in document["runs"]] == ["pass", "fail"]


def test_two_formats_at_once_are_wrong_usage(testbed: CommandLine) -> None:
    assert_one_line(testbed(*RUN, "--ktap", "--json"), 2, "--json and --ktap exclude each other")
    assert_one_line(
        testbed(*RUN, "--ktap", "--format", "mail"), 2, "--ktap and --format mail exclude each other"
    )


def test_a_format_may_be_asked_for_by_name(testbed: CommandLine, verdicts: Callable[..., None]) -> None:
    for name in ("json", "ktap", "mail"):
        verdicts("pass", "pass")
        assert testbed(*RUN, "--format", name).out == testbed(*RUN, f"--{name}").out
    verdicts("pass")
    assert json.loads(testbed(*RUN, "--format", "json", "--json").out)["verdict"] == "pass"


@pytest.mark.parametrize("words", [("--json",), ("--format", "json"), ("--format=json",)])
def test_wrong_usage_is_a_document_where_one_was_asked_for(
    testbed: CommandLine, words: tuple[str, ...]
) -> None:
    said = testbed("run", "ring-full", "--nic", "none", *words)
    assert (said.status, json.loads(said.out)["exit_status"]) == (2, 2)


def test_ktap_has_a_point_for_each_run(testbed: CommandLine, verdicts: Callable[..., None]) -> None:
    verdicts("pass", "unsupported")
    said = testbed(*RUN, "--runs", "2", "--ktap")
    lines = said.out.splitlines()
    assert lines[:2] == ["KTAP version 1", "1..2"]
    assert [line for line in lines if line.startswith("ok ")] == [
        "ok 1 - ring-full on igb",
        "ok 2 - ring-full on igb # SKIP why unsupported",
    ]


def test_the_mail_is_about_the_worst_run(testbed: CommandLine, verdicts: Callable[..., None]) -> None:
    verdicts("pass", "unsupported", "broken", "unsupported")
    said = testbed(*RUN, "--runs", "4", "--mail")
    assert said.out.splitlines()[1] == "  why broken"
    assert "4: 1 pass, 2 unsupported, 1 broken" in said.out


def test_the_directory_keeps_each_of_several_runs(
    testbed: CommandLine, verdicts: Callable[..., None], tmp_path: Path
) -> None:
    verdicts("broken", "broken")
    assert testbed(*RUN, "--runs", "2", "--out", str(tmp_path / "out")).status == 3
    kept = sorted((tmp_path / "out").glob("run-*/result.json"))
    assert [json.loads(file.read_text())["error"] for file in kept] == ["why broken"] * 2
