"""What a person sees: a run, runs side by side, evidence, explanations, and the commands that show them."""

from __future__ import annotations

import io

import pytest
from click.testing import CliRunner
from judging import outcome
from rich.console import Console
from traces import ZERO_COPY, fill, frames, poll, refused, rx, trace_of

from testbed.cli import explain, show
from testbed.errors import UsageError
from testbed.report import comparison, console_for, evidence_lines, explanation_lines, run_report
from testbed.result import KernelRecord, Result, Timings, TraceRecord, judge_run, save_result
from testbed.rules import RuleResult, all_rules, judge, rule_named
from testbed.trace import count, save_events, sequence_digest

STOCK = trace_of(
    fill(0, 1),
    poll(frames(1, 2), refused(3), refused(4), work=4),
    rx(0, 1),
    rx(1, 2),
    settings=ZERO_COPY,
    injected=4,
    log=[],
)
REPAIRED = trace_of(
    fill(0, 1),
    poll(frames(1, 2), refused(3), work=3),
    rx(0, 1),
    rx(1, 2),
    settings=ZERO_COPY,
    injected=3,
    log=[],
)


def result_of(seen, /, *variants, **changes) -> Result:
    rules = judge(seen)
    judgement = judge_run(rules, ["ring-full-exit"], seen.lost)
    return Result(
        **{
            "verdict": judgement.verdict,
            "error": judgement.error,
            "kernel": KernelRecord(name="debian:any", release="7.3.4+deb", variants=list(variants)),
            "nic": "igb",
            "driver": "igb",
            "scenario": "ring-full",
            "clock": "virtual",
            "accelerator": "tcg",
            "rules": rules,
            "counters": count(seen),
            "trace": TraceRecord(
                events=len(seen.events), lost=seen.lost, sequence_digest=sequence_digest(seen.events)
            ),
            "timings": Timings(restore_s=0.25, run_s=0.5, total_s=1.0),
            "reproduce": "testbed run ring-full --nic igb",
            **changes,
        }
    )


def printed(renderable) -> str:
    stream = io.StringIO()
    console_for(stream).print(renderable)
    return stream.getvalue()


def line_with(text: str, output: str) -> str:
    return next(line for line in output.splitlines() if text in line)


def test_a_run_shows_verdict_rules_counters_timings_and_command() -> None:
    output = printed(run_report(result_of(STOCK)))
    assert output.startswith("fail  ring-full on igb, Linux 7.3.4+deb, virtual time, tcg")
    assert "violated" in line_with("ring-full-exit", output)
    assert line_with("ring-full-exit", output).split()[3:6] == ["2", "frames", "1"]
    assert "not exercised: " in output
    assert "no-spin" in output.partition("not exercised: ")[2]
    assert "4 injected, 2 to the socket, 2 lost" in output
    assert "up to 2 failed redirects" in " ".join(output.split())
    assert "restore 0.25 s, run 0.50 s, total 1.00 s" in output
    assert "boot" not in output
    assert "again: testbed run ring-full --nic igb" in output


def test_plain_output_has_no_escapes_and_fits_100_columns() -> None:
    runs = [
        result_of(STOCK),
        result_of(REPAIRED, "igb/ring-full-exit-naive"),
        result_of(REPAIRED, "igb/ring-full-exit"),
    ]
    for renderable in (run_report(runs[0]), comparison(runs)):
        output = printed(renderable)
        assert "\x1b" not in output
        assert max(len(line) for line in output.splitlines()) <= 100


def test_a_terminal_gets_colours() -> None:
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, width=120).print(run_report(result_of(STOCK)))
    assert "\x1b[1;31m" in stream.getvalue()


def test_text_in_brackets_is_shown_as_it_is() -> None:
    output = printed(run_report(result_of(STOCK, error="igb_poll+0x0/0x120 [igb] [bold]x")))
    assert "[igb] [bold]x" in output


def test_a_broken_run_says_why_and_shows_no_table() -> None:
    broken = result_of(
        STOCK, verdict="broken", error="QEMU died", rules=[], counters=None, trace=None, driver=""
    )
    output = printed(run_report(broken))
    assert output.splitlines()[:2] == [
        "broken  ring-full on igb, Linux 7.3.4+deb, virtual time, tcg",
        "QEMU died",
    ]
    assert "frames:" not in output


def test_runs_stand_side_by_side() -> None:
    output = printed(comparison([result_of(STOCK), result_of(REPAIRED, "igb/ring-full-exit")]))
    assert line_with("stock", output).split() == ["stock", "igb/ring-full-exit"]
    assert line_with("verdict", output).split() == ["verdict", "fail", "pass"]
    assert "violated (2, limit 1)" in line_with("ring-full-exit  ", output)
    assert line_with("ring-full-exit  ", output).rstrip().endswith("hold")
    assert line_with("failed redirects per poll", output).split()[-2:] == ["2", "1"]
    assert line_with("frames lost", output).split()[-2:] == ["2", "1"]
    assert "no-spin" not in output
    assert "frames delivered twice" not in output


def test_runs_without_counters_or_rules_leave_gaps() -> None:
    broken = result_of(STOCK, verdict="broken", rules=[], counters=None, trace=None)
    output = printed(comparison([result_of(STOCK), broken], ["one", "two"]))
    assert "not judged" in line_with("ring-full-exit", output)
    assert line_with("frames lost", output).split()[-1] == "-"
    assert line_with("one", output).split() == ["one", "two"]


def test_evidence_marks_the_cited_rows_and_shows_what_is_around() -> None:
    lines = list(evidence_lines(result_of(STOCK), STOCK.events))
    cited = outcome("ring-full-exit", STOCK).events
    marked = [int(line.split()[1]) for line in lines if line.startswith(">")]
    assert lines[0].startswith("22 ring-full-exit: violated, 2 frames, limit 1: 1 of 1 polls")
    assert marked == cited
    assert any("result=-ENOBUFS" in line for line in lines)
    assert len([line for line in lines if " cpu0 " in line]) == len(STOCK.events)


def test_evidence_far_apart_is_cut_into_windows() -> None:
    trace = trace_of(
        *(poll(refused(2 * number), refused(2 * number + 1), work=2) for number in range(40)),
        settings=ZERO_COPY,
    )
    spread = RuleResult(
        id="x",
        number=99,
        outcome="violated",
        observed=1,
        limit=0,
        unit="u",
        message="m",
        events=list(range(0, 240, 24)),
    )
    lines = list(evidence_lines(result_of(trace, rules=[spread]), trace.events))
    assert sum(line.strip() == "..." for line in lines) == 5
    assert "   and 4 more places like these" in lines


def test_evidence_of_one_rule_is_shown_whatever_its_outcome() -> None:
    (line, *_) = evidence_lines(result_of(STOCK), STOCK.events, "kernel-clean")
    assert line.startswith("36 kernel-clean: hold")


def test_without_a_violation_evidence_says_so() -> None:
    assert list(evidence_lines(result_of(REPAIRED), REPAIRED.events)) == ["no rule is violated"]


def test_evidence_of_another_trace_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"trace of .* events, found 0"):
        evidence_lines(result_of(STOCK), STOCK.events[:0])
    with pytest.raises(UsageError, match="no trace"):
        evidence_lines(result_of(STOCK, trace=None), STOCK.events)
    with pytest.raises(UsageError, match=r"no rule no-spin.*judged by none"):
        evidence_lines(result_of(STOCK, rules=[]), STOCK.events, "no-spin")


@pytest.mark.parametrize("rule_id", all_rules())
def test_every_rule_can_be_explained_within_100_columns(rule_id) -> None:
    rule = rule_named(rule_id)
    lines = list(explanation_lines(rule))
    text = " ".join(" ".join(lines).split())
    assert lines[0] == f"{rule.number} {rule.id}"
    for part in (rule.statement, rule.needs, rule.unit, *rule.exceptions, *rule.sources):
        assert part in text
    assert max(len(line) for line in lines) <= 100


def test_explain_prints_and_refuses() -> None:
    ran = CliRunner().invoke(explain.command, ["22"])
    assert ran.exit_code == 0
    assert ran.output.startswith("22 ring-full-exit\n")
    assert isinstance(CliRunner().invoke(explain.command, ["no-such"]).exception, UsageError)


def saved(tmp_path, result, trace):
    save_result(tmp_path, result)
    save_events(tmp_path / "trace.npy", trace.events)
    return tmp_path


def test_show_prints_the_run_and_its_evidence(tmp_path) -> None:
    directory = saved(tmp_path, result_of(STOCK), STOCK)
    for path in (directory, directory / "result.json"):
        ran = CliRunner().invoke(show.command, [str(path)])
        assert ran.exit_code == 0
        assert ran.output.startswith("fail  ring-full on igb")
        assert "\n22 ring-full-exit: violated" in ran.output
        assert "result=-ENOBUFS" in ran.output


def test_show_of_one_rule_prints_only_its_events(tmp_path) -> None:
    directory = saved(tmp_path, result_of(STOCK), STOCK)
    ran = CliRunner().invoke(show.command, [str(directory), "22"])
    assert ran.output.startswith("22 ring-full-exit: violated")
    assert "kernel-clean" not in ran.output


def test_show_of_a_run_without_trace_needs_none(tmp_path) -> None:
    save_result(
        tmp_path, result_of(STOCK, verdict="broken", error="QEMU died", rules=[], counters=None, trace=None)
    )
    ran = CliRunner().invoke(show.command, [str(tmp_path)])
    assert ran.exit_code == 0
    assert "QEMU died" in ran.output


def test_show_refuses_what_is_no_result(tmp_path) -> None:
    assert isinstance(CliRunner().invoke(show.command, [str(tmp_path)]).exception, UsageError)
    assert isinstance(CliRunner().invoke(show.command, [str(tmp_path / "none")]).exception, UsageError)
    directory = saved(tmp_path, result_of(STOCK), STOCK)
    assert isinstance(CliRunner().invoke(show.command, [str(directory), "no-such"]).exception, UsageError)
    (directory / "trace.npy").unlink()
    assert isinstance(CliRunner().invoke(show.command, [str(directory)]).exception, UsageError)
