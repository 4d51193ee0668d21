"""The pytest plugin without guests: options, products, guests at once, and how a failure reads."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import indent

import pytest
from test_report import REPAIRED, STOCK, result_of

from testbed.checked_run import CheckedRun, RuleViolated
from testbed.errors import UsageError
from testbed.pytest_guests import guests_carried

pytest_plugins = ["pytester"]

ONE = "def test_one(run_scenario): pass\n"


def collected(pytester: pytest.Pytester, source: str, *options: str) -> list[str]:
    """Return the tests that a file comes to, by what stands behind their name."""
    pytester.makepyfile(source)
    done = pytester.runpytest("--collect-only", "-q", *options)
    assert done.ret == 0, done.outlines
    return [line.partition("::")[2] for line in done.outlines if "::" in line]


def test_a_test_runs_once_where_nothing_is_asked_for(pytester: pytest.Pytester) -> None:
    assert collected(pytester, ONE) == ["test_one"]
    assert collected(pytester, ONE, "--nic", "e1000e", "--variant", "e1000e/no-complete") == ["test_one"]


def test_a_test_runs_for_every_combination_that_is_asked_for(pytester: pytest.Pytester) -> None:
    options = ("--nic", "igb", "--nic", "e1000e", "--kernel", "", "--kernel", "debian:trixie")
    found = collected(pytester, f"{ONE}def test_two(nic): pass\ndef test_three(): pass\n", *options)
    assert sorted(found) == [
        "test_one[e1000e-debian:trixie]",
        "test_one[e1000e-newest]",
        "test_one[igb-debian:trixie]",
        "test_one[igb-newest]",
        "test_three",
        "test_two[e1000e]",
        "test_two[igb]",
    ]


def test_changes_go_to_every_kernel_in_the_order_in_which_they_stand(pytester: pytest.Pytester) -> None:
    changes = ("--patch", "a.patch", "--variant", "igb/ring-full-exit", "--patch", "b.patch")
    found = collected(pytester, ONE, "--kernel", "", "--kernel", "debian:trixie", *changes)
    behind = "@patch=a.patch@variant=igb/ring-full-exit@patch=b.patch"
    assert found == [f"test_one[{behind}]", f"test_one[debian:trixie{behind}]"]


def test_a_test_that_names_its_nics_itself_has_its_own_way(pytester: pytest.Pytester) -> None:
    source = "import pytest\n@pytest.mark.parametrize('nic', ['stmmac'])\n" + ONE.replace("(", "(nic, ")
    assert collected(pytester, source, "--nic", "igb", "--nic", "e1000e") == ["test_one[stmmac]"]


def test_the_fixtures_are_what_the_options_name(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "def test_one(nic, clock):\n    assert (nic.name, nic.driver, clock) == ('e1000e', 'e1000e', 'real')\n"
    )
    pytester.runpytest("--nic", "e1000e", "--clock", "real").assert_outcomes(passed=1)


@pytest.mark.parametrize("options", [("--clock", "slow"), ("--guests", "0"), ("--guests", "many")])
def test_wrong_options_are_refused(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    assert pytester.runpytest(*options).ret == pytest.ExitCode.USAGE_ERROR


def test_an_unknown_nic_fails_the_test_with_the_known_ones(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(nic): pass\n")
    done = pytester.runpytest("--nic", "i225")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["E *i225*igb*"])


def test_no_more_guests_are_had_at_once_than_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import json, os, time
        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_one(guest_slot, number):
            with guest_slot.taken(), guest_slot.taken():  # a guest and a run beside each other count once
                begun = time.monotonic()
                time.sleep(0.2)
                with open("spans", "a") as file:
                    file.write(json.dumps([begun, time.monotonic()]) + "\\n")
        """
    )
    pytester.runpytest_subprocess("-n", "3", "--guests", "1", "--dist", "load").assert_outcomes(passed=6)
    spans = [json.loads(line) for line in (pytester.path / "spans").read_text().splitlines()]
    at_once = [sum(begun <= moment < ended for begun, ended in spans) for moment, _ in spans]
    assert at_once == [1] * 6


def test_xdist_takes_as_many_workers_as_guests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(): pass\n")
    done = pytester.runpytest_subprocess("-n", "auto", "--guests", "1", "-v")
    done.stdout.fnmatch_lines(["*1 worker*"])


def test_this_machine_carries_a_guest() -> None:
    assert guests_carried() >= 1


def test_a_failed_check_says_rule_numbers_proof_and_command() -> None:
    with pytest.raises(RuleViolated) as failed:
        CheckedRun(result_of(STOCK), STOCK).check()
    lines = str(failed.value).splitlines()
    assert lines[0].startswith("fail ring-full on igb, Linux 7.3.4+deb")
    assert lines[1].startswith("22 ring-full-exit violated: observed 2 frames, limit 1: ")
    assert any(line.lstrip().startswith(">") and "result=-ENOBUFS" in line for line in lines[2:])
    assert lines[-1] == "again: testbed run ring-full --nic igb"


def test_a_check_of_one_rule_looks_at_no_other() -> None:
    stock = CheckedRun(result_of(STOCK), STOCK)
    stock.check("work-in-budget")
    stock.check("1")
    with pytest.raises(RuleViolated, match="ring-full-exit violated"):
        stock.check("work-in-budget", "ring-full-exit")
    with pytest.raises(RuleViolated, match="13 irq-rate not-exercised"):
        stock.check("irq-rate")
    with pytest.raises(UsageError, match="no-such-rule"):
        stock.check("no-such-rule")


def test_a_run_that_could_not_be_judged_is_no_pass() -> None:
    CheckedRun(result_of(REPAIRED), REPAIRED).check()
    broken = CheckedRun(result_of(REPAIRED, verdict="broken", error="the guest died", trace=None, rules=[]))
    for rules in ((), ("work-in-budget",)):
        with pytest.raises(RuleViolated, match="the guest died"):
            broken.check(*rules)


def test_the_page_about_it_shows_the_example_as_it_is() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    example = (docs / "examples" / "test_my_driver.py").read_text()
    assert indent(example, "    ") in (docs / "pytest.md").read_text()


def test_a_rule_that_was_left_out_does_not_hold() -> None:
    with pytest.raises(RuleViolated):
        CheckedRun(result_of(REPAIRED, rules=[]), REPAIRED).check("ring-full-exit")
