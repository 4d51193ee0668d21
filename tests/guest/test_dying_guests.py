"""Guests that hang or panic, in a run and in boot: a verdict or one line, soon, with what was seen until then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from testbed import image, nic
from testbed.errors import BootError
from testbed.guest import Guest, runtime_directory
from testbed.guest.machine import Machine
from testbed.image.cpio import archive
from testbed.kernel import Module, resolve, variant, with_variants
from testbed.preparation import blueprint_of, shape_of
from testbed.trace.events import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.kernel import Kernel
    from testbed.pytest_plugin import RunScenario
    from testbed.run import Run
    from testbed.toolchain import Toolchain

VARIANTS = Path(__file__).parent / "variants"
TIMEOUT_S = 3.0
BOOT_LIMIT_S = 4.0


@pytest.fixture
def broken_kernel(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Kernel]:
    """Return what builds the newest kernel with one of the variants beside these tests."""
    files = sorted(VARIANTS.glob("*/*.cocci"))
    ours = [variant.Variant(f"{file.parent.name}/{file.stem}", file) for file in files]
    monkeypatch.setattr(variant, "known_variants", lambda: ours)
    return lambda name: with_variants(resolve(), [name], toolchain)


def outcome_of(run: Run, rule_id: str) -> tuple[str, str]:
    rule = run.result.rule(rule_id)
    assert rule, run.result.error
    return rule.outcome, rule.message


def test_a_poll_that_never_returns_is_a_violation_with_the_trace_until_then(
    run_scenario: RunScenario, broken_kernel: Callable[[str], Kernel]
) -> None:
    run = run_scenario("ring-full", kernel=broken_kernel("igb/hang-in-poll"), timeout_s=TIMEOUT_S)
    assert (run.result.verdict, run.result.exit_status()) == ("fail", 1), run.result.error
    outcome, message = outcome_of(run, "guest-alive")
    assert outcome == "violated"
    assert "nothing was heard of the guest" in message
    assert run.result.timings.run_s >= TIMEOUT_S
    assert run.trace
    kinds = run.trace.events["kind"]
    last = run.trace.events[np.isin(kinds, (Kind.STEP_BEGIN, Kind.STEP_END))][-1]
    assert (kinds == Kind.FILL).any()
    assert (kinds == Kind.STEP_BEGIN).sum() > (kinds == Kind.RX).sum() == 0
    assert last["kind"] in {Kind.STEP_BEGIN, Kind.STEP_END}
    rule = run.result.rule("guest-alive")
    assert rule
    assert rule.events
    assert max(rule.events) == len(run.trace.events) - 1


def test_an_oops_in_a_poll_ends_the_run_at_once_and_is_named(
    run_scenario: RunScenario, broken_kernel: Callable[[str], Kernel]
) -> None:
    run = run_scenario("ring-full", kernel=broken_kernel("igb/oops-in-poll"), timeout_s=600.0)
    assert (run.result.verdict, run.result.exit_status()) == ("fail", 1), run.result.error
    assert run.result.timings.run_s < 60.0
    outcome, message = outcome_of(run, "kernel-clean")
    assert outcome == "violated"
    assert "NULL pointer dereference" in message
    assert "igb_" in message
    assert outcome_of(run, "guest-alive")[0] == "violated"
    assert "Call Trace" in run.console
    assert run.trace
    assert (run.trace.events["kind"] == Kind.LOG).any()


def test_a_guest_that_hangs_in_boot_is_told_with_its_last_line(toolchain: Toolchain, tmp_path: Path) -> None:
    made = blueprint_of(toolchain, resolve(), nic.get("igb"), shape_of(toolchain, "real"))
    hanging = tmp_path / "initramfs.cpio"
    files = {
        "init": (0o755, b"#!/busybox sh\nwhile :; do :; done\n"),
        "busybox": (0o755, toolchain.file("/usr/bin/busybox").read_bytes()),
    }
    hanging.write_bytes(archive(files, {"dev/console": (5, 1)}))
    with (
        runtime_directory() as directory,
        Machine(toolchain, replace(made, initramfs=hanging), directory) as machine,
    ):
        with pytest.raises(BootError, match="nothing was heard of the guest") as raised:
            Guest.boot(machine, timeout_s=BOOT_LIMIT_S)
        log = machine.console_text()
    assert "\n" not in str(raised.value)
    said = str(raised.value).partition("last line of its log: ")[2]
    assert said
    assert said in log


def test_a_guest_without_init_is_told_by_its_panic(toolchain: Toolchain, tmp_path: Path) -> None:
    made = blueprint_of(toolchain, resolve(), nic.get("igb"), shape_of(toolchain, "real"))
    empty = tmp_path / "initramfs.cpio"
    empty.write_bytes(archive({"nothing": (0o644, b"")}))
    with (
        runtime_directory() as directory,
        Machine(toolchain, replace(made, initramfs=empty), directory) as machine,
        pytest.raises(BootError, match=r"did not boot: .*panicked") as raised,
    ):
        Guest.boot(machine)
    assert "last line of its log: [" in str(raised.value)


def test_a_guest_whose_agent_cannot_go_on_is_told_in_its_words(toolchain: Toolchain) -> None:
    made = blueprint_of(toolchain, resolve(), nic.get("igb"), shape_of(toolchain, "real"))
    base = image.build(toolchain)
    bad = image.with_modules(base, [Module("no_module", b"not an ELF file")])
    with (
        runtime_directory() as directory,
        Machine(toolchain, replace(made, initramfs=bad), directory) as machine,
        pytest.raises(BootError, match=r"the agent gave up: cannot load module no_module\.ko"),
    ):
        Guest.boot(machine)
