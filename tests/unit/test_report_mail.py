"""The text for a mail: what it says, and that it fits."""

from __future__ import annotations

import shlex

import pytest
from test_report import REPAIRED, STOCK, result_of

from testbed.report import mail_lines
from testbed.report.mail import _WIDTH
from testbed.result import KernelRecord
from testbed.rules import RuleResult

LONG = (
    "testbed run ring-full --nic igb --variant 'a variant' --kernel debian:trixie-backports --set rx_ring=64"
)


def test_a_violation_is_shown_with_numbers_and_marked_events() -> None:
    text = "\n".join(mail_lines(result_of(STOCK), STOCK.events))
    assert text.startswith("testbed 0.1.0: ring-full on igb: FAIL\n")
    assert "Violated: ring-full-exit (rule 22), observed 2 frames, limit 1" in text
    (proof,) = (part for part in text.split("\n\n") if part.startswith("    time in us"))
    shown = proof.splitlines()[1:]
    assert 3 <= len(shown) <= 10
    assert all("REDIRECT" in line or "POLL" in line for line in shown if line.startswith("  >"))
    assert "Not exercised: " in text
    assert "Counters: frames injected 4, frames to the socket 2" in text
    assert text.endswith("To reproduce:\n\n  testbed run ring-full --nic igb")


def test_at_most_ten_events_are_shown_and_the_rest_is_hinted_at() -> None:
    rule = RuleResult(
        id="no-spin",
        number=4,
        outcome="violated",
        observed=12,
        limit=0,
        unit="polls",
        message="it spun",
        events=[0] * 12,
    )
    lines = list(mail_lines(result_of(STOCK, rules=[rule]), STOCK.events))
    at = lines.index("    time in us  event")
    assert lines[at + 11] == "    [...]"


def test_no_line_is_longer_than_a_mail_allows() -> None:
    kernel = KernelRecord(
        name="debian:any",
        release="7.3.4+deb",
        package="linux-binary-7.3.4+deb13-amd64 7.3.4-1~bpo13+1",
        variants=["igb/ring-full-exit", "igb/ring-full-exit-naive", "igb/another-one"],
        patches=["0001-net-igb-leave-the-poll.patch"],
    )
    results = [
        result_of(STOCK, kernel=kernel, error="words " * 30, reproduce=LONG),
        result_of(REPAIRED, reproduce=LONG),
    ]
    for seen, result in zip((STOCK, REPAIRED), results, strict=True):
        assert max(len(line) for line in mail_lines(result, seen.events, results)) <= _WIDTH


def test_the_command_can_be_pasted_into_a_shell() -> None:
    lines = list(mail_lines(result_of(STOCK, reproduce=LONG)))
    command = "\n".join(lines[lines.index("To reproduce:") + 2 :])
    assert shlex.split(command.replace("\\\n", "")) == shlex.split(LONG)
    assert command.count("\n") == 1


def test_several_runs_are_counted() -> None:
    runs = [result_of(STOCK), result_of(STOCK), result_of(REPAIRED)]
    text = "\n".join(mail_lines(runs[0], STOCK.events, runs))
    assert f"3: 2 fail, 1 {runs[2].verdict}; 2 sequences of events" in text
    assert "2: 2 fail; the same events in each" in "\n".join(mail_lines(runs[0], STOCK.events, runs[:2]))


@pytest.mark.parametrize("verdict", ["broken", "unsupported"])
def test_what_could_not_be_judged_says_why(verdict: str) -> None:
    result = result_of(STOCK, verdict=verdict, rules=[], counters=None, trace=None, error="QEMU ended")
    assert list(mail_lines(result))[1] == "  QEMU ended"


def test_a_waiver_is_told_without_events() -> None:
    rule = RuleResult(
        id="no-spin",
        number=4,
        outcome="waived",
        observed=2,
        limit=1,
        unit="polls",
        message="it spun",
        events=[0],
        waiver="known since 2020",
    )
    text = "\n".join(mail_lines(result_of(REPAIRED, rules=[rule], verdict="pass"), REPAIRED.events))
    assert (
        "Waived: no-spin (rule 4), observed 2 polls, limit 1\n  it spun\n  waived: known since 2020" in text
    )
    assert "time in us" not in text
