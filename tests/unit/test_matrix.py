"""Products of runs: what a file or flags come to, how parts are cut, and how the runs are shown."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console
from test_report import REPAIRED, STOCK, printed, result_of

from testbed import nic
from testbed.cli import matrix as command
from testbed.errors import UsageError
from testbed.kernel import Kernel
from testbed.matrix import Done, Product, orders, read_product, shard
from testbed.matrix.places import keep, keep_unrun, place_of
from testbed.order import Order
from testbed.recorded import load_several
from testbed.report import matrix_junit, matrix_ktap, matrix_table
from testbed.report.page import matrix_page
from testbed.report.progress import MatrixProgress, left_line
from testbed.run import Request
from testbed.scenario import library, load

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def done(scenario: str = "ring-full", nic: str = "igb", **changes) -> Done:
    return Done(**{"order": Order(scenario=scenario, nic=nic), "directory": "x", **changes})


FAILED = done(result=result_of(STOCK), status=1)
PASSED = done("rx-steady", result=result_of(REPAIRED))
BROKEN = done("rx-steady", "e1000e", error="QEMU is gone", status=3)
UNABLE = done(nic="e1000e", error="no zero copy", status=4)
ALL = [FAILED, PASSED, BROKEN, UNABLE]


def test_a_product_is_every_combination_and_the_library_by_default() -> None:
    found = orders(Product(nics=("igb", "e1000e"), clocks=("virtual", "real"), seeds=(1, 2)))
    assert len(found) == len(set(map(Order.command, found))) == 2 * 2 * 2 * len(library())
    assert {order.jitter for order in found} == {1, 2}


def test_a_variant_goes_with_the_nics_of_its_driver_only() -> None:
    found = orders(
        Product(nics=("igb", "e1000e"), variants=("", "igb/ring-full-exit"), scenarios=("ring-full",))
    )
    assert [(order.nic, order.kernel) for order in found] == [
        ("igb", ""),
        ("igb", "@variant=igb/ring-full-exit"),
        ("e1000e", ""),
    ]
    with pytest.raises(UsageError, match="nothing is left of the product"):
        orders(Product(nics=("e1000e",), variants=("igb/ring-full-exit",)))


@pytest.mark.parametrize(
    "factor", [{"nics": ("x",)}, {"scenarios": ("x",)}, {"kernels": ("x",)}, {"variants": ("x/y",)}], ids=str
)
def test_unknown_names_are_told_before_anything_runs(factor: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(UsageError, match="x"):
        orders(Product(**{"nics": ("igb",), **factor}))


def test_shards_are_disjoint_and_all_of_it() -> None:
    work = orders(Product(nics=("igb", "e1000e")))
    parts = [shard(work, number, 5) for number in range(1, 6)]
    assert sorted(order.command() for part in parts for order in part) == sorted(map(Order.command, work))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_file_says_the_same_as_flags(tmp_path: Path) -> None:
    file = tmp_path / "nightly.toml"
    file.write_text('nics = ["igb"]\nkernels = ["", "debian:trixie"]\nseeds = [3]\n')
    assert read_product(file) == Product(nics=("igb",), kernels=("", "debian:trixie"), seeds=(3,))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nics = []", "nics"),
        ("kernels = ['']", "nics"),
        ("nics = ['igb']\nnic = 1", "nic"),
        ("nics = ['igb']\nclocks = ['slow']", "clocks"),
        ("nics = 'igb", "end of document"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(told)) as raised:
        read_product(file)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "at least --nics"),
        (["x.toml", "--nics", "igb"], "exclude each other"),
        (["x.toml"], "cannot read x.toml"),
        (["--nics", "igb", "--seeds", "a"], "seen 'a'"),
        (["--nics", "igb", "--seeds", "5-1"], "at least one seed"),
        (["--nics", "igb", "--clocks", "slow"], "seen 'slow'"),
        (["--nics", "igb", "--shard", "6/5"], "like 2/5"),
    ],
)
def test_wrong_flags_are_one_line(words: list[str], told: str) -> None:
    result = CliRunner().invoke(command.command, words)
    assert isinstance(result.exception, UsageError)
    assert told in str(result.exception)


def test_a_place_is_another_for_another_order_kernel_and_scenario(tmp_path: Path) -> None:
    order = Order(scenario="ring-full", nic="igb")
    kernel = Kernel("debian:any", "7.3.0", "", tmp_path, tmp_path, tmp_path, None, "")
    request = Request(None, kernel, nic.get("igb"), load("ring-full"))  # the place needs no toolchain
    other = [
        place_of(msgspec.structs.replace(order, jitter=1), request),
        place_of(order, replace(request, kernel=replace(kernel, identity="another"))),
        place_of(order, replace(request, scenario=load("rx-steady"))),
    ]
    assert place_of(order, request) == place_of(order, request)
    assert place_of(order, request).startswith("ring-full-igb-")
    assert len({place_of(order, request), *other}) == 4


def test_the_grid_has_a_place_for_each_run_and_counts_seeds() -> None:
    text = printed(matrix_table(ALL))
    assert re.search(r"ring-full +fail +unsupported", text)
    assert "ring-full-exit" in text
    assert re.search(r"rx-steady +pass +broken", text)
    assert "1 pass, 2 fail" in printed(matrix_table([FAILED, FAILED, done(result=result_of(REPAIRED))]))


def test_ktap_counts_what_never_ran_as_not_ok() -> None:
    lines = list(matrix_ktap(ALL))
    assert lines[:2] == ["KTAP version 1", "1..4"]
    assert lines[-4:] == [
        "# QEMU is gone",
        "not ok 3 - rx-steady on e1000e",
        "# no zero copy",
        "ok 4 - ring-full on e1000e # SKIP unsupported",
    ]


def test_junit_has_a_case_for_each_run() -> None:
    suite = ET.fromstring(matrix_junit(ALL))  # noqa: S314 - our own
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == (
        *("4", "1", "1", "1"),
    )
    (failure,) = suite.findall("testcase/failure")
    assert failure.get("message") == "ring-full-exit"
    assert failure.text
    assert "1 of 1 polls" in failure.text


def test_a_done_survives_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(FAILED), type=Done) == FAILED


def matrix_of(monkeypatch: pytest.MonkeyPatch, cache: Path, *words: str | Path) -> Result:
    """Run a matrix of one scenario on igb where the cache has nothing, so that no run can begin."""
    monkeypatch.setenv("TESTBED_CACHE", str(cache))
    return CliRunner().invoke(command.command, ["--nics", "igb", "--jobs", "1", *map(str, words)])


def test_what_never_came_to_a_run_is_kept_and_stands_in_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("--scenarios", "stack-only", "--out", tmp_path / "out")
    assert matrix_of(monkeypatch, tmp_path / "cache", *words).exit_code == 3
    (run,) = load_several(tmp_path / "out")
    assert (run.result.verdict, run.result.scenario, run.result.nic) == ("broken", "stack-only", "igb")
    assert "testbed setup" in (run.result.error or "")
    page = matrix_page([run])
    assert f'<a class="broken" href="#{run.place}">' in page
    assert (tmp_path / "out" / run.place / "scenario.yaml").exists()
    again = matrix_of(monkeypatch, tmp_path / "cache", *words)
    assert "(kept)" not in again.output  # what was in the way may be gone
    assert len(load_several(tmp_path / "out")) == 1


def test_a_run_takes_the_place_of_what_once_kept_it_from_running(tmp_path: Path) -> None:
    order = Order(scenario="ring-full", nic="igb", kernel="@variant=igb/ring-full-exit")
    place = keep_unrun(tmp_path, order, load("ring-full"), "no clang", 3)
    (unrun,) = load_several(tmp_path)
    assert unrun.result.kernel.asked == "debian:trixie-backports@variant=igb/ring-full-exit"
    result = result_of(STOCK, trace=None, program=unrun.result.program)
    keep(tmp_path, order, "ring-full-igb-1", result, "", None)
    assert [run.place for run in load_several(tmp_path)] == ["ring-full-igb-1"] != [place]


def test_a_scenario_with_words_that_the_device_lacks_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("name: wrong\nsteps:\n  - device: {command: dance}\n")
    words = ("--scenarios", str(file), "--nics", "stmmac")
    assert matrix_of(monkeypatch, tmp_path / "cache", *words).exit_code == 2


@pytest.mark.parametrize(
    ("total", "ended", "kept", "at_once", "elapsed_s", "told"),
    [
        (72, 0, 0, 2, 0.0, "0 of 72 done, 2 running, 70 left"),
        (72, 12, 0, 2, 24.0, "12 of 72 done, 2 running, 58 left, about 2 min to go"),
        (72, 12, 0, 2, 60.0, "12 of 72 done, 2 running, 58 left, about 5 min to go"),
        (12, 6, 5, 2, 4.0, "6 of 12 done, 2 running, 4 left, about 24 s to go"),
        (12, 5, 5, 2, 4.0, "5 of 12 done, 2 running, 5 left"),
        (12, 11, 0, None, 11.0, "11 of 12 done, 1 left, about 1 s to go"),
        (12, 12, 0, 2, 4.0, "12 of 12 done, 0 running, 0 left"),
    ],
)
def test_what_is_left_is_told_by_what_the_runs_took_that_were_run(
    total: int, ended: int, kept: int, at_once: int | None, elapsed_s: float, told: str
) -> None:
    assert left_line(total, ended, kept, at_once, elapsed_s) == told


def shown_of(runs: list[Done], *, terminal: bool) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=200 if terminal else 60)
    with MatrixProgress(console, 6, 2) as progress:
        for run in runs:
            progress(run)
    return stream.getvalue()


def test_a_terminal_shows_the_grid_so_far_with_what_is_left() -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown_of(ALL, terminal=True))
    assert "4 of 6 done, 2 running, 0 left, about" in text
    assert re.search(r"ring-full +fail +unsupported", text)


def test_elsewhere_each_run_is_a_line() -> None:
    assert shown_of([FAILED, BROKEN], terminal=False).splitlines() == [
        "1/6 fail ring-full --nic igb: ring-full-exit",
        "2/6 broken rx-steady --nic e1000e: QEMU is gone",
    ]
