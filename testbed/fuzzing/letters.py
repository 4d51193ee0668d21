"""What the parts of a campaign on a cluster say to each other, as MessagePack.

A share is the part of a campaign that stands for one worker of it; whichever machine has it runs
:mod:`testbed.fuzzing.worker` over a corpus of its own. It says :class:`Hello`, is given a :class:`Supply`, then sends
what is new with it and gets what is new with the others. Inputs are named by their content, so whoever gets one that it
has already has lost nothing.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import msgspec

from testbed.fuzzing.crew import Ended
from testbed.fuzzing.worker import Word

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

__all__ = [
    "Answer",
    "FromShare",
    "Hello",
    "Job",
    "More",
    "Parcel",
    "Stop",
    "Supply",
    "ToShare",
    "input_name",
    "new_inputs",
    "take_in",
]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A share on its way to a machine; JSON, since :func:`testbed.cluster.facts.refusal` reads it first.

    :param testbed: who sends it. :param number: of the share.
    :param kernel: a KERNEL with absolute paths. :param contents: what stands for the content of its changes.
    :param inbox: the name of the queue that the campaign reads.
    :param home: the campaign's directory of findings.
    """

    testbed: str
    number: int
    nic: str
    kernel: str
    contents: list[str]
    coverage: bool
    inbox: str
    home: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How a share left a machine.

    :param refused: why this machine must not have it. :param forsaken: nobody spoke to it any more.
    """

    refused: str = ""
    forsaken: bool = False


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A share has come to a machine; ``mailbox`` is the name of the queue that it reads."""

    number: int
    mailbox: str


class Parcel(msgspec.Struct, frozen=True, kw_only=True, tag="parcel"):
    """What is new with a share.

    :param mailbox: of its sender: another machine may have the share by now.
    :param findings: by name, the files of each by name.
    """

    number: int
    mailbox: str
    inputs: list[bytes]
    findings: dict[str, dict[str, bytes]]
    words: list[Word | Ended]


class Supply(msgspec.Struct, frozen=True, kw_only=True, tag="supply"):
    """A worker is to begin; the whole corpus comes with the first :class:`More`."""

    seconds: float
    seed: int


class More(msgspec.Struct, frozen=True, kw_only=True, tag="more"):
    """What is new with the others, also when it is nothing: that the campaign goes on.

    :param findings: names of those that need not be confirmed again.
    """

    inputs: list[bytes]
    findings: list[str]


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """The campaign is over."""


FromShare = Hello | Parcel
ToShare = Supply | More | Stop


def input_name(data: bytes) -> str:
    """Return the name of an input, which is libFuzzer's, too."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def new_inputs(folder: Path, known: Container[str]) -> dict[str, bytes]:
    """Return the inputs in a folder that are not known, by name; one that is still being written is not there yet."""
    found = {}
    for file in folder.iterdir():
        if file.name not in known:
            try:
                data = file.read_bytes()
            except OSError:
                continue  # libFuzzer replaced it by a smaller one
            if input_name(data) == file.name:
                found[file.name] = data
    return found


def take_in(folder: Path, inputs: Iterable[bytes]) -> set[str]:
    """Write inputs into a folder, each whole, and return the names of all."""
    names = set()
    for data in inputs:
        name = input_name(data)
        names.add(name)
        if not (folder / name).exists():
            partial = folder / f".{name}.{os.getpid()}"
            partial.write_bytes(data)
            partial.replace(folder / name)
    return names
