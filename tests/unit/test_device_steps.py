"""The ``device`` step: how it is written, checked by its NIC, and what the device did in the trace."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from testbed import nic
from testbed.errors import GuestLost, Unsupported, UsageError
from testbed.run import check_commands
from testbed.scenario import compile_program, load_text, save
from testbed.scenario.steps import DeviceStep, describe
from testbed.trace import event_lines, sequence_digest, with_device_rows
from testbed.trace.device import DEVICE_CPU
from testbed.trace.events import EVENT, Kind
from testbed.vfio_user.events import ROW, DeviceEvent

TEXT = """\
name: commanded
steps:
- device: {command: stall, direction: rx, queue: 2}
- repeat:
    times: 2
    steps:
    - device: release
"""


def test_a_command_is_written_beside_its_arguments_and_reads_back_equal() -> None:
    scenario = load_text(TEXT, "commanded.yaml")
    assert scenario.steps[0] == DeviceStep("stall", {"direction": "rx", "queue": 2})
    assert describe(scenario.steps[0]) == "device stall direction=rx queue=2"
    assert save(scenario) == TEXT
    assert [step.command for step in compile_program(scenario).actions.values()] == [
        "stall",
        "release",
        "release",
    ]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("device: Stall!", "steps[0].device: expected text, matching"),
        ("device: {direction: rx}", "expected the field command"),
        ("device: {command: stall, queue: [1]}", "expected"),
        ("device", "expected the field command"),
    ],
)
def test_what_is_no_command_is_refused_with_its_line(step: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"x\.yaml:3: ") as error:
        load_text(f"name: x\nsteps:\n- {step}\n", "x.yaml")
    assert said in str(error.value)


def test_the_nic_checks_its_words() -> None:
    check_commands(nic.get("stmmac"), load_text(TEXT, "commanded.yaml"))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            "{command: dance}",
            "expected a command of stmmac after device, seen 'dance'; its commands are hold, release",
        ),
        ("{command: stall, direction: up}", "device: stall of stmmac: Invalid enum value 'up'"),
        ("{command: complete, direction: rx, count: 0}", "Expected `int` >= 1 - at `$.count`"),
        ("{command: release, now: true}", "unknown field `now`; it takes nothing"),
        ("{command: stall}", "missing required field `direction`; it takes direction, queue"),
    ],
)
def test_a_word_that_the_nic_does_not_know_is_refused(step: str, said: str) -> None:
    scenario = load_text(f"name: x\nsteps:\n- device: {step}\n", "x.yaml")
    with pytest.raises(UsageError) as error:
        check_commands(nic.get("stmmac"), scenario)
    assert said in str(error.value)


def test_a_nic_of_qemus_takes_no_commands() -> None:
    with pytest.raises(Unsupported, match="igb is QEMU's own and takes no commands, seen device: stall"):
        check_commands(nic.get("igb"), load_text(TEXT, "commanded.yaml"))


# In the trace


def guest_rows(count: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    rows = np.zeros(count, dtype=EVENT)
    rows["kind"] = Kind.SCHEDULE
    rows["time_ns"] = np.arange(1, count + 1) * 1000
    return rows


def device_row(
    after: int, kind: int = DeviceEvent.TAIL, queue: int = 1, a: int = 2, b: int = 3, c: int = 4
) -> bytes:
    return ROW.pack(99, after, kind, queue, a, b, c)


def test_what_the_device_did_stands_where_it_happened() -> None:
    data = device_row(0) + device_row(2, DeviceEvent.RAISED) + device_row(2, DeviceEvent.LINK) + device_row(9)
    table = with_device_rows(guest_rows(3), data)
    tail, raised, link = Kind.TAIL, Kind.RAISED, Kind.LINK
    assert table["kind"].tolist() == [tail, 33, 33, raised, link, 33, tail]
    assert table["time_ns"].tolist() == [1000, 1000, 2000, 2000, 2000, 3000, 3000]
    assert table["cpu"][0] == DEVICE_CPU
    assert [int(table[name][0]) for name in ("subject", "a", "b", "c")] == [1, 2, 3, 4]


def test_a_device_that_did_nothing_changes_nothing() -> None:
    assert with_device_rows(guest_rows(2), b"").tobytes() == guest_rows(2).tobytes()


def test_an_event_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(GuestLost, match="unknown kind 33"):
        with_device_rows(guest_rows(1), device_row(0, Kind.SCHEDULE))


def test_where_a_buffer_lies_does_not_count_in_the_digest_but_what_was_done_does() -> None:
    digests = [
        sequence_digest(with_device_rows(guest_rows(2), device_row(1, DeviceEvent.RX_DONE, **values)))
        for values in ({"c": 1}, {"c": 2}, {"c": 2, "b": 4})
    ]
    assert digests[0] == digests[1] != digests[2]


def test_every_device_event_has_its_text() -> None:
    data = b"".join(device_row(0, kind) for kind in DeviceEvent)
    lines = list(event_lines(with_device_rows(guest_rows(0), data)))
    assert len(lines) == len(DeviceEvent)
    assert lines[0].endswith("cpu255 RX_DONE        queue=1 descriptor=2 bytes=3 address=4")


def test_the_rows_layout_is_the_servers() -> None:
    assert ROW.size == EVENT.itemsize == struct.calcsize("<QIHHIIQ")
