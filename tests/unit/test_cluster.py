"""A cluster before anything runs: who answers, what workers have, which testbed they are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner
from dask_processes import DaskCluster

import testbed
from testbed.cli import matrix as command
from testbed.cluster import workers
from testbed.errors import HostError, TestbedError, UsageError
from testbed.kernel import parse
from testbed.matrix.cluster import needs_of
from testbed.matrix.worker import Reply, perform
from testbed.order import Order
from testbed.scenario import canonical_json, load
from testbed.version import identity

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(testbed.__file__).parent


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with DaskCluster(tmp_path_factory.mktemp("dask")) as started:
        yield started


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ANSWER_LIMIT_S", 1.0)


def refusal(address: str, *words: str) -> TestbedError:
    """Return why a matrix on a cluster was refused, which must be one line."""
    argv = ["--nics", "igb", "--scenarios", "stack-only", "--cluster", address, *words]
    error = CliRunner().invoke(command.command, argv).exception
    assert isinstance(error, TestbedError), repr(error)
    assert "\n" not in str(error)
    return error


@pytest.mark.parametrize("address", ["nowhere", "tcp://127.0.0.1:x", "smoke://127.0.0.1:1"])
def test_what_is_no_address_is_wrong_usage(address: str) -> None:
    error = refusal(address)
    assert isinstance(error, UsageError)
    assert f"'{address}'" in str(error)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://no.such.host.invalid:8786"])
def test_an_address_that_does_not_answer_is_named(address: str) -> None:
    error = refusal(address)
    assert isinstance(error, HostError)
    assert f"no Dask scheduler answers at {address}" in str(error)


def test_a_cluster_decides_how_many_run_at_once() -> None:
    assert "exclude each other" in str(refusal("tcp://127.0.0.1:1", "--jobs", "2"))


def test_a_scheduler_without_workers_is_not_waited_for_in_vain(dask: DaskCluster) -> None:
    assert "has had no worker for 1 s" in str(refusal(dask.address))


def test_workers_without_the_resource_are_named_with_what_they_have(dask: DaskCluster) -> None:
    with dask.joined("bare"):
        told = str(refusal(dask.address))
        assert "no worker has cores=1" in told
        assert "has nothing" in told
    with dask.joined("slow", "cores=2"):
        told = str(refusal(dask.address, "--clocks", "virtual,real"))
        assert "no worker has cores=1 kvm=1" in told
        assert "has cores=2" in told
        assert "--clock real" in told


def test_a_worker_with_another_testbed_is_refused_with_both_versions(
    dask: DaskCluster, tmp_path: Path
) -> None:
    shutil.copytree(PACKAGE, tmp_path / "testbed", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "testbed" / "matrix" / "another.py").touch()
    metadata = tmp_path / "testbed-9.9.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: testbed\nVersion: 9.9\n")
    with dask.joined("newer", "cores=1", PYTHONPATH=str(tmp_path)):
        told = str(refusal(dask.address))
        assert "has testbed 9.9 (" in told
        assert f"this is {identity()}" in told


def test_a_worker_with_a_testbed_of_before_clusters_is_refused(dask: DaskCluster, tmp_path: Path) -> None:
    (tmp_path / "testbed" / "cluster").mkdir(parents=True)
    for module in ("__init__", "cluster/__init__"):  # an editable install would find the rest
        (tmp_path / "testbed" / f"{module}.py").touch()
    with dask.joined("older", "cores=1", PYTHONPATH=str(tmp_path)):
        assert f"has no testbed like {identity()}" in str(refusal(dask.address))


def test_a_worker_that_was_not_set_up_is_refused_with_its_remedy(dask: DaskCluster, tmp_path: Path) -> None:
    with dask.joined("fresh", "cores=1", TESTBED_CACHE=str(tmp_path)):
        told = str(refusal(dask.address))
        assert "cannot run anything" in told
        assert "testbed setup" in told


def test_workers_that_differ_in_a_kernel_are_both_named() -> None:
    with pytest.raises(HostError, match=r"differ in debian:trixie: a has linux 1, b has linux 2"):
        workers.check_alike("debian:trixie", {"a": "linux 1", "b": "linux 2"})
    workers.check_alike("debian:trixie", {"a": "linux 1", "b": "", "c": "linux 1"})


def test_real_time_needs_kvm_and_a_core_for_each_cpu() -> None:
    scenario = load("stack-only")
    assert needs_of(Order(scenario="stack-only", nic="igb", clock="virtual"), scenario) == {"cores": 1}
    assert needs_of(Order(scenario="stack-only", nic="igb", clock="real"), scenario) == {
        "cores": scenario.settings.vcpus,
        "kvm": 1,
    }


def test_the_kernel_of_a_job_can_be_asked_for_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = Path("more.config")
    config.write_text("CONFIG_BPF=y\n")
    before = parse("@variant=igb/ring-full-exit@config=more.config@built")
    assert before.text == (
        f"debian:trixie-backports@variant=igb/ring-full-exit@config={tmp_path}/more.config@built"
    )
    assert parse(before.text) == before


def test_a_changed_file_behind_a_kernel_is_seen(tmp_path: Path) -> None:
    config = tmp_path / "more.config"
    contents = []
    for option in ("CONFIG_BPF=y\n", "CONFIG_BPF=n\n"):
        config.write_text(option)
        contents.append(parse(f"@config={config}").contents)
    assert contents[0] != contents[1]


def job(**changes: object) -> bytes:
    fields = {
        "testbed": identity(),
        "order": Order(scenario="stack-only", nic="igb", clock="virtual"),
        "scenario": canonical_json(load("stack-only")).decode(),
        "kernel": "debian:trixie-backports",
        "contents": [],
        "kept": [],
    }
    return msgspec.json.encode(fields | changes)


def refused_by_worker(data: bytes) -> str:
    return msgspec.msgpack.decode(perform(data), type=Reply).refused


def test_a_worker_that_joins_later_refuses_the_job_of_another_testbed() -> None:
    told = refused_by_worker(job(testbed="9.9 (abcd)", order="of a form that only 9.9 knows"))
    assert told == f"has testbed {identity()}, this is 9.9 (abcd)"


def test_a_worker_with_other_files_at_the_same_paths_refuses_the_job(tmp_path: Path) -> None:
    config = tmp_path / "more.config"
    kernel = f"debian:trixie@config={config}"
    assert str(config) in refused_by_worker(job(kernel=kernel, contents=["1"]))
    config.write_text("CONFIG_BPF=y\n")
    assert refused_by_worker(job(kernel=kernel, contents=["1"])) == f"has other files behind {kernel}"
