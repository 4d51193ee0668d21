from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.random import Generator, default_rng

from testbed.errors import UsageError
from testbed.scenario import (
    Capability,
    Scenario,
    Settings,
    apply_settings,
    canonical_json,
    compile_program,
    from_json,
    library,
    load,
    load_text,
    required,
    save,
    settings_table,
)
from testbed.scenario.program import ALL, MAX_STEPS, STEP, Setting, StepKind
from testbed.scenario.steps import (
    Coalesce,
    CompDrain,
    Fill,
    Inject,
    Netconsole,
    Repeat,
    RxDrain,
    Set,
    Sleep,
    SnapshotRings,
    Tx,
    TxKick,
    Wakeup,
)
from testbed.scenario.store import LIBRARY
from testbed.scenario.unroll import modules_of, totals, unroll

EVERYTHING = """\
name: everything
about: 'each step once: "quoted", with ümlaut'
must_exercise: [no-spin]
settings: {rx_ring: 64, mode: copy, need_wakeup: false, busy_poll: 8, queue: 1}
steps:
- fill
- fill: 8
- inject: 3
- inject: {count: 5, bytes: 1514}
- sleep_us: 1_000
- rx_drain: all
- rx_drain: 2
- tx: 0x10
- tx: {count: 2, bytes: 60}
- tx_kick
- comp_drain:
- comp_drain: {count: 4}
- wakeup: rx
- wakeup: tx
- set: {napi_defer_hard_irqs: 2, gro_flush_timeout: 200000}
- set: {gro_flush_timeout: 0}
- set: {byte_queue_limit: 1}
- netconsole: true
- repeat:
    times: 2
    steps: [snapshot_rings]
"""


def test_every_step_and_short_form_is_read() -> None:
    scenario = load_text(EVERYTHING, "f.yaml")
    assert scenario.about == 'each step once: "quoted", with ümlaut'
    assert scenario.must_exercise == ("no-spin",)
    assert scenario.settings == Settings(rx_ring=64, mode="copy", need_wakeup=False, busy_poll=8, queue=1)
    assert scenario.steps == (
        Fill("all"),
        Fill(8),
        Inject(3, 64),
        Inject(5, 1514),
        Sleep(1000),
        RxDrain("all"),
        RxDrain(2),
        Tx(16, 64),
        Tx(2, 60),
        TxKick(),
        CompDrain("all"),
        CompDrain(4),
        Wakeup("rx"),
        Wakeup("tx"),
        Set(2, 200000),
        Set(None, 0),
        Set(None, None, 1),
        Netconsole(on=True),
        Repeat(2, (SnapshotRings(),)),
    )


def test_a_scenario_with_netconsole_needs_its_module() -> None:
    assert modules_of(load_text(EVERYTHING, "f.yaml")) == ("netconsole",)
    assert modules_of(load_text(EVERYTHING.replace("- netconsole: true\n", ""), "f.yaml")) == ()


def test_the_program_is_what_protocol_h_says() -> None:
    program = compile_program(load_text(EVERYTHING, "f.yaml"))
    assert program.steps.dtype == STEP
    k = StepKind
    expected = [
        (k.RINGS, 1, 0, 64, 256, 0),
        (k.UMEM, 1, 512, 2048, 512, 512),
        (k.XDP_ATTACH, 1, 0, 4, 0, 0),
        (k.BIND, 1, 8, 2, 256, 256),
        (k.FILL, 1, ALL, 0, 0, 0),
        (k.FILL, 1, 8, 0, 0, 0),
        (k.HOST, 1, 0, 0, 1, 0),
        (k.HOST, 1, 0, 1, 1, 0),
        (k.SLEEP, 1, 0, 1000, 0, 0),
        (k.RX_DRAIN, 1, ALL, 0, 0, 0),
        (k.RX_DRAIN, 1, 2, 0, 0, 0),
        (k.TX, 1, 16, 64, 0, 0),
        (k.TX, 1, 2, 60, 0, 0),
        (k.TX_KICK, 1, 0, 0, 0, 0),
        (k.COMP_DRAIN, 1, ALL, 0, 0, 0),
        (k.COMP_DRAIN, 1, 4, 0, 0, 0),
        (k.WAKEUP_RX, 1, 0, 0, 0, 0),
        (k.WAKEUP_TX, 1, 0, 0, 0, 0),
        (k.SET, 1, 0, Setting.NAPI_DEFER_HARD_IRQS, 2, 0),
        (k.SET, 1, 0, Setting.GRO_FLUSH_TIMEOUT, 200000, 0),
        (k.SET, 1, 0, Setting.GRO_FLUSH_TIMEOUT, 0, 0),
        (k.SET, 1, 0, Setting.BYTE_QUEUE_LIMIT, 1, 0),
        (k.NETCONSOLE, 1, 0, 1, 0, 0),
        (k.SNAPSHOT_RINGS, 1, 0, 0, 0, 0),
        (k.SNAPSHOT_RINGS, 1, 0, 0, 0, 0),
    ]
    assert program.steps.tolist() == [tuple(int(n) for n in row) for row in expected]
    assert program.actions == {0: Inject(3, 64), 1: Inject(5, 1514)}
    assert program.first_step == 4
    assert program.frames == 8
    assert program.describe(3) == "step 3: set-up: bind"
    assert program.describe(9) == "step 9: rx_drain all"
    assert program.describe(12) == "step 12: tx count=2 bytes=60"
    assert program.describe(24) == "step 24: snapshot_rings (in repeat 2/2)"


@pytest.mark.parametrize(
    ("settings", "kinds", "flags", "needs"),
    [
        ({}, [1, 2, 3, 5], 4 | 8, {Capability.NATIVE_XDP, Capability.ZERO_COPY}),
        ({"need_wakeup": "false"}, [1, 2, 3, 5], 4, {Capability.NATIVE_XDP, Capability.ZERO_COPY}),
        ({"mode": "copy"}, [1, 2, 3, 5], 2 | 8, {Capability.NATIVE_XDP, Capability.COPY}),
        (
            {"mode": "copy", "xdp_mode": "generic"},
            [1, 2, 3, 5],
            2 | 8,
            {Capability.GENERIC_XDP, Capability.COPY},
        ),
        ({"mode": "none", "verdict": "drop"}, [1, 3], None, {Capability.NATIVE_XDP}),
    ],
)
def test_set_up_and_needs_follow_from_the_settings(
    settings: dict[str, str], kinds: list[int], flags: int | None, needs: set[Capability]
) -> None:
    scenario = apply_settings(Scenario(name="x", steps=(SnapshotRings(),)), settings)
    program = compile_program(scenario)
    assert program.steps["kind"].tolist() == [*kinds, StepKind.SNAPSHOT_RINGS]
    assert program.first_step == len(kinds)
    bind = program.steps[program.steps["kind"] == StepKind.BIND]
    assert bind["a"].tolist() == ([flags] if flags is not None else [])
    assert required(scenario) == needs


def test_a_step_may_ask_something_of_the_driver_too() -> None:
    def needs(tx_frames: int | None) -> frozenset[Capability]:
        step = Coalesce(rx_usecs=200, tx_usecs=1000, tx_frames=tx_frames)
        return required(Scenario(name="x", steps=(Repeat(2, (step,)),)))

    assert needs(0) - needs(None) == {Capability.TX_FRAMES}
    least = [Coalesce(rx_usecs=1, tx_usecs=2, at_most=some).records()[0].count for some in (False, True)]
    assert least == [0, 1]
    frames = [Coalesce(rx_usecs=1, tx_usecs=2, tx_frames=n).records()[0].c for n in (None, 0, 25)]
    assert frames == [0, 1, 26]


def test_repeats_inside_repeats_are_written_out_in_order() -> None:
    inner = Repeat(2, (Fill(2), Inject(1)))
    program = compile_program(Scenario(name="x", steps=(Repeat(2, (Fill(1), inner)), Fill(3))))
    steps = program.steps[program.first_step :]
    assert steps["kind"].tolist() == [7, 7, 17, 7, 17, 7, 7, 17, 7, 17, 7]
    assert steps["count"].tolist() == [1, 2, 0, 2, 0, 1, 2, 0, 2, 0, 3]
    assert steps["a"][steps["kind"] == StepKind.HOST].tolist() == [0, 1, 2, 3]
    assert program.sources[-2] == "inject count=1 bytes=64 (in repeat 2/2, 2/2)"


def some_steps(chance: Generator, depth: int = 0) -> list[dict[str, Any]]:
    def number(low: int, high: int) -> int:
        return int(chance.integers(low, high, endpoint=True))

    makers: list[Any] = [
        lambda: {"step": "inject", "count": number(1, 50), "bytes": number(60, 1514)},
        lambda: {"step": "rx_drain", "count": number(1, 65536)},
        lambda: {"step": "fill", "count": "all"},
        lambda: {"step": "fill"},
        lambda: {"step": "tx", "count": number(1, 64), "bytes": number(60, 1514)},
        lambda: {"step": "tx_kick"},
        lambda: {"step": "comp_drain", "count": number(1, 10)},
        lambda: {"step": "wakeup", "side": ["rx", "tx"][number(0, 1)]},
        lambda: {"step": "sleep_us", "us": number(1, 5000)},
        lambda: {"step": "set", "napi_defer_hard_irqs": number(0, 2**31 - 1), "gro_flush_timeout": None},
        lambda: {"step": "set", "gro_flush_timeout": number(0, 10**9)},
        lambda: {"step": "snapshot_rings"},
    ]
    if depth < 3:
        makers.append(
            lambda: {"step": "repeat", "times": number(1, 3), "steps": some_steps(chance, depth + 1)}
        )
    return [makers[number(0, len(makers) - 1)]() for _ in range(number(1, 6))]


def some_scenario(seed: int) -> Scenario:
    chance = default_rng(seed)
    letters = list("abc :#'\"{}[],&*!|>%@`\\\t-?äß\U0001f600\n\x07")
    data = {
        "name": f"s-{seed}",
        "about": "".join(chance.choice(letters, int(chance.integers(0, 40)))),
        "must_exercise": [str(word) for word in chance.choice(["no-spin", "true", "12", "~"], 2)],
        "settings": {
            "rx_ring": int(chance.integers(8, 512)) * 8,
            "rx_entries": 1 << int(chance.integers(0, 16)),
            "chunk_bytes": int(chance.choice([2048, 4096])),
            "mode": str(chance.choice(["zerocopy", "copy"])),
            "need_wakeup": bool(chance.integers(0, 2)),
            "verdict": str(chance.choice(["redirect", "pass", "drop", "tx"])),
        },
        "steps": some_steps(chance),
    }
    return from_json(msgspec.json.encode(data))


@pytest.mark.parametrize("seed", range(150))
def test_saving_and_compiling_lose_nothing(seed: int) -> None:
    scenario = some_scenario(seed)
    assert load_text(save(scenario), "saved") == scenario
    assert from_json(canonical_json(scenario)) == scenario
    assert canonical_json(from_json(canonical_json(scenario))) == canonical_json(scenario)
    program = compile_program(scenario)
    sums = totals(scenario)
    assert len(program.steps) == len(program.sources) == program.first_step + sums.records <= MAX_STEPS
    assert sums.frames == program.frames + sum(
        w.step.count for w in unroll(scenario) if isinstance(w.step, Tx)
    )
    host = program.steps[program.steps["kind"] == StepKind.HOST]
    assert host["a"].tolist() == list(program.actions)
    assert np.array_equal(program.steps, compile_program(load_text(save(scenario), "saved")).steps)


def test_equal_scenarios_are_equal_bytes_and_others_are_not() -> None:
    one = load_text("name: x\nsteps: [{inject: {bytes: 64, count: 3}}]", "a")
    same = load_text("steps:\n- inject: 3\nname: x\nsettings: {rx_ring: 256}", "b")
    more = load_text("name: x\nsteps: [inject: 4]", "c")
    assert canonical_json(one) == canonical_json(same)
    assert canonical_json(one) != canonical_json(more)


def test_the_library_is_named_as_its_files_and_says_what_each_is_for() -> None:
    entries = library()
    assert [entry.name for entry in entries] == sorted(path.stem for path in LIBRARY.glob("*.yaml"))
    assert {"ring-full", "rx-steady", "tx-only"} <= {entry.name for entry in entries}
    for entry in entries:
        scenario = load(entry.name)
        assert scenario.name == entry.name
        assert len(entry.about) > 20
        assert scenario.must_exercise
        assert load_text(save(scenario), "saved") == scenario


def test_ring_full_overfills_the_ring_between_two_drains_and_holds_few_chunks() -> None:
    scenario = load("ring-full")
    settings = scenario.settings
    assert settings.need_wakeup
    assert settings.mode == "zerocopy"
    assert settings.umem_chunks <= 512
    waiting, most = 0, 0
    for written in unroll(scenario):
        if isinstance(written.step, Inject):
            assert (
                written.step.count < settings.rx_ring
            )  # a burst fits the NIC's ring: none is lost before XDP
            waiting += written.step.count
            most = max(most, waiting)
        elif isinstance(written.step, RxDrain):
            waiting = 0
    assert most > settings.rx_entries
    assert waiting == 0


def test_rx_steady_never_overfills_a_ring() -> None:
    scenario = load("rx-steady")
    waiting = 0
    for written in unroll(scenario):
        if isinstance(written.step, Inject):
            waiting += written.step.count
        elif isinstance(written.step, RxDrain):
            waiting = 0
        assert waiting < min(scenario.settings.rx_entries, scenario.settings.rx_ring)


def test_a_users_file_runs_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(save(load("ring-full")))
    assert load(path) == load(str(path)) == load("ring-full")
    (tmp_path / "other.yml").write_text("name: other\nsteps: [fill]\n")
    assert load(tmp_path / "other.yml").steps == (Fill(),)


def test_overrides_change_the_named_settings_only() -> None:
    scenario = load("ring-full")
    changed = apply_settings(scenario, {"rx_ring": "128", "need_wakeup": "false", "chunk_bytes": "4096"})
    assert (changed.settings.rx_ring, changed.settings.need_wakeup, changed.settings.chunk_bytes) == (
        128,
        False,
        4096,
    )
    assert changed.settings.tx_ring == scenario.settings.tx_ring
    assert changed.steps == scenario.steps
    assert apply_settings(scenario, {}) == scenario


def test_the_table_of_settings_names_range_and_default_of_each() -> None:
    rows = {row.name: row for row in settings_table()}
    assert list(rows) == list(Settings.__struct_fields__)
    assert rows["rx_ring"][1:4] == ("integer", "64 to 4096, a multiple of 8", "256")
    assert rows["rx_entries"].range == "1 to 65536, a power of two"
    assert rows["mode"][1:4] == ("choice", "copy, none or zerocopy", "zerocopy")
    assert rows["need_wakeup"][1:4] == ("boolean", "true or false", "true")
    assert all(row.about for row in rows.values())


@pytest.mark.parametrize("row", settings_table(), ids=lambda row: row.name)
def test_every_default_can_be_set_by_its_text(row: Any) -> None:
    scenario = load("rx-steady")
    assert getattr(apply_settings(scenario, {row.name: row.default}).settings, row.name) == getattr(
        Settings(), row.name
    )


@pytest.mark.parametrize("seed", range(30))
def test_damaged_files_are_refused_or_read_never_worse(seed: int) -> None:
    chance = default_rng(seed)
    text = bytearray((LIBRARY / "ring-full.yaml").read_bytes())
    for _ in range(int(chance.integers(1, 8))):
        at = int(chance.integers(0, len(text)))
        text[at : at + int(chance.integers(0, 3))] = bytes(
            chance.integers(1, 127, int(chance.integers(0, 3))).tolist()
        )
    with suppress(UsageError):
        scenario = load_text(text.decode(), "damaged.yaml")
        assert load_text(save(scenario), "saved") == scenario
