"""Mutation and crossover on whole steps: a change of a few bytes anywhere would mostly be another scenario altogether.

Equal seeds give equal results; data that is no whole input is cut to one first.
"""

from __future__ import annotations

import random

from testbed.fuzzing.bases import BASES
from testbed.fuzzing.input_model import MAX_STEPS, STEP_BYTES, WORDS

__all__ = ["cross", "mutate"]

_Step = tuple[int, int, int]
#: How often a new step is of each word, in the order of WORDS: what is rare is slow or leads elsewhere.
_WEIGHTS = (8, 6, 6, 6, 8, 6, 6, 4, 1, 2, 2, 1, 1)
_EDGES = (0, 1, 6, 7, 8, 14, 15, 16, 23, 24, 25, 30, 31, 32, 61, 62, 63, 64, 65, 126, 127, 128, 130, 132, 255)
_MOST_CHANGES = 4


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Return the input with one to a few steps inserted, deleted, swapped, repeated or nudged.

    :param max_size: bytes that the result may have; less than an input has leaves out steps.
    """
    dice = random.Random(seed)  # noqa: S311 - nothing secret
    base, steps = _split(data)
    for _ in range(dice.randint(1, _MOST_CHANGES)):
        if dice.random() < 0.04:
            base = dice.randrange(len(BASES))
        else:
            steps = dice.choice(_CHANGES if steps else (_insert,))(steps, dice)
    return _join(base, steps, max_size)


def cross(data: bytes, other: bytes, max_size: int, seed: int) -> bytes:
    """Return the start of one input followed by the end of another, on the base of the first."""
    dice = random.Random(seed)  # noqa: S311 - nothing secret
    base, ours = _split(data)
    _, theirs = _split(other)
    return _join(base, ours[: dice.randint(0, len(ours))] + theirs[dice.randint(0, len(theirs)) :], max_size)


def _split(data: bytes) -> tuple[int, list[_Step]]:
    triples = [data[at : at + STEP_BYTES] for at in range(1, len(data) - STEP_BYTES + 1, STEP_BYTES)]
    steps = [(word % len(WORDS), a, b) for word, a, b in triples]
    return (data[0] % len(BASES) if data else 0), steps[:MAX_STEPS]


def _join(base: int, steps: list[_Step], max_size: int) -> bytes:
    most = min(MAX_STEPS, (max_size - 1) // STEP_BYTES)
    return bytes([base]) + b"".join(map(bytes, steps[: max(most, 0)]))


def _operand(dice: random.Random) -> int:
    return dice.choice(_EDGES) if dice.random() < 0.7 else dice.randrange(256)


def _new(dice: random.Random) -> _Step:
    word = dice.choices(range(len(WORDS)), _WEIGHTS)[0]
    return word, _operand(dice), _operand(dice) if dice.random() < 0.3 else 0


def _insert(steps: list[_Step], dice: random.Random) -> list[_Step]:
    at = dice.randint(0, len(steps))
    return [*steps[:at], _new(dice), *steps[at:]]


def _delete(steps: list[_Step], dice: random.Random) -> list[_Step]:
    start = dice.randrange(len(steps))
    return steps[:start] + steps[start + dice.randint(1, 3) :]


def _swap(steps: list[_Step], dice: random.Random) -> list[_Step]:
    one, two = dice.randrange(len(steps)), dice.randrange(len(steps))
    swapped = list(steps)
    swapped[one], swapped[two] = steps[two], steps[one]
    return swapped


def _repeat(steps: list[_Step], dice: random.Random) -> list[_Step]:
    start = dice.randrange(len(steps))
    end = min(len(steps), start + dice.randint(1, 6))
    return steps[:end] + steps[start:end] * dice.randint(1, 4) + steps[end:]


def _nudge(steps: list[_Step], dice: random.Random) -> list[_Step]:
    at = dice.randrange(len(steps))
    word, a, b = steps[at]
    match dice.randrange(4):
        case 0:
            a = (a + dice.choice((-1, 1))) % 256
        case 1:
            a = _operand(dice)
        case 2:
            a = min(255, a * 2 + 1) if dice.random() < 0.5 else a // 2
        case _:
            b = _operand(dice)
    return [*steps[:at], (word, a, b), *steps[at + 1 :]]


def _replace(steps: list[_Step], dice: random.Random) -> list[_Step]:
    at = dice.randrange(len(steps))
    return [*steps[:at], _new(dice), *steps[at + 1 :]]


_CHANGES = (_insert, _insert, _delete, _swap, _repeat, _nudge, _nudge, _replace)
