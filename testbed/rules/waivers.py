"""Waivers: known deviations of a driver from a rule, as data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from testbed.errors import UsageError
from testbed.rules.registry import rule_named

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["BUILT_IN", "Waiver", "load_waivers"]

BUILT_IN = Path(__file__).with_name("waivers.toml")
_RELEASE = re.compile(r"(\d+)\.(\d+)")


class Waiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[waiver]]``: this driver may violate this rule.

    :param driver: the kernel's name of the driver.
    :param rule: the rule's id.
    :param since: first kernel it is for, such as "6.14"; "" for any.
    :param until: last kernel it is for; "" for any later one.
    :param reason: one sentence: what the driver does, and why that is accepted.
    :param reference: an upstream thread, commit or document, or an entry of docs/findings.md.
    :param control: a variant or another driver on which the same scenario holds the rule.
    """

    driver: str
    rule: str
    reason: str
    reference: str
    control: str
    since: str = ""
    until: str = ""

    def covers(self, *, driver: str, rule_id: str, kernel: tuple[int, int]) -> bool:
        """Return whether it waives a violation of this rule by this driver on this kernel (major, minor)."""
        if (driver, rule_id) != (self.driver, self.rule):
            return False
        return not (self.since and kernel < _release(self.since)) and not (
            self.until and kernel > _release(self.until)
        )

    def __str__(self) -> str:
        return f"{self.reason} ({self.reference}; control: {self.control})"


def load_waivers(path: Path = BUILT_IN, *, drivers: Collection[str] | None = None) -> list[Waiver]:
    """Return the waivers of a file, in its order.

    :param drivers: the drivers there are; by default any name is taken.
    :raise UsageError: the file cannot be read, is no TOML, or a waiver names an unknown rule, driver or
        kernel, or says too little.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tables = msgspec.toml.decode(text, type=dict[str, list[dict[str, object]]], strict=True)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: expected [[waiver]] tables: {error}") from error
    unknown = sorted(tables.keys() - {"waiver"})
    if unknown:
        raise UsageError(f"{path}: expected only [[waiver]] tables, found {unknown[0]}")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.strip() == "[[waiver]]"]
    waivers = []
    for index, table in enumerate(tables.get("waiver", [])):
        where = f"{path}:{lines[index]}" if index < len(lines) else str(path)
        waivers.append(_checked(table, where, drivers))
    return waivers


def _checked(table: dict[str, object], where: str, drivers: Collection[str] | None) -> Waiver:
    try:
        waiver = msgspec.convert(table, Waiver, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: in this waiver: {error}") from error
    try:
        rule_named(waiver.rule)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.remedy) from error
    if drivers is not None and waiver.driver not in drivers:
        raise UsageError(
            f"{where}: there is no driver {waiver.driver}", f"known are {', '.join(sorted(drivers))}"
        )
    for name in ("since", "until"):
        value = getattr(waiver, name)
        if value and not _RELEASE.fullmatch(value):
            raise UsageError(
                f"{where}: expected {name} as MAJOR.MINOR, found {value!r}", 'write it like "6.14"'
            )
    for name in ("reason", "reference", "control"):
        if not getattr(waiver, name).strip():
            raise UsageError(f"{where}: {name} is empty", f"a waiver needs a {name}")
    return waiver


def _release(text: str) -> tuple[int, int]:
    found = _RELEASE.fullmatch(text)
    if not found:
        raise ValueError(text)
    return int(found[1]), int(found[2])
