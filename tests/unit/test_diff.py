"""Where two traces part: in what was done, and only then in when."""

import io
from typing import Any

import msgspec
import pytest
from test_report import result_of
from traces import (
    complete,
    fill,
    flush,
    frame,
    irq,
    need_wakeup,
    poll,
    polled,
    refused,
    rx,
    schedule,
    step,
    trace_of,
)

from testbed.diff import Difference, Parting, compare, parting
from testbed.report import console_for, difference_report
from testbed.run import Run
from testbed.scenario.program import StepKind
from testbed.trace import Trace
from testbed.trace.events import Ring

IDLE = irq() + schedule() + poll(work=0)
BURST = irq() + schedule() + poll(frame(0), frame(1), work=2)


def at(found: Parting | None) -> tuple[str, int]:
    assert found
    return found.stream, found.common


def test_equal_traces_do_not_part() -> None:
    assert parting(trace_of(IDLE, BURST), trace_of(IDLE, BURST)) is None


def test_the_first_failed_redirect_is_the_last_event_in_common() -> None:
    leaves = trace_of(BURST, irq(), schedule(), poll(frame(2), refused(3), work=2), rx(0, 0))
    goes_on = trace_of(BURST, irq(), schedule(), poll(frame(2), refused(3), refused(4), work=3), rx(0, 0))
    found = parting(goes_on, leaves)
    assert found
    assert found.stream == "driver"
    assert found.last
    assert "REDIRECT" in found.last
    assert "-ENOBUFS" in found.last
    assert "sequence=4" in found.a.after[0]
    assert "FLUSH" in found.b.after[0]
    assert found.a.before[-1] == found.last


def test_polls_that_find_nothing_and_their_place_are_timing() -> None:
    steps = step(StepKind.SLEEP, number=1)
    assert at(parting(trace_of(BURST, IDLE, steps), trace_of(BURST, steps, IDLE))) == ("timing", 9)
    assert at(parting(trace_of(BURST, IDLE, IDLE), trace_of(BURST, IDLE))) == ("timing", 13)


def test_a_mark_that_is_set_again_is_timing_and_one_that_changes_is_not() -> None:
    def marking(*, wanted: bool) -> list[Any]:
        return irq() + schedule() + poll(need_wakeup(Ring.FILL, wanted=wanted), work=0)

    marked = BURST + marking(wanted=True) + BURST
    assert at(parting(trace_of(marked, marking(wanted=True)), trace_of(marked)))[0] == "timing"
    assert at(parting(trace_of(marked, marking(wanted=False)), trace_of(marked)))[0] == "driver"


@pytest.mark.parametrize(
    "other", [complete() + poll(work=0), polled(0)], ids=["completes twice", "completes never"]
)
def test_an_idle_poll_that_does_not_complete_once_is_what_the_driver_does(other: list[Any]) -> None:
    with_other = trace_of(BURST, irq(), schedule(), other, flush())
    assert at(parting(with_other, trace_of(BURST, IDLE, flush())))[0] == "driver"


def test_what_user_space_sees_first_is_told_of_it() -> None:
    a, b = trace_of(BURST, rx(0, 0), fill(0), BURST), trace_of(BURST, rx(0, 1), fill(0), IDLE)
    found = parting(a, b)
    assert at(found) == ("user space", 0)
    assert found
    assert found.last is None


def test_a_run_that_ends_sooner_parts_at_its_end() -> None:
    found = parting(trace_of(BURST, rx(0, 0)), trace_of(BURST, rx(0, 0), rx(1, 1)))
    assert found
    assert (found.common, found.a.after, len(found.b.after)) == (1, [], 1)


def test_the_context_has_the_length_asked_for() -> None:
    found = parting(trace_of(BURST, rx(0, 0)), trace_of(BURST, rx(0, 1)), context=2)
    assert found
    assert (len(found.a.before), len(found.a.after)) == (0, 1)
    found = parting(trace_of(BURST, BURST, rx(0, 0)), trace_of(BURST, IDLE), context=2)
    assert found
    assert (len(found.a.before), len(found.a.after)) == (2, 2)


def run_of(trace: Trace) -> Run:
    return Run(result_of(trace), trace)


def difference_of(a: Trace, b: Trace) -> Difference:
    found = compare(run_of(a), run_of(b))
    assert found
    return found


LEAVES = trace_of(BURST, irq(), schedule(), poll(frame(2), refused(3), work=2))
GOES_ON = trace_of(BURST, irq(), schedule(), poll(frame(2), refused(3), refused(4), work=3), IDLE)


def test_the_summary_measures_both_runs() -> None:
    lines = {line.name: (line.a, line.b) for line in difference_of(GOES_ON, LEAVES).summary}
    assert lines["polls"] == (3, 2)
    assert lines["polls without work"] == (1, 0)
    assert lines["work of a poll, most"] == (3, 2)
    assert lines["interrupts"] == (3, 2)
    assert lines["failed redirects"] == (2, 1)
    assert lines["failed redirects in a poll, most"] == (2, 1)


def test_a_run_without_polls_has_no_work_to_measure() -> None:
    lines = {line.name: line.a for line in difference_of(trace_of(rx(0, 0)), LEAVES).summary}
    assert lines["work of a poll, most"] is None
    assert lines["polls"] == 0


def test_a_run_that_left_no_trace_cannot_be_compared() -> None:
    assert compare(Run(result_of(LEAVES)), run_of(LEAVES)) is None


def test_the_text_shows_both_sides_and_the_figures() -> None:
    text = text_of(difference_of(GOES_ON, LEAVES))
    assert "What the driver does is the same for " in text
    assert "\nA " in text
    assert "\nB " in text
    assert (
        "failed redirects in a poll, most   2   1" in " ".join(text.split("\n")).replace("  ", " ")
        or "failed" in text
    )


def test_the_text_of_equal_runs_says_so() -> None:
    assert "The sequences of events are equal" in text_of(difference_of(LEAVES, LEAVES))


def test_a_difference_of_timing_is_called_so() -> None:
    assert "Only when differs" in text_of(difference_of(trace_of(BURST, IDLE), trace_of(BURST)))


def text_of(difference: Difference) -> str:
    stream = io.StringIO()
    console = console_for(stream)
    for part in difference_report(difference):
        console.print(part, crop=False)
    return stream.getvalue()


def test_the_document_has_what_was_promised() -> None:
    document = msgspec.json.decode(msgspec.json.encode(difference_of(GOES_ON, LEAVES)))
    assert document.keys() == {"parting", "summary", "a", "b"}
    assert document["parting"].keys() == {"stream", "common", "last", "a", "b"}
