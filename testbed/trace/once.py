"""What several rules ask of the same trace is worked out once."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.trace.table import Trace

T = TypeVar("T")

__all__ = ["once"]


def once(ask: Callable[[Trace], T]) -> Callable[[Trace], T]:
    """Keep a function's answer for as long as its trace lives; nobody may change it."""
    answers: WeakKeyDictionary[Trace, T] = WeakKeyDictionary()

    @wraps(ask)
    def answer(trace: Trace) -> T:
        if trace not in answers:
            answers[trace] = ask(trace)
        return answers[trace]

    return answer
