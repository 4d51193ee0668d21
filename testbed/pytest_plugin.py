"""testbed in a pytest suite: fixtures that run scenarios in real guests, and what failed tests leave behind.

Snapshots are made once under the locks of the cache, however many xdist workers ask for them. A guest that cannot be
made fails the test with the reason: nothing here skips, and nothing is tried twice.

    def test_my_driver_leaves_full_rings(run_scenario):
        assert run_scenario("ring-full").result.verdict == "pass"
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from testbed.kernel import Kernel
    from testbed.run import Request, Run
    from testbed.scenario import Scenario
    from testbed.toolchain import Toolchain

__all__ = ["RunScenario"]

_RUNS = pytest.StashKey[list["Run"]]()


class RunScenario(Protocol):
    """Run a scenario.

    :param name: a scenario of the library, a file, or a scenario itself.
    :param variants: changes of the driver.
    :param nic: a NIC of the registry; ``--nic`` by default.
    :param kernel: KERNEL as on the command line, or a kernel; ``--kernel`` by default.
    :param set_: settings as after ``--set``.
    :param options: further fields of :class:`testbed.run.Request`.
    """

    def __call__(
        self,
        name: str | Scenario,
        *variants: str,
        nic: str | None = None,
        kernel: str | Kernel | None = None,
        set_: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Run:
        """Return the run, whatever its verdict."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options."""
    group = parser.getgroup("testbed", "guests with emulated NICs")
    group.addoption("--nic", default="igb", help="the NIC that run_scenario uses (igb)")
    group.addoption("--kernel", default="", help="the kernel that run_scenario uses (the newest of Debian)")
    group.addoption(
        "--artefacts",
        default=".testbed-artefacts",
        type=Path,
        help="where failed tests leave results, traces and logs of their runs (.testbed-artefacts)",
    )


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """Return the toolchain root; the test fails with the remedy where there is none."""
    from testbed.toolchain import open_toolchain

    return open_toolchain()


@pytest.fixture(scope="session")
def request_for(toolchain: Toolchain, pytestconfig: pytest.Config) -> Callable[..., Request]:
    """Return what makes a request of the arguments of :class:`RunScenario`."""
    from testbed import nic as nics
    from testbed.kernel import resolve, with_variants
    from testbed.run import Request
    from testbed.scenario import apply_settings, load

    def make(
        name: str | Scenario,
        *variants: str,
        nic: str | None = None,
        kernel: str | Kernel | None = None,
        set_: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Request:
        chosen = pytestconfig.getoption("--kernel") if kernel is None else kernel
        base = resolve(chosen) if isinstance(chosen, str) else chosen
        scenario = load(name) if isinstance(name, str) else name
        return Request(
            toolchain=toolchain,
            kernel=with_variants(base, variants, toolchain),
            nic=nics.get(nic or pytestconfig.getoption("--nic")),
            scenario=apply_settings(scenario, set_ or {}),
            **options,
        )

    return make


@pytest.fixture(scope="session")
def _run_once(request_for: Callable[..., Request]) -> Callable[..., Run]:
    from testbed.run import run

    @cache
    def run_once(name: str, *variants: str, nic: str | None = None) -> Run:
        return run(request_for(name, *variants, nic=nic))

    return run_once


@pytest.fixture
def run_scenario(request_for: Callable[..., Request], request: pytest.FixtureRequest) -> RunScenario:
    """Return what runs a scenario, anew each time."""
    from testbed.run import run

    def run_one(name: str | Scenario, *variants: str, **options: Any) -> Run:
        return _kept(request, run(request_for(name, *variants, **options)))

    return run_one


@pytest.fixture
def seen(_run_once: Callable[..., Run], request: pytest.FixtureRequest) -> Callable[..., Run]:
    """Return what runs a scenario of the library once for all tests that only look at the run."""

    def look(name: str, *variants: str, nic: str | None = None) -> Run:
        return _kept(request, _run_once(name, *variants, nic=nic))

    return look


def _kept(request: pytest.FixtureRequest, run: Run) -> Run:
    request.node.stash.setdefault(_RUNS, []).append(run)
    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Save what the runs of a failed test left, and say where."""
    report = yield
    runs = item.stash.get(_RUNS, [])
    if report.failed and runs:
        from testbed.run_directory import RunFiles

        directory = item.config.getoption("--artefacts") / re.sub(r"[^\w.-]+", "-", item.nodeid)
        for number, run in enumerate(runs, 1):
            files = RunFiles(directory / f"run-{number}")
            files.path.mkdir(parents=True, exist_ok=True)
            files.save(run)
        report.sections.append(("testbed", f"results, traces and logs: {directory}"))
    return report
