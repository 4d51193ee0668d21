"""A campaign on a cluster before anything runs, and what its parts send each other."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner
from dask_processes import DaskCluster

from testbed.cli import fuzz as command
from testbed.cluster import workers
from testbed.errors import HostError, TestbedError, UsageError
from testbed.fuzzing.campaign import Campaign
from testbed.fuzzing.cluster import _keep_finding, shares_on
from testbed.fuzzing.findings import all_findings
from testbed.fuzzing.letters import Answer, Job, new_inputs, take_in
from testbed.fuzzing.share import perform
from testbed.fuzzing.worker import Task
from testbed.version import identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with DaskCluster(tmp_path_factory.mktemp("dask")) as started:
        yield started


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ANSWER_LIMIT_S", 1.0)
    monkeypatch.setattr(workers, "ALONE_LIMIT_S", 1.0)


def refusal(tmp_path: Path, *words: str) -> TestbedError:
    """Return why a campaign on a cluster was refused, which must be one line."""
    argv = ["--nic", "igb", "--corpus", str(tmp_path / "corpus"), *words]
    error = CliRunner().invoke(command.command, argv).exception
    assert isinstance(error, TestbedError), repr(error)
    assert "\n" not in str(error)
    return error


def test_whoever_cannot_have_a_share_is_named(dask: DaskCluster, tmp_path: Path) -> None:
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in str(
        refusal(tmp_path, "--cluster", "tcp://127.0.0.1:1")
    )
    assert isinstance(refusal(tmp_path, "--cluster", "nowhere"), UsageError)
    assert "has had no worker" in str(refusal(tmp_path, "--cluster", dask.address))
    with dask.joined("bare"):
        told = str(refusal(tmp_path, "--cluster", dask.address))
        assert "no worker has cores=1, which fuzzing needs" in told
        assert "has nothing" in told


def test_a_wrong_name_is_told_before_anybody_is_asked(tmp_path: Path) -> None:
    error = refusal(tmp_path, "--cluster", "tcp://127.0.0.1:1", "--variant", "igb/none-such")
    assert isinstance(error, UsageError)
    assert "none-such" in str(error)


def test_a_machine_of_another_testbed_refuses_the_share_of_a_campaign() -> None:
    job = Job(
        testbed="9.9 (abcd)",
        number=0,
        nic="igb",
        kernel="",
        contents=[],
        coverage=True,
        inbox="inbox",
        home="findings",
    )
    answer = msgspec.json.decode(perform(msgspec.json.encode(job)), type=Answer)
    assert answer.refused == f"has testbed {identity()}, this is 9.9 (abcd)"


def test_a_campaign_ends_when_nobody_is_left_who_could_go_on(dask: DaskCluster, tmp_path: Path) -> None:
    for name in ("inputs", "findings"):
        (tmp_path / name).mkdir()
    task = Task(nic="igb", kernel="", inputs="", findings="", seconds=60.0, seed=1)
    with dask.joined("last", "cores=3") as last, shares_on(dask.address, task, tmp_path) as crew:
        assert crew.cores == 3
        last.kill()
        with pytest.raises(HostError, match="no worker has cores=1, which fuzzing needs: there is none"):
            Campaign(task, tmp_path, 1, crew).run(lambda *_: None, lambda _: None)


def test_inputs_travel_whole_and_under_the_name_of_their_content(tmp_path: Path) -> None:
    names = take_in(tmp_path, [b"one", b"two", b"one"])
    assert names == {hashlib.sha1(data, usedforsecurity=False).hexdigest() for data in (b"one", b"two")}
    assert new_inputs(tmp_path, set()).keys() == names
    assert not new_inputs(tmp_path, names)
    half = hashlib.sha1(b"three", usedforsecurity=False).hexdigest()
    (tmp_path / half).write_bytes(b"thr")
    assert half not in new_inputs(tmp_path, set())
    (tmp_path / half).write_bytes(b"three")
    assert new_inputs(tmp_path, names) == {half: b"three"}


def test_a_finding_of_a_machine_is_kept_once_and_nowhere_else(tmp_path: Path) -> None:
    findings = tmp_path / "findings"
    findings.mkdir()
    _keep_finding(findings, "ring-full-exit-1", {"console.log": b"first"})
    _keep_finding(findings, "ring-full-exit-1", {"console.log": b"second"})
    assert (findings / "ring-full-exit-1" / "console.log").read_bytes() == b"first"
    for name, files in (
        ("../away", {}),
        ("..", {}),
        ("fine", {"../away": b""}),
        ("a/b", {}),
        (".hidden", {}),
    ):
        with pytest.raises(HostError, match="seen"):
            _keep_finding(findings, name, files)
    assert [path.name for path in tmp_path.iterdir()] == ["findings"]
    assert [path.name for path in findings.iterdir()] == ["ring-full-exit-1"]
    assert all_findings(findings) == []
