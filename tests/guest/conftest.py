"""Real guests for tests: what runs them, and runs of scenarios in them.

Snapshots are made once under the locks of the cache, however many workers ask for them. A guest that cannot be made
fails the test with the reason: nothing here skips, and nothing is tried twice.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from testbed import nic
from testbed.kernel import Kernel, resolve, with_variants
from testbed.run import Request, Run, run
from testbed.scenario import apply_settings, load
from testbed.toolchain import Toolchain, open_toolchain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from testbed.scenario import Scenario


class RunScenario(Protocol):
    """Run a scenario on igb.

    :param name: a scenario of the library, a file, or a scenario itself.
    :param variants: changes of the driver.
    :param kernel: KERNEL as on the command line, or a kernel.
    :param set_: settings as after ``--set``.
    :param options: further fields of :class:`testbed.run.Request`.
    """

    def __call__(
        self,
        name: str | Scenario,
        *variants: str,
        kernel: str | Kernel = "",
        set_: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Run: ...


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    return open_toolchain()


@pytest.fixture(scope="session")
def request_for(toolchain: Toolchain) -> Callable[..., Request]:
    """Return what makes a request of the arguments of :class:`RunScenario`."""

    def make(
        name: str | Scenario,
        *variants: str,
        kernel: str | Kernel = "",
        set_: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Request:
        scenario = load(name) if isinstance(name, str) else name
        base = resolve(kernel) if isinstance(kernel, str) else kernel
        return Request(
            toolchain=toolchain,
            kernel=with_variants(base, variants, toolchain),
            nic=nic.get("igb"),
            scenario=apply_settings(scenario, set_ or {}),
            **options,
        )

    return make


@pytest.fixture(scope="session")
def run_scenario(request_for: Callable[..., Request]) -> RunScenario:
    """Return what runs a scenario, anew each time."""

    def run_one(name: str | Scenario, *variants: str, **options: Any) -> Run:
        return run(request_for(name, *variants, **options))

    return run_one


@pytest.fixture(scope="session")
def seen(run_scenario: RunScenario) -> Callable[..., Run]:
    """Return what runs a scenario of the library once for all tests that only look at the run."""

    @cache
    def run_once(name: str, *variants: str) -> Run:
        return run_scenario(name, *variants)

    return run_once
