"""testbed in a pytest suite: fixtures that run scenarios in real guests, and what failed tests leave behind.

Snapshots are made once under the locks of the cache, however many xdist workers ask for them. A guest that cannot be
made fails the test with the reason: nothing here skips, and nothing is tried twice.

    def test_my_driver_leaves_full_rings(run_scenario):
        run_scenario("ring-full").check()

``--nic``, ``--kernel`` and ``--clock`` may be given several times: each test that uses one of these fixtures is run for
every combination. A test that parametrizes ``nic``, ``kernel`` or ``clock`` itself, by names, has its own way.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from scapy.interfaces import NetworkInterface

    from testbed.checked_run import CheckedRun
    from testbed.guest import Clock
    from testbed.kernel import Kernel
    from testbed.live import LiveGuest
    from testbed.nic import Nic
    from testbed.pytest_guests import GuestSlot
    from testbed.run import Request
    from testbed.scenario import Scenario
    from testbed.toolchain import Toolchain

__all__ = ["RunScenario"]

_RUNS = pytest.StashKey[list["CheckedRun"]]()
_FACTORS = {"nic": "--nic", "kernel": "--kernel", "clock": "--clock"}


class RunScenario(Protocol):
    """Run a scenario.

    :param name: a scenario of the library, a file, or a scenario itself.
    :param variants: changes of the driver.
    :param nic: a NIC of the registry; the fixture ``nic`` by default.
    :param kernel: KERNEL as on the command line, or a kernel; the fixture ``kernel`` by default.
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
    ) -> CheckedRun:
        """Return the run, whatever its verdict."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options."""
    group = parser.getgroup("testbed", "guests with emulated NICs")

    def repeatable(name: str, text: str, **more: Any) -> None:
        group.addoption(name, action="append", help=f"{text}; repeatable: tests run for each", **more)

    repeatable("--nic", "the NIC of the tests (igb)")
    repeatable("--kernel", "the KERNEL of the tests, as of `testbed run` (the newest of Debian)")
    repeatable("--clock", "the clock of scenarios (as of `testbed run`)", choices=("virtual", "real"))
    for name, metavar in (("variant", "NAME"), ("patch", "FILE")):
        group.addoption(
            f"--{name}",
            action="append",
            dest="testbed_changes",
            default=[],
            metavar=metavar,
            type=lambda value, name=name: f"@{name}={value}",
            help="a change of every --kernel, as of `testbed run`; repeatable: changes apply in their order",
        )
    group.addoption(
        "--guests",
        type=int,
        help="guests at once, and xdist's workers of `-n auto` (what this machine carries)",
    )
    group.addoption(
        "--artefacts",
        default=".testbed-artefacts",
        type=Path,
        help="where failed tests leave results, traces and logs of their runs (.testbed-artefacts)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a number of guests that is none."""
    guests = config.getoption("--guests")
    if guests is not None and guests < 1:
        raise pytest.UsageError(f"expected at least 1 after --guests, seen {guests}")


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return what ``-n auto`` means where somebody said how many guests; else xdist decides."""
    guests: int | None = config.getoption("--guests")
    return guests


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test for each NIC, kernel and clock of the command line, where there are several."""
    own = {
        word.strip()
        for mark in metafunc.definition.iter_markers("parametrize")
        for word in (mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0])
    }
    for name in _FACTORS:
        values = _asked(metafunc.config, name)
        if name in metafunc.fixturenames and name not in own and len(values) > 1:
            metafunc.parametrize(
                name, values, indirect=True, scope="session", ids=[value or "newest" for value in values]
            )


def _asked(config: pytest.Config, name: str) -> list[str]:
    """Return what the command line gives for a factor, KERNELs with their changes."""
    values: list[str] = config.getoption(_FACTORS[name]) or []
    if name == "kernel":
        changes = "".join(config.getoption("testbed_changes"))
        return [f"{kernel}{changes}" for kernel in values or [""]]
    return values


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """Return the toolchain root; the test fails with the remedy where there is none."""
    from testbed.toolchain import open_toolchain

    return open_toolchain()


@pytest.fixture(scope="session")
def nic(request: pytest.FixtureRequest) -> Nic:
    """Return the NIC of ``--nic``."""
    from testbed import nic as nics

    return nics.get(getattr(request, "param", None) or (_asked(request.config, "nic") or ["igb"])[0])


@pytest.fixture(scope="session")
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Return the kernel of ``--kernel`` with the changes of ``--variant`` and ``--patch``, built when need be."""
    from testbed.kernel import resolve

    return resolve(getattr(request, "param", None) or _asked(request.config, "kernel")[0])


@pytest.fixture(scope="session")
def clock(request: pytest.FixtureRequest) -> Clock | None:
    """Return the clock of ``--clock``; None for the one that suits the accelerator."""
    given: Any = getattr(request, "param", None) or next(iter(_asked(request.config, "clock")), None)
    found: Clock | None = given
    return found


@pytest.fixture(scope="session")
def guest_slot(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> GuestSlot:
    """Return this worker's right to have a guest."""
    from testbed.pytest_guests import GuestSlot, guests_carried

    worker = getattr(pytestconfig, "workerinput", None)
    base = tmp_path_factory.getbasetemp()
    if worker is None:
        return GuestSlot(base / "guest.lock")
    number = int(worker["workerid"].removeprefix("gw")) % (
        pytestconfig.getoption("--guests") or guests_carried()
    )
    return GuestSlot(base.parent / f"guest-{number}.lock")


@pytest.fixture(scope="session")
def request_for(toolchain: Toolchain, pytestconfig: pytest.Config) -> Callable[..., Request]:
    """Return what makes a request of the arguments of :class:`RunScenario`."""
    from testbed import nic as nics
    from testbed.kernel import resolve, with_variants
    from testbed.order import Order
    from testbed.run import Request
    from testbed.scenario import apply_settings, load

    def make(
        name: str | Scenario,
        *variants: str,
        nic: str | Nic | None = None,
        kernel: str | Kernel | None = None,
        set_: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Request:
        asked = _asked(pytestconfig, "kernel")[0] if kernel is None else kernel
        base = resolve(asked) if isinstance(asked, str) else asked
        changed = with_variants(base, variants, toolchain)
        model = nic or (_asked(pytestconfig, "nic") or ["igb"])[0]
        model = nics.get(model) if isinstance(model, str) else model
        settings = dict(set_ or {})
        scenario = load(name) if isinstance(name, (str, Path)) else name
        if isinstance(name, (str, Path)) and "reproduce" not in options:
            order = Order(
                scenario=str(name),
                nic=model.name,
                kernel=changed.asked,
                clock=options.get("clock"),
                settings=settings,
                rules=tuple(options.get("rules", ())),
            )
            options["reproduce"] = order.command()
        return Request(
            toolchain=toolchain,
            kernel=changed,
            nic=model,
            scenario=apply_settings(scenario, settings),
            **options,
        )

    return make


@pytest.fixture(scope="session")
def _run(request_for: Callable[..., Request], guest_slot: GuestSlot) -> Callable[..., CheckedRun]:
    from testbed.checked_run import CheckedRun
    from testbed.run import run

    def run_one(*words: Any, **options: Any) -> CheckedRun:
        wanted = request_for(*words, **options)
        with guest_slot.taken():
            done = run(wanted)
        return CheckedRun(done.result, done.trace, done.console)

    return run_one


@pytest.fixture
def run_scenario(
    _run: Callable[..., CheckedRun],
    nic: Nic,
    kernel: Kernel,
    clock: Clock | None,
    request: pytest.FixtureRequest,
) -> RunScenario:
    """Return what runs a scenario, anew each time."""

    def run_one(name: str | Scenario, *variants: str, **options: Any) -> CheckedRun:
        asked = {"nic": nic, "kernel": kernel, "clock": clock}
        given = {key: value for key, value in options.items() if value is not None}
        return _kept(request, _run(name, *variants, **{**asked, **given}))

    return run_one


@pytest.fixture(scope="session")
def _seen() -> dict[tuple[object, ...], CheckedRun]:
    return {}


@pytest.fixture
def seen(
    run_scenario: RunScenario,
    nic: Nic,
    kernel: Kernel,
    clock: Clock | None,
    _seen: dict[tuple[object, ...], CheckedRun],
    request: pytest.FixtureRequest,
) -> Callable[..., CheckedRun]:
    """Return what runs a scenario of the library once for all tests that only look at the run."""
    standing = (getattr(kernel, "identity", kernel), clock)
    default = getattr(nic, "name", nic)

    def look(name: str, *variants: str, nic: str | None = None) -> CheckedRun:
        key = (name, variants, nic or default, *standing)
        if key not in _seen:
            _seen[key] = run_scenario(name, *variants, nic=nic)
        return _kept(request, _seen[key])

    return look


@pytest.fixture
def guest(toolchain: Toolchain, nic: Nic, kernel: Kernel, guest_slot: GuestSlot) -> Iterator[LiveGuest]:
    """Lend a guest in real time, for programs and scripts; see :class:`testbed.live.LiveGuest`."""
    from testbed.live import live_guest

    with ExitStack() as stack:
        stack.enter_context(guest_slot.taken())
        yield stack.enter_context(live_guest(toolchain, kernel, nic))


@pytest.fixture
def wire(guest: LiveGuest) -> Iterator[NetworkInterface]:
    """Let ``guest`` run with its wire as scapy's interface: srp1, sniff and sendp of the test reach the guest alone."""
    with guest.wire() as interface:
        yield interface


def _kept(request: pytest.FixtureRequest, run: CheckedRun) -> CheckedRun:
    runs = request.node.stash.setdefault(_RUNS, [])
    if all(run is not each for each in runs):
        runs.append(run)
    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Save what the runs of a failed test left, say where, and show what no assertion showed."""
    report = yield
    runs = item.stash.get(_RUNS, [])
    if report.failed and runs:
        from testbed.checked_run import RuleViolated
        from testbed.report.assertion import assertion_lines
        from testbed.run_directory import RunFiles

        directory = item.config.getoption("--artefacts") / re.sub(r"[^\w.-]+", "-", item.nodeid)
        for number, run in enumerate(runs, 1):
            files = RunFiles(directory / f"run-{number}")
            files.path.mkdir(parents=True, exist_ok=True)
            files.save(run)
        lines = [f"results, traces and logs: {directory}"]
        if not (call.excinfo and call.excinfo.errisinstance(RuleViolated)):
            lines += [line for run in runs if run.result.verdict != "pass" for line in assertion_lines(run)]
        report.sections.append(("testbed", "\n".join(lines)))
    return report
