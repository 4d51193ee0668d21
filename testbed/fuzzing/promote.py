"""From a finding to a test in the user's own tree: a scenario file, and a function for testbed's pytest plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from testbed.errors import UsageError
from testbed.scenario import save

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.scenario import Scenario

__all__ = ["promote"]

_TEST = '''"""{about}"""

from pathlib import Path


def test_{function}(run_scenario):
    result = run_scenario(Path(__file__).with_name("{name}.yaml"), nic="{nic}").result
    rule = result.rule("{rule}")
    assert result.error is None, result.error
    assert rule.outcome == "hold", rule.message
'''


def promote(scenario: Scenario, rule: str, nic: str, directory: Path) -> tuple[Path, Path]:
    """Write NAME.yaml and test_NAME.py, and return both; the test passes once the driver keeps the rule.

    :raise UsageError: one of them is there already.
    """
    scenario = msgspec.structs.replace(
        scenario, must_exercise=(rule,), about=f"found by fuzzing: violates {rule} on {nic}"
    )
    function = scenario.name.replace("-", "_")
    files = directory / f"{scenario.name}.yaml", directory / f"test_{function}.py"
    texts = (
        save(scenario),
        _TEST.format(about=scenario.about, function=function, name=scenario.name, nic=nic, rule=rule),
    )
    directory.mkdir(parents=True, exist_ok=True)
    for file, text in zip(files, texts, strict=True):
        try:
            with file.open("x") as stream:
                stream.write(text)
        except FileExistsError as error:
            raise UsageError(f"{file} is there already", "remove it, or name another directory") from error
    return files
