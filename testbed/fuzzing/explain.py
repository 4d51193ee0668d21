"""What an input means, as text for people: its base, then the scenario that does the same from the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.errors import UsageError
from testbed.fuzzing.input_model import MAX_BYTES
from testbed.scenario import save

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.fuzzing.input_model import Input

__all__ = ["explain", "read_input"]


def read_input(path: Path) -> bytes:
    """Return the bytes of an input.

    :raise UsageError: the file cannot be read, or is longer than any input.
    """
    remedy = "name a file of a corpus"
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", remedy) from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"expected an input of at most {MAX_BYTES} bytes, {path} is longer", remedy)
    return data


def explain(found: Input, name: str) -> str:
    """Return the base in one line, and the scenario as YAML.

    :param name: of the scenario.
    """
    return f"# base {found.base.name}: {found.base.about}\n{save(found.scenario(name))}"
