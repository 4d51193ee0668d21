"""Atheris target: any text as a scenario file, in this process.

    python fuzz/scenario_parser.py -runs=100000 [CORPUS]

Nothing may escape but :class:`UsageError` of one line; what is read can be written, reads back equal, and compiles.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["testbed.scenario"]):
    from testbed.errors import UsageError
    from testbed.scenario import compile_program, load_text, save

COVERS = [f"testbed.scenario.{name}" for name in ("document", "check", "compile", "store", "unroll")]


def one(data: bytes) -> None:
    """Run one input."""
    try:
        scenario = load_text(data.decode(errors="replace"), "fuzzed")
    except UsageError as error:
        assert error.message and "\n" not in str(error), f"not one line: {error}"
        return
    assert load_text(save(scenario), "saved") == scenario
    program = compile_program(scenario)
    assert len(program.steps) == len(program.sources) > program.first_step


def main() -> None:
    """Fuzz; the arguments are libFuzzer's."""
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
