"""A scenario: a named, typed list of settings and steps, and its canonical text."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from testbed.scenario.settings import Settings
from testbed.scenario.steps import AnyStep

__all__ = ["Otherwise", "Scenario", "canonical_json"]

RuleIds: TypeAlias = tuple[Annotated[str, Meta(max_length=64)], ...]


class Otherwise(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What becomes of a scenario on a NIC that cannot do what its settings ask: the same steps by lesser means."""

    mode: Annotated[Literal["copy"] | None, Meta(description="instead of the settings' mode")] = None
    xdp_mode: Annotated[Literal["generic"] | None, Meta(description="instead of the settings' xdp_mode")] = (
        None
    )
    must_exercise: Annotated[
        RuleIds | None, Meta(description="instead of the scenario's, where less can be exercised then")
    ] = None

    def settings(self, settings: Settings) -> Settings:
        """Return the settings with the lesser means."""
        mode, xdp_mode = self.mode or settings.mode, self.xdp_mode or settings.xdp_mode
        return msgspec.structs.replace(settings, mode=mode, xdp_mode=xdp_mode)


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What users write and fuzzing generates.

    Built by hand it is not checked; :func:`testbed.scenario.check.checked` does that.
    """

    name: Annotated[
        str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,63}\Z", description="lower-case letters, digits and hyphens")
    ]
    about: Annotated[str, Meta(max_length=400, description="one sentence, what the scenario is for")] = ""
    must_exercise: Annotated[
        RuleIds,
        Meta(description="ids of rules whose precondition the scenario creates"),
    ] = ()
    settings: Annotated[Settings, Meta(description="`testbed list settings` shows them")] = Settings()
    otherwise: Annotated[
        Otherwise | None,
        Meta(description="mode, xdp_mode and must_exercise for NICs that cannot do what the settings ask"),
    ] = None
    steps: Annotated[tuple[AnyStep, ...], Meta(min_length=1, description="what is done, in order")]


def canonical_json(scenario: Scenario) -> bytes:
    """Return the scenario as JSON: keys sorted, defaults written out; equal scenarios give equal bytes."""
    return msgspec.json.encode(scenario, order="sorted")
