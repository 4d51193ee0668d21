"""The pages of ``--help``, and the completion of words in a shell."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from testbed import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(sys.executable).with_name("testbed")


def found_below(group: click.Group, *words: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from found_below(command, *words, name)
        else:
            yield " ".join([*words, name]), command


COMMANDS = dict(found_below(cli.testbed))


def help_of(name: str) -> str:
    return COMMANDS[name].get_help(click.Context(COMMANDS[name], info_name=f"testbed {name}"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_gives_examples_that_it_accepts(name: str) -> None:
    examples = re.search(r"^  Examples:\n((?:    .+\n)+)", help_of(name), re.MULTILINE)
    assert examples, f"give `testbed {name}` an epilog by testbed.cli.manual: examples, and exit statuses"
    for line in examples[1].splitlines():
        words = shlex.split(re.sub(r" >\S+$", "", line))
        ours = words[len(words) - words[::-1].index("testbed") :]
        assert ours[: len(name.split())] == name.split(), line
        COMMANDS[name].make_context(
            name, ours[len(name.split()) :]
        )  # an unknown option or a missing word raises


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_its_exit_statuses_mean(name: str) -> None:
    told = re.search(r"^  Exit status:\n((?:    .+\n?)+)", help_of(name), re.MULTILINE)
    assert told, name
    statuses = re.findall(r"^ +(\d)  \S", told[1], re.MULTILINE)
    assert statuses == sorted(statuses)
    assert {"0", "2", "3"} <= set(statuses)


def completed(*words: str) -> list[str]:
    """Return what bash would be told after these words."""
    environment = os.environ | {
        "_TESTBED_COMPLETE": "bash_complete",
        "COMP_WORDS": shlex.join(["testbed", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_bash_completes_commands_options_and_choices() -> None:
    assert "replay" in completed("re")
    assert "--variant" in completed("run", "ring-full", "--v")
    assert completed("run", "ring-full", "--clock", "v") == ["virtual"]
    assert completed("list", "sc") == ["scenarios"]


def test_bash_takes_the_script(tmp_path: Path) -> None:
    environment = os.environ | {"_TESTBED_COMPLETE": "bash_source"}
    done = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, check=True)
    script = tmp_path / "completion"
    script.write_text(done.stdout)
    said = subprocess.run(
        ["bash", "-c", f"source {shlex.quote(str(script))} && complete -p testbed"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.endswith(" testbed\n")
