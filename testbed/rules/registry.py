"""The registry: a rule is a function with a declaration; a new module of this package adds some."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import pkgutil
from typing import TYPE_CHECKING

from testbed.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from testbed.rules.outcome import Finding
    from testbed.trace import Trace

    Check = Callable[[Trace], Finding]

__all__ = ["Rule", "all_rules", "rule", "rule_named", "virtual_only"]

_registered: dict[str, Rule] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """One clause of the contract.

    :param id: its name everywhere.
    :param number: its number in the contract's table.
    :param statement: one sentence: what must be so.
    :param sources: where the contract says so: kernel documents, files, commits.
    :param needs: what a trace must contain for the rule to be exercised.
    :param exceptions: what looks like a violation and is none.
    :param unit: of ``observed`` and ``limit``.
    :param check: judges a trace.
    :param virtual_only: whether it can be exercised in virtual time only, so that nobody may demand it in real
        time.
    """

    id: str
    number: int
    statement: str
    sources: tuple[str, ...]
    needs: str
    exceptions: tuple[str, ...]
    unit: str
    check: Check
    virtual_only: bool = False


def rule(
    name: str,
    number: int,
    *,
    statement: str,
    sources: Sequence[str],
    needs: str,
    unit: str,
    exceptions: Sequence[str] = (),
) -> Callable[[Check], Check]:
    """Register the decorated function as the rule ``name``; see :class:`Rule` for the parameters."""

    def register(check: Check) -> Check:
        if name in _registered or any(number == other.number for other in _registered.values()):
            raise ValueError(f"the rule {number} {name} is registered twice")
        _registered[name] = Rule(
            id=name,
            number=number,
            statement=statement,
            sources=tuple(sources),
            needs=needs,
            exceptions=tuple(exceptions),
            unit=unit,
            check=check,
        )
        return check

    return register


def virtual_only(check: Check) -> Check:
    """Declare of a registered rule's function that it needs virtual time; see :class:`Rule`."""
    for name, declared in _registered.items():
        if declared.check is check:
            _registered[name] = dataclasses.replace(declared, virtual_only=True)
    return check


def all_rules() -> dict[str, Rule]:
    """Return every rule by its id, ordered by number."""
    package = importlib.import_module("testbed.rules")
    for module in pkgutil.iter_modules(package.__path__, "testbed.rules."):
        importlib.import_module(module.name)
    return dict(sorted(_registered.items(), key=lambda item: item[1].number))


def rule_named(name: str) -> Rule:
    """Return the rule with this id, or with this number.

    :raise UsageError: there is none.
    """
    rules = all_rules()
    for candidate in rules.values():
        if name in {candidate.id, str(candidate.number)}:
            return candidate
    near = difflib.get_close_matches(name, rules, n=1)
    remedy = f"did you mean {near[0]}?" if near else "'testbed list rules' shows all"
    raise UsageError(f"there is no rule {name}", remedy)
