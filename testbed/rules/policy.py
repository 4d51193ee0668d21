"""Policies: rules that bind some drivers only, as data (policy.toml)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

__all__ = ["Policy", "policy_of"]

_FILE = Path(__file__).with_name("policy.toml")


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom a rule binds.

    :param required: drivers, by the kernel's names.
    """

    required: tuple[str, ...]


def policy_of(rule_id: str) -> Policy:
    """Return the policy of a rule that has one."""
    return _policies()[rule_id]


@cache
def _policies() -> dict[str, Policy]:
    return msgspec.toml.decode(_FILE.read_bytes(), type=dict[str, Policy], strict=True)
