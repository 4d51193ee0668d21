"""A scenario: a named, typed list of settings and steps, and its canonical text."""

from typing import Annotated

import msgspec
from msgspec import Meta

from testbed.scenario.settings import Settings
from testbed.scenario.steps import AnyStep

__all__ = ["Scenario", "canonical_json"]


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What users write and fuzzing generates.

    Built by hand it is not checked; :func:`testbed.scenario.check.checked` does that.
    """

    name: Annotated[
        str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,63}\Z", description="lower-case letters, digits and hyphens")
    ]
    about: Annotated[str, Meta(max_length=400, description="one sentence, what the scenario is for")] = ""
    must_exercise: Annotated[
        tuple[Annotated[str, Meta(max_length=64)], ...],
        Meta(description="ids of rules whose precondition the scenario creates"),
    ] = ()
    settings: Annotated[Settings, Meta(description="`testbed list settings` shows them")] = Settings()
    steps: Annotated[tuple[AnyStep, ...], Meta(min_length=1, description="what is done, in order")]


def canonical_json(scenario: Scenario) -> bytes:
    """Return the scenario as JSON: keys sorted, defaults written out; equal scenarios give equal bytes."""
    return msgspec.json.encode(scenario, order="sorted")
