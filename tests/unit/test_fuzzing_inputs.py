"""Fuzzing: what bytes mean, and how inputs change."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.cli.fuzz import command
from testbed.errors import UsageError
from testbed.fuzzing.bases import BASES, bases_for
from testbed.fuzzing.input_model import MAX_BYTES, MAX_STEPS, STEP_BYTES, WORDS, decode, encode, nearest
from testbed.fuzzing.mutator import cross, mutate
from testbed.nic import get
from testbed.scenario import Entry, compile_program, library, load, load_text
from testbed.scenario.check import checked
from testbed.scenario.steps import Inject, Tx

SEEDS = Path(__file__).parents[2] / "fuzz/seeds/minimal"


def raise_it(fault: object) -> UsageError:
    return UsageError(str(fault))


def any_bytes(seed: int) -> bytes:
    dice = random.Random(seed)  # noqa: S311 - nothing secret
    return dice.randbytes(dice.randint(0, MAX_BYTES + 50))


@pytest.mark.parametrize("seed", range(60))
def test_any_bytes_are_a_valid_scenario(seed: int) -> None:
    scenario = decode(any_bytes(seed)).scenario("fuzzed")
    assert checked(scenario, raise_it) == scenario
    compile_program(scenario)


@pytest.mark.parametrize("seed", range(60))
def test_an_input_survives_its_bytes(seed: int) -> None:
    found = decode(any_bytes(seed))
    assert decode(encode(found)) == found


def test_every_word_and_operand_has_a_step_that_reads_back() -> None:
    for word in range(len(WORDS)):
        for operand in range(256):
            found = decode(bytes([5, word, operand, operand]))
            assert decode(encode(found)) == found


def test_operands_reach_ring_sizes_and_their_neighbours() -> None:
    def counts(word: int) -> set[object]:
        return {
            step.count
            for a in range(256)
            for step in decode(bytes([0, word, a, 0])).steps
            if isinstance(step, (Inject, Tx))
        }

    assert {1, 7, 8, 9, 16, 25, 63, 64, 65, 128, 129, 255, 256, 257, 512} <= counts(0)
    assert {1, 63, 64, 65, 255, 256} <= counts(5)
    assert max(counts(5)) == 256  # as many chunks as the base has


def test_what_exceeds_a_limit_is_left_out() -> None:
    found = decode(bytes([0]) + bytes([0, 255, 0]) * (MAX_STEPS + 10))
    assert sum(step.count for step in found.steps) <= 2000
    sleeps = decode(bytes([0]) + bytes([4, 0, 0]) * (MAX_STEPS + 10))
    assert len(sleeps.steps) == MAX_STEPS


def test_bases_are_valid_and_inject_nothing() -> None:
    for base in BASES:
        assert checked(base.scenario(), raise_it) == base.scenario()
        assert not any(isinstance(step, Inject) for step in base.steps)


def test_a_nic_without_zero_copy_has_no_base() -> None:
    assert bases_for(get("igb"), (7, 3))
    assert not bases_for(get("e1000e"), (7, 3))
    assert not bases_for(get("igb"), (6, 1))


@pytest.mark.parametrize("seed", range(50))
def test_mutants_are_whole_inputs_within_the_size(seed: int) -> None:
    data, size = any_bytes(seed), 1 + seed * 3
    for mutant in (mutate(data, size, seed), cross(data, any_bytes(seed + 1), size, seed)):
        assert 1 <= len(mutant) <= size
        assert len(mutant) % STEP_BYTES == 1


def test_equal_seeds_give_equal_mutants_and_others_differ() -> None:
    data = encode(nearest(load(SEEDS / "receive-one.yaml")))
    mutants = {mutate(data, MAX_BYTES, seed) for seed in range(100)}
    assert len(mutants) > 80
    assert mutants == {mutate(data, MAX_BYTES, seed) for seed in range(100)}


def test_a_mutant_keeps_most_of_its_parent() -> None:
    data = encode(nearest(load(SEEDS / "receive-one.yaml")))
    parent = {data[at : at + STEP_BYTES] for at in range(1, len(data), STEP_BYTES)}
    kept = 0
    for seed in range(100):
        mutant = mutate(data, MAX_BYTES, seed)
        kept += len(parent & {mutant[at : at + STEP_BYTES] for at in range(1, len(mutant), STEP_BYTES)})
    assert kept > 100 * len(parent) / 2


def test_mutation_reaches_every_word_and_base_from_a_seed() -> None:
    data = encode(nearest(load(SEEDS / "send-one.yaml")))
    words, bases = set(), set()
    for seed in range(2000):
        mutant = mutate(data, MAX_BYTES, seed)
        bases.add(mutant[0])
        words |= set(mutant[1::STEP_BYTES])
    assert words == set(range(len(WORDS)))
    assert bases == set(range(len(BASES)))


@pytest.mark.parametrize("name", ["receive-one", "send-one"])
def test_the_minimal_seeds_lose_nothing(name: str) -> None:
    scenario = load(SEEDS / f"{name}.yaml")
    found = nearest(scenario)
    assert found.base.name == "filled"
    assert found.base.settings == scenario.settings
    assert found.steps == scenario.steps


@pytest.mark.parametrize("entry", library(), ids=lambda entry: entry.name)
def test_every_scenario_of_the_library_can_be_a_seed(entry: Entry) -> None:
    found = nearest(load(entry.name))
    assert found.steps
    assert decode(encode(found)) == found


def test_explain_prints_a_scenario_that_can_be_run(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(bytes([4, 0, 64, 0, 1, 0, 0, 99]))
    done = CliRunner().invoke(command, ["--explain", str(file)])
    assert done.exit_code == 0
    assert done.output.startswith("# base edge: an RX ring of 8 entries")
    assert Inject(count=65, bytes=64) in load_text(done.output, "explained").steps


@pytest.mark.parametrize("size", [MAX_BYTES + 1, None])
def test_explain_refuses_what_is_no_input(tmp_path: Path, size: int | None) -> None:
    file = tmp_path / "input"
    if size:
        file.write_bytes(bytes(size))
    with pytest.raises(UsageError, match="input"):
        CliRunner().invoke(command, ["--explain", str(file)], catch_exceptions=False)
