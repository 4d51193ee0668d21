"""Policies: rules that bind some drivers only, as data (policy.toml)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

__all__ = ["Policy", "binds", "policy_of"]

_FILE = Path(__file__).with_name("policy.toml")


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom a rule binds.

    :param required: drivers, by the kernel's names.
    :param others_judged: whether the rule says something of other drivers too; where it does not, no scenario can
        exercise it with them.
    """

    required: tuple[str, ...]
    others_judged: bool = True


def policy_of(rule_id: str) -> Policy:
    """Return the policy of a rule that has one."""
    return _policies()[rule_id]


def binds(rule_id: str, driver: str) -> bool:
    """Tell whether a rule can be exercised with a driver at all."""
    policy = _policies().get(rule_id)
    return policy is None or policy.others_judged or driver in policy.required


@cache
def _policies() -> dict[str, Policy]:
    return msgspec.toml.decode(_FILE.read_bytes(), type=dict[str, Policy], strict=True)
