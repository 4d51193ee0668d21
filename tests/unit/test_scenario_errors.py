from pathlib import Path

import pytest

from testbed.errors import UsageError
from testbed.scenario import apply_settings, check_rules, from_json, load, load_text

HEAD = "name: x\nsteps:\n"
BOMB = "name: x\nsteps: &a\n- repeat: {times: 2, steps: *a}\n"

WRONG = [
    # not YAML, or not a scenario
    ("", "f.yaml:1: expected a mapping with name and steps, seen an empty file"),
    ("a", "f.yaml:1: expected a mapping, seen 'a'"),
    ("- tx_kick", "f.yaml:1: expected a mapping, seen a list of 1"),
    ("name: x\n  y: [", "f.yaml:2: expected YAML, seen mapping values are not allowed in this context"),
    ("\x00", "f.yaml:1: expected YAML, seen unacceptable character"),
    ("x: " + "[" * 500, "f.yaml:1: expected YAML, seen lists or mappings nested too deep"),
    ("x: " + "[" * 5000, "f.yaml:1: expected YAML, seen exceeded maximum nesting depth"),
    ("name: x\n---\nname: y", "f.yaml:2: expected YAML, seen but found another document"),
    ("? [a]\n: b", "f.yaml:1: expected a word before the colon, seen something else"),
    (BOMB, "expected a value, seen an alias; write it out, or use repeat"),
    ("name: x\nname: y\n", "f.yaml:2: name: expected each field once, seen 'name' again"),
    # fields
    ("steps: [tx_kick]", "f.yaml:1: expected the field name, seen none"),
    ("name: x", "f.yaml:1: expected the field steps, seen none"),
    ("name: X y\nsteps: [tx_kick]", "f.yaml:1: name: expected text, matching ^[a-z0-9]"),
    ("name: x\nabout: 3\nsteps: [tx_kick]", "f.yaml:2: about: expected text, up to 400 characters, seen 3"),
    ("name: x\nstep: [tx_kick]", "f.yaml:2: step: expected a field out of name, about, must_exercise, set"),
    ("name: x\nsteps: 3", "f.yaml:2: steps: expected a list, not empty, seen 3"),
    ("name: x\nsteps: []", "f.yaml:2: steps: expected a list, not empty, seen a list of 0"),
    ("name: x\nmust_exercise: a\nsteps: [tx_kick]", "f.yaml:2: must_exercise: expected a list, seen 'a'"),
    ("name: x\nmust_exercise: [3]\nsteps: [tx_kick]", "f.yaml:2: must_exercise[0]: expected a member of"),
    # steps
    (HEAD + "- interface: off", "f.yaml:3: steps[0].interface: expected down or up, seen 'off'"),
    (HEAD + "- injct: 3", "f.yaml:3: steps[0]: expected a step, seen 'injct'; steps are inject,"),
    (HEAD + "- 3", "f.yaml:3: steps[0]: expected a step, seen '3'"),
    (HEAD + "- [a]", "f.yaml:3: steps[0]: expected one step, such as rx_drain: all, seen a list"),
    (HEAD + "- {fill: 1, tx: 2}", "expected one step, such as rx_drain: all, seen a mapping of 2"),
    (HEAD + "- ? [a]\n  : b", "f.yaml:3: steps[0]: expected one step"),
    (HEAD + "- fill\n- tx_kick: 3", "f.yaml:4: steps[1].tx_kick: expected nothing after the word, seen 3"),
    (HEAD + "- inject", "f.yaml:3: steps[0].inject: expected the field count, frames or pcap, seen none"),
    (HEAD + "- inject: -1", "f.yaml:3: steps[0].inject: expected an integer, 1 to 10000, seen -1"),
    (HEAD + "- inject: 0", "seen 0"),
    (HEAD + "- inject: 1000000000", "seen 1000000000; count: frames at one instant; QEMU drops"),
    (
        HEAD + "- inject:\n    count: 3\n    bytes: 9015",
        "f.yaml:5: steps[0].inject.bytes: expected an integer",
    ),
    (HEAD + "- inject: {count: 3, bytes: 59}", "expected an integer, 60 to 9014, seen 59"),
    (HEAD + f"- inject: {{count: 3, bytes: {10**30}}}", f"seen {10**30}"),
    (
        HEAD + "- inject:\n    count: 3\n    byte: 64",
        "f.yaml:5: steps[0].inject.byte: expected a field out of",
    ),
    (
        HEAD + "- inject: {step: rx_drain}",
        "inject: expected a field out of count, bytes, verdict, frames, pcap, hex, seen 'step'",
    ),
    (HEAD + "- rx_drain: few", "expected an integer, 1 to 65536, or all, seen 'few'"),
    (HEAD + "- rx_drain: {count: {a: b}}", "steps[0].rx_drain.count: expected an integer"),
    (HEAD + "- set: {}", "steps[0].set: expected a value for napi_defer_hard_irqs or gro_"),
    (HEAD + "- set: {gro_flush_timeout: 2ms}", "set.gro_flush_timeout: expected an integer, 0 to 1000000000"),
    (HEAD + "- set: {napi_defer_hard_irqs: -1}", "expected an integer, 0 to 2147483647, seen -1"),
    (HEAD + "- wakeup", "steps[0].wakeup: expected the field side, seen none"),
    (HEAD + "- wakeup: both", "steps[0].wakeup: expected rx or tx, seen 'both'"),
    (HEAD + "- sleep_us: 1.5", "seen 1.5"),
    (HEAD + "- sleep_us: true", "seen true"),
    (HEAD + "- sleep_us: 2001-01-01", "seen '2001-01-01'"),
    (HEAD + "- tx: 600", "steps[0].tx: expected at most umem_chunks, 512, seen 600"),
    (HEAD + "- repeat: 3", "steps[0].repeat: expected a mapping of times, steps, seen 3"),
    (HEAD + "- repeat: {times: 2, steps: []}", "steps[0].repeat.steps: expected a list, not empty"),
    (
        HEAD + "- repeat:\n    times: 2\n    steps:\n    - fill\n    - tx: {count: 1, bytes: 9}",
        "f.yaml:7: steps[0].repeat.steps[1].tx.bytes: expected an integer, 60 to 1514, seen 9",
    ),
    # sums
    (
        HEAD + "- repeat: {times: 10, steps: [{repeat: {times: 10000, steps: [tx_kick]}}]}",
        "f.yaml:2: steps: expected at most 16384 steps with repeats written out, seen 100006; repeat",
    ),
    (
        HEAD + "- repeat: {times: 300, steps: [inject: 5000, sleep_us: 1000]}",
        "f.yaml:2: steps: expected at most 200000 frames in all, seen 1500000",
    ),
    (HEAD + "- repeat: {times: 100, steps: [sleep_us: 10000000]}", "expected at most 600000000 microseconds"),
    (
        HEAD + "- repeat: {times: 3, steps: [inject: 5000, sleep_us: 999, fill]}",
        "steps[0].repeat.steps[0].inject: expected at most 10000 frames per 1000 us of sleep, seen 15000",
    ),
    (
        HEAD + "- " + "{repeat: {times: 1, steps: [" * 10 + "fill" + "]}}" * 10,
        "expected at most 8 repeats inside each other, seen more",
    ),
    # settings
    ("name: x\nsettings: 3\nsteps: [tx_kick]", "f.yaml:2: settings: expected a mapping, seen 3"),
    ("name: x\nsettings:\n  rx_rings: 9\nsteps: [fill]", "f.yaml:3: settings.rx_rings: expected a"),
    (
        "name: x\nsettings:\n  rx_ring: 100\nsteps: [fill]",
        "f.yaml:3: settings.rx_ring: expected an integer, 64 to 4096, a multiple of 8, seen 100; write 96",
    ),
    ("name: x\nsettings: {rx_entries: 100}\nsteps: [fill]", "a power of two, seen 100; write 64 or 128"),
    (
        "name: x\nsettings: {chunk_bytes: 1024}\nsteps: [fill]",
        "chunk_bytes: expected 2048 or 4096, seen 1024",
    ),
    (
        "name: x\nsettings: {umem_chunks: 65536}\nsteps: [fill]",
        "settings.umem_chunks: expected a UMEM of at most 67108864 bytes, seen 65536 chunks of 2048",
    ),
    ("name: x\nsettings: {need_wakeup: yes}\nsteps: [fill]", "expected true or false, seen 'yes'"),
    ("name: x\nsettings: {xdp_mode: generic}\nsteps: [fill]", "xdp_mode: expected native, which"),
    ("name: x\nsettings: {mode: none}\nsteps: [snapshot_rings]", "expected a verdict that needs no"),
    ("name: x\nsettings: {mode: none, verdict: pass}\nsteps: [fill]", "expected a step that needs no"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_file_gets_one_line_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_text(text, "f.yaml")
    told = str(caught.value)
    assert message in told
    assert told.startswith("f.yaml:")
    assert "\n" not in told
    assert len(told) < 500
    assert caught.value.remedy


def test_a_barrier_may_carry_the_most_and_sleep_frees_the_next() -> None:
    steps = "- repeat: {times: 4, steps: [inject: 5000, inject: 5000, sleep_us: 400, fill, sleep_us: 600]}"
    assert load_text(HEAD + steps, "f.yaml").name == "x"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("ring-fool", "seen 'ring-fool'; scenarios are "),
        ("./nothing.yaml", "nothing.yaml: expected a scenario file, seen: No such file or directory"),
        ("/", "/: expected a scenario file, seen: Is a directory"),
        ("/\0.yaml", "expected a scenario file, seen: embedded null byte"),
    ],
)
def test_what_is_no_scenario_and_no_file_is_told(source: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(source)
    assert message in str(caught.value)


def test_a_binary_or_endless_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"name: x\nabout: \xff\xfe\n")
    with pytest.raises(UsageError, match=r"x.yaml:2: expected YAML in UTF-8"):
        load(path)
    path.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(UsageError, match="at most 1048576 bytes"):
        load(path)


def test_an_unknown_rule_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: x\nmust_exercise:\n- no-spin\n- no-spam\nsteps: [fill]\n")
    rules = ["work-in-budget", "no-spin"]
    told = "must_exercise[1]: expected the id of a rule, seen 'no-spam'; rules are no-spin, work-in-budget"
    with pytest.raises(UsageError) as caught:
        load(path, rules)
    assert str(caught.value) == f"{path}:4: {told}"
    with pytest.raises(UsageError) as caught:
        check_rules(load(path), rules)
    assert str(caught.value) == f"scenario x: {told}"
    check_rules(load(path), [*rules, "no-spam"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"rx": "1"},
            "--set rx=1: expected the name of a setting, seen 'rx'; settings are rx_ring, tx_ring,",
        ),
        ({"rx_ring": "x"}, "--set rx_ring=x: settings.rx_ring: expected an integer, 64 to 4096"),
        ({"rx_ring": ""}, "settings.rx_ring: expected an integer"),
        ({"rx_ring": "100"}, "a multiple of 8, seen 100; write 96 or 104"),
        ({"rx_ring": "9" * 30}, "settings.rx_ring: expected an integer"),
        ({"rx_ring": "-64"}, "seen -64"),
        ({"need_wakeup": "no"}, "settings.need_wakeup: expected true or false, seen 'no'"),
        ({"mode": "none"}, "settings.verdict: expected a verdict that needs no socket"),
        ({"mode": "none", "verdict": "drop"}, "steps[0]: expected a step that needs no socket"),
        ({"umem_chunks": "16"}, "steps[2].steps[0].count: expected at most umem_chunks, 16, seen 32"),
    ],
)
def test_a_wrong_override_is_told(overrides: dict[str, str], message: str) -> None:
    name = "tx-only" if "umem_chunks" in overrides else "ring-full"
    with pytest.raises(UsageError) as caught:
        apply_settings(load(name), overrides)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "result.json: expected a scenario as JSON, seen: "),
        (b"\xff", "result.json: expected a scenario as JSON, seen: "),
        (b'{"a": "\xff"}', "result.json: expected a scenario as JSON, seen: "),
        (b'{"steps":' + b'[{"step":"repeat","times":1,"steps":' * 5000, "expected a scenario as JSON"),
        (b"{}", "result.json: expected the field name, seen none"),
        (b"[1]", "result.json: expected a mapping, seen a list of 1"),
        (b'{"name":"x","steps":[{"step":"q"}]}', "steps[0].step: expected a step, seen 'q'"),
        (b'{"name":"x","steps":[{}]}', "steps[0]: expected the field step, seen none"),
        (b'{"name":"x","steps":[3]}', "steps[0]: expected a member of the list steps, seen 3"),
        (
            b'{"name":"x","steps":[{"step":"tx","count":0}]}',
            "steps[0].count: expected an integer, 1 to 65536",
        ),
        (b'{"name":"x","steps":[{"step":"fill"}],"settings":{"queue":true}}', "settings.queue: expected an"),
    ],
)
def test_wrong_json_is_told(data: bytes, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_json(data, "result.json")
    assert message in str(caught.value)


def test_json_nested_deeper_than_python_is_told() -> None:
    data = (
        b'{"name":"x","steps":'
        + b'[{"step":"repeat","times":1,"steps":' * 300
        + b'[{"step":"fill"}]'
        + b"}]" * 300
    )
    with pytest.raises(UsageError, match="repeats inside each other"):
        from_json(data + b"}")
