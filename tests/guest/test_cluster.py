"""A matrix and a campaign on a real scheduler and two workers: what one leaves when it dies, the other does."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dask_processes import DaskCluster

from testbed.cluster import workers
from testbed.errors import HostError
from testbed.fuzzing.records import load_campaigns
from testbed.guest import probe
from testbed.matrix import Product, orders
from testbed.matrix.cluster import run_on_cluster
from testbed.recorded import load_several

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dask_processes import Worker
    from victims import Cache

    from testbed.run import Run
    from testbed.toolchain import Toolchain

SEEDS = 2
SCENARIOS = ("stack-only", "rx-steady", "tx-only")
GONE_LIMIT_S = 10.0


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with DaskCluster(tmp_path_factory.mktemp("dask")) as started:
        yield started


def test_the_runs_of_a_worker_that_dies_are_done_by_another_and_are_as_local_ones(
    cache: Cache, dask: DaskCluster, seen: Callable[..., Run], tmp_path: Path
) -> None:
    first = dask.worker("first", "cores=1")
    product = ("--nics", "igb", "--scenarios", ",".join(SCENARIOS), "--out", tmp_path)
    with cache.started("matrix", *product, "--cluster", dask.address, "--json") as matrix:
        first.wait_for_guest()
        second = dask.worker("second", "cores=1")
        first.kill()
        done = matrix.end()
    assert done.status == 0, done.err
    digests = {run.result.scenario: run.result.trace.sequence_digest for run in load_several(tmp_path)
               if run.result.trace}  # fmt: skip
    local = {name: seen(name, nic="igb").result.trace for name in SCENARIOS}
    assert digests == {name: trace.sequence_digest for name, trace in local.items() if trace}
    for run in done.document()["runs"]:
        assert {path.name for path in (tmp_path / run["directory"]).iterdir()} == {
            "result.json", "trace.npy", "console.log", "scenario.yaml"
        }  # fmt: skip
    deadline = time.monotonic() + GONE_LIMIT_S
    while left := first.started():
        assert time.monotonic() < deadline, f"the dead worker left {left}"
        time.sleep(0.05)
    again = cache.call("matrix", *product, "--cluster", dask.address)
    assert (again.status, again.err.count("(kept)")) == (0, len(SCENARIOS))
    second.kill()


def test_a_matrix_ends_when_nobody_is_left_who_could_run_it(
    dask: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "ALONE_LIMIT_S", 1.0)
    last = dask.worker("last", "cores=1")
    with ThreadPoolExecutor(1) as pool:
        work = orders(Product(nics=("igb",), scenarios=("stack-only",)))
        matrix = pool.submit(run_on_cluster, dask.address, work, tmp_path, print)
        last.wait_for_guest()
        last.kill()
        with pytest.raises(HostError, match=r"no worker has cores=1, which .*stack-only.* there is none"):
            matrix.result(60)


def test_a_worker_that_declares_kvm_must_have_it(
    dask: DaskCluster, tmp_path: Path, toolchain: Toolchain
) -> None:
    worker = dask.worker("boaster", "cores=1 kvm=1")
    work = orders(Product(nics=("igb",), scenarios=("stack-only",), clocks=("real",)))
    (done,) = run_on_cluster(dask.address, work, tmp_path, print)
    worker.kill()
    (kept,) = load_several(tmp_path)
    if probe(toolchain).name == "kvm":
        assert kept.result.accelerator == "kvm"
    else:
        assert (done.status, kept.result.verdict, kept.result.error) == (3, "broken", done.error)
        assert "declares kvm, and there KVM does not work" in done.error


def fuzzing(worker: Worker) -> list[set[str]]:
    """Return the inputs that each process which fuzzes on behalf of a worker has at hand."""
    commands = worker.started().items()
    folders = [Path(f"/proc/{pid}/cwd/inputs") for pid, command in commands if "fuzzing.worker" in command]
    return [{file.name for file in folder.iterdir()} for folder in folders if folder.exists()]


def test_a_worker_that_dies_leaves_its_share_of_a_campaign_and_its_inputs_to_the_other(
    cache: Cache, dask: DaskCluster, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus"
    first = dask.worker("one-core", "cores=1")
    task = ("--nic", "igb", "--time", "2m", "--jobs", "2", "--seed", "1", "--corpus", corpus)
    with cache.started("fuzz", *task, "--cluster", dask.address) as campaign:

        def inputs() -> set[str]:
            return {file.name for file in (corpus / "inputs").glob("[!.]*")}

        campaign.wait_for(lambda: len(inputs()) > SEEDS, "an input of the first worker came back")
        second = dask.worker("two-cores", "cores=2", threads=2)
        campaign.wait_for(lambda: len(fuzzing(second)) == 1, "the second worker has the other share")
        first.kill()
        merged = inputs()
        campaign.wait_for(
            lambda: len(have := fuzzing(second)) == 2 and all(merged <= each for each in have),
            "the second worker has both shares and all inputs",
        )
        campaign.wait_for(lambda: inputs() > merged, "an input of the second worker came back")
        campaign.interrupt()
        assert campaign.end().status == 130
    (kept,) = load_campaigns(corpus)
    assert (kept.jobs, kept.deaths) == (2, 1)
    assert kept.executions > 0
    deadline = time.monotonic() + GONE_LIMIT_S
    while any(left := (first.started(), fuzzing(second))):
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.05)
    second.kill()


def test_a_matrix_ends_when_the_scheduler_goes_away(dask: DaskCluster, tmp_path: Path) -> None:
    worker = dask.worker("faithful", "cores=1")
    with ThreadPoolExecutor(1) as pool:
        work = orders(Product(nics=("igb",), scenarios=("stack-only",)))
        matrix = pool.submit(run_on_cluster, dask.address, work, tmp_path, print)
        worker.wait_for_guest()
        dask.scheduler.kill()
        with pytest.raises(HostError, match="went away"):
            matrix.result(60)
