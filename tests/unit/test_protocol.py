"""The C header and the Python declarations of the protocol say the same: the header is compiled and asked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed.guest import channel
from testbed.guest.execute import PAYLOAD_OFFSET
from testbed.guest.qemu import REAL_CLOCK
from testbed.scenario import program
from testbed.trace import events
from testbed.traffic import frames
from testbed.vfio_user.follower import DUE_OFFSET, FOLLOWS_OFFSET, NOW_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import IntEnum

HEADER = Path(__file__).resolve().parents[2] / "images" / "agent" / "protocol.h"

ENUMS: dict[str, Iterable[IntEnum]] = {
    "TB_STEP_": program.StepKind,
    "TB_SET_": program.Setting,
    "TB_XDP_": program.XdpMode,
    "TB_EV_": [kind for kind in events.Kind if kind < events.Kind.RX_DONE],  # the guest's
    "TB_FLAG_": events.Flag,
    "TB_LEDGER_": events.Ledger,
    "TB_OWNER_": events.Owner,
    "TB_RING_": events.Ring,
    "TB_COUNTER_": events.Counter,
}
POSITION = {"now_ns": NOW_OFFSET, "due_ns": DUE_OFFSET, "follows": FOLLOWS_OFFSET}
SIZES = {
    "struct tb_header": channel.HEADER.size,
    "struct tb_ready": channel.Ready.LAYOUT.size,
    "struct tb_barrier": channel.Barrier.LAYOUT.size,
    "struct tb_end": channel.End.LAYOUT.size,
    "struct tb_exited": channel.Exited.LAYOUT.size,
    "struct tb_step": program.STEP.itemsize,
    "struct tb_event": events.EVENT.itemsize,
    "struct tb_trailer": frames.TRAILER.size,
}
CONSTANTS = {
    "TB_MAGIC": channel.MAGIC,
    "TB_VERSION": channel.VERSION,
    "TB_MAX_STEPS": program.MAX_STEPS,
    "TB_ALL": program.ALL,
    "TB_TRAILER_MAGIC": frames.TRAILER_MAGIC,
    "TB_PAYLOAD_OFFSET": PAYLOAD_OFFSET,
    "TB_ACTION_DEVICE": channel.ACTION_DEVICE,
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What a C compiler makes of the header: name to number."""
    names = [f"{prefix}{member.name}" for prefix, enum in ENUMS.items() for member in enum]
    offsets = [("tb_event", name) for name in events.EVENT.names or ()] + [
        ("tb_step", name) for name in program.STEP.names or ()
    ]
    offsets += [("tb_position", name) for name in POSITION]
    lines = [
        f'printf("{name} %lld\\n", (long long)({name}));'
        for name in (*names, *CONSTANTS, *(f"TB_{m.name}" for m in channel.MessageType))
    ]
    lines += [f'printf("{name} %zu\\n", sizeof({name}));' for name in SIZES]
    lines += [
        f'printf("{struct}.{field} %zu\\n", offsetof(struct {struct}, {field}));' for struct, field in offsets
    ]
    source = f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{ {" ".join(lines)} }}\n'
    directory = tmp_path_factory.mktemp("protocol")
    (directory / "ask.c").write_text(source)
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        from testbed.toolchain import open_toolchain  # noqa: PLC0415 - only where the host has no compiler

        toolchain = open_toolchain()
        toolchain.run(
            ["gcc", "ask.c", "-o", "ask"], read=[HEADER], write=[directory], cwd=directory, timeout_s=60
        )
        output = toolchain.run([str(directory / "ask")], write=[directory], timeout_s=10)
    else:
        subprocess.run([compiler, "ask.c", "-o", "ask"], cwd=directory, check=True)
        output = subprocess.run([directory / "ask"], check=True, capture_output=True, text=True).stdout
    return {name: int(number) for name, _, number in (line.rpartition(" ") for line in output.splitlines())}


@pytest.mark.parametrize("prefix", ENUMS)
def test_enumerations_agree(prefix: str, compiled: dict[str, int]) -> None:
    enum = ENUMS[prefix]
    assert {member.name: compiled[f"{prefix}{member.name}"] for member in enum} == {
        member.name: member.value for member in enum
    }


@pytest.mark.parametrize("prefix", ENUMS)
def test_the_header_has_no_enumerators_that_python_does_not_know(prefix: str) -> None:
    words = {word.strip(",;{}=") for word in HEADER.read_text().split()}
    in_header = {
        word.removeprefix(prefix) for word in words if word.startswith(prefix) and word != "TB_OWNER_COUNT"
    }
    assert in_header == {member.name for member in ENUMS[prefix]}


def test_messages_agree(compiled: dict[str, int]) -> None:
    assert {m.name: compiled[f"TB_{m.name}"] for m in channel.MessageType} == {
        m.name: m.value for m in channel.MessageType
    }


def test_sizes_and_constants_agree(compiled: dict[str, int]) -> None:
    assert {name: compiled[name] for name in SIZES} == SIZES
    assert {name: compiled[name] % 2**32 for name in CONSTANTS} == CONSTANTS


def test_the_word_that_says_which_clock_it_is_is_the_agents() -> None:
    name, _, value = REAL_CLOCK.partition("=")
    assert (f'#define TB_CLOCK_VARIABLE "{name}" ' in HEADER.read_text(), value) == (True, "real")


@pytest.mark.parametrize(("struct", "dtype"), [("tb_event", events.EVENT), ("tb_step", program.STEP)])
def test_fields_lie_where_numpy_looks(struct: str, dtype: object, compiled: dict[str, int]) -> None:
    fields = dtype.fields  # type: ignore[attr-defined]
    assert {name: compiled[f"{struct}.{name}"] for name in fields} == {
        name: place[1] for name, place in fields.items()
    }


def test_a_device_model_finds_the_time_where_the_guest_writes_it(compiled: dict[str, int]) -> None:
    assert {name: compiled[f"tb_position.{name}"] for name in POSITION} == POSITION
