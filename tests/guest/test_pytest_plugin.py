"""The pytest plugin with real guests: the example of the documentation, a live guest, and a failure as it reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from victims import Cache

pytest_plugins = ["pytester"]

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "test_my_driver.py"
REPAIR = "igb/ring-full-exit"
OTHERS = """
def test_a_guest_takes_one_thing_after_the_other(guest, nic):
    assert guest.script("cat /sys/class/net/eth0/operstate").out == "up\\n"
    ended = guest.script("echo out; echo err >&2; exit 7")
    assert ended == (7, "out\\n", "err\\n")
    with guest.wire():
        pass
    assert guest.script(f"ls /sys/bus/pci/drivers/{nic.driver} | wc -l").status == 0

def test_an_assertion_of_ones_own(run_scenario):
    assert run_scenario("ring-full").result.counters.frames_lost == 0
"""


@pytest.fixture
def suite(cache: Cache, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite with the ordinary cache, though pytester gives it a home of its own."""
    monkeypatch.setenv("TESTBED_CACHE", str(cache.path))
    pytester.makepyfile(test_example=EXAMPLE.read_text(), test_others=OTHERS)
    return pytester


def test_the_example_fails_on_the_stock_driver_as_a_good_assertion_does(suite: pytest.Pytester) -> None:
    done = suite.runpytest_subprocess("test_example.py", "--artefacts", "kept")
    done.assert_outcomes(failed=1, passed=1)
    done.stdout.fnmatch_lines(
        [
            '>*run_scenario("ring-full").check("ring-full-exit")',
            "E *RuleViolated: fail ring-full on igb, Linux *",
            "E *22 ring-full-exit violated: observed * frames, limit 1: *",
            "E *> *REDIRECT*result=-ENOBUFS*",
            "E *again: testbed run ring-full --nic igb --kernel debian:trixie-backports",
            "results, traces and logs: kept/*",
        ]
    )
    (result,) = suite.path.glob("kept/*/run-1/result.json")
    assert (result.parent / "trace.npy").exists()


def test_a_variant_of_the_command_line_mends_the_example(suite: pytest.Pytester) -> None:
    suite.runpytest_subprocess("test_example.py", "-k", "rings", "--variant", REPAIR).assert_outcomes(
        passed=1
    )


def test_a_live_guest_and_what_an_assertion_of_ones_own_leaves(suite: pytest.Pytester) -> None:
    done = suite.runpytest_subprocess("test_others.py", "--clock", "virtual")
    done.assert_outcomes(failed=1, passed=1)
    done.stdout.fnmatch_lines(
        [
            "E *assert * == 0",
            "*results, traces and logs: *",
            "22 ring-full-exit violated: *",
            "again: testbed run ring-full --nic igb * --clock virtual",
        ]
    )
