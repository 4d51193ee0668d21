"""What a scenario does on a NIC that cannot do what its settings ask."""

from __future__ import annotations

import pytest

from testbed.errors import UsageError
from testbed.scenario import Capability, apply_settings, check_rules, fitted, load_text, required, save

TEXT = """\
name: x
must_exercise: [no-spin]
otherwise: {mode: copy, xdp_mode: generic, must_exercise: [work-in-budget]}
steps: [tx_kick]
"""
COPY, GENERIC, NATIVE = Capability.COPY, Capability.GENERIC_XDP, Capability.NATIVE_XDP


def test_a_nic_that_can_do_everything_runs_it_as_it_stands() -> None:
    scenario = load_text(TEXT, "f.yaml")
    assert fitted(scenario, set(Capability)) == scenario


@pytest.mark.parametrize(
    ("can", "mode", "xdp_mode"),
    [({COPY, GENERIC, NATIVE}, "copy", "native"), ({COPY, GENERIC}, "copy", "generic")],
    ids=["no zero copy", "no native XDP either"],
)
def test_of_the_lesser_means_no_more_is_taken_than_must_be(
    can: set[Capability], mode: str, xdp_mode: str
) -> None:
    scenario = fitted(load_text(TEXT, "f.yaml"), can)
    assert (scenario.settings.mode, scenario.settings.xdp_mode) == (mode, xdp_mode)
    assert scenario.must_exercise == ("work-in-budget",)
    assert required(scenario) <= can


def test_the_rules_stay_where_nothing_else_is_said() -> None:
    scenario = load_text(TEXT.replace(", must_exercise: [work-in-budget]", ""), "f.yaml")
    assert fitted(scenario, {COPY, GENERIC}).must_exercise == ("no-spin",)


def test_what_the_lesser_means_do_not_help_stays_as_it_stands() -> None:
    scenario = load_text(TEXT, "f.yaml")
    assert fitted(scenario, {COPY}) == scenario


@pytest.mark.parametrize("setting", [{"mode": "zerocopy"}, {"xdp_mode": "native"}])
def test_who_asks_for_a_mode_gets_that_or_none(setting: dict[str, str]) -> None:
    scenario = apply_settings(load_text(TEXT, "f.yaml"), setting)
    assert fitted(scenario, {COPY, GENERIC}) == scenario


def test_other_settings_leave_it() -> None:
    scenario = apply_settings(load_text(TEXT, "f.yaml"), {"rx_ring": "64"})
    assert fitted(scenario, {COPY, GENERIC}).settings.xdp_mode == "generic"


def test_it_reads_back_as_it_was_written() -> None:
    scenario = load_text(TEXT, "f.yaml")
    assert load_text(save(scenario), "f.yaml") == scenario


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("{}", "f.yaml:3: otherwise: expected a mode or xdp_mode that the settings do not have, seen none"),
        ("{mode: zerocopy}", "f.yaml:3: otherwise.mode: expected copy, seen 'zerocopy'"),
        ("{xdp: generic}", "f.yaml:3: otherwise.xdp: expected a field out of mode, xdp_mode, must_exercise"),
        ("{xdp_mode: generic}", "f.yaml:3: otherwise.xdp_mode: expected native, which zero copy needs"),
        ("3", "f.yaml:3: otherwise: expected a mapping, seen 3"),
    ],
)
def test_what_makes_no_sense_is_told_with_its_line(other: str, message: str) -> None:
    text = f"name: x\nsettings: {{rx_ring: 64}}\notherwise: {other}\nsteps: [tx_kick]\n"
    with pytest.raises(UsageError) as caught:
        load_text(text, "f.yaml")
    assert str(caught.value).startswith(message)


def test_its_rules_must_exist_too() -> None:
    with pytest.raises(
        UsageError, match=r"must_exercise\[0\]: expected the id of a rule, seen 'work-in-budget'"
    ):
        check_rules(load_text(TEXT, "f.yaml"), {"no-spin"})
