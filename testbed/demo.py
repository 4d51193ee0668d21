"""The demonstration: a stock driver's bug, the repair everybody would write, and the right one, side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from testbed import nic
from testbed.errors import TestbedError
from testbed.kernel import resolve, with_variants
from testbed.run import Request, prepare, run
from testbed.scenario import load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from testbed.result import Result
    from testbed.toolchain import Toolchain

__all__ = ["BROKEN", "NAIVE", "REPAIRED", "STOCK", "demonstrate", "sentence"]

NIC = "igb"
SCENARIO = "ring-full"
RULE, OWNERSHIP = "ring-full-exit", "chunk-single-owner"
STOCK, BROKEN = "stock", "igb/ring-full-ignored"
NAIVE, REPAIRED = "igb/ring-full-exit-naive", "igb/ring-full-exit"
GUESTS_AT_ONCE = 2


def _request(toolchain: Toolchain, variant: str) -> Request:
    names = [] if variant == STOCK else [variant]
    words = [
        "testbed",
        "run",
        SCENARIO,
        "--nic",
        NIC,
        *(word for name in names for word in ("--variant", name)),
    ]
    return Request(
        toolchain=toolchain,
        kernel=with_variants(resolve(), names, toolchain),
        nic=nic.get(NIC),
        scenario=load(SCENARIO),
        reproduce=" ".join(words),
    )


def demonstrate(toolchain: Toolchain, say: Callable[[str], None]) -> list[Result]:
    """Run the scenario on three drivers and return the results: what is broken, the naive repair, the right one.

    Where the newest kernel's own driver keeps the rule, the first is a variant that breaks it again.

    :param say: told what is being done, a line each.
    """
    say("building the two repairs and booting three guests")
    with ThreadPoolExecutor(GUESTS_AT_ONCE) as pool:
        requests = list(pool.map(lambda name: _ready(toolchain, name), (STOCK, NAIVE, REPAIRED)))
    results = []
    for request in requests:
        say(f"running: {request.reproduce}")
        results.append(run(request).result)
    if _outcome(results[0], RULE) == "hold":
        request = _request(toolchain, BROKEN)
        say(f"this kernel's igb keeps the rule {RULE}; running instead: {request.reproduce}")
        results[0] = run(request).result
    return results


def _ready(toolchain: Toolchain, variant: str) -> Request:
    """Return the request with its guest booted and saved; what goes wrong will go wrong again in the run."""
    request = _request(toolchain, variant)
    with suppress(TestbedError):
        prepare(request)
    return request


def sentence(results: Sequence[Result]) -> tuple[str, bool]:
    """Return what the three results show, and whether it is what the demonstration is for."""
    seen = [(_outcome(result, RULE), _outcome(result, OWNERSHIP), result.verdict) for result in results]
    whose = (
        "a broken variant of igb"
        if results[0].kernel.variants
        else f"the igb driver of Linux {results[0].kernel.release}"
    )
    (first, _, _), (naive, owner, _), (_, _, right) = seen
    if (first, naive, owner, right) != ("violated", "hold", "violated", "pass"):
        return f"this is not what was expected of {whose}: see the outcomes above", False
    rule = results[0].rule(RULE)
    worst = rule.observed if rule else None
    return (
        f"{whose} goes on polling when an AF_XDP Rx ring is full (up to {worst} failed redirects in one poll, 1 is "
        "allowed); the obvious repair leaves the poll but lets two frames share one buffer; the right repair "
        "steps past the refused frame, then leaves, and keeps every rule."
    ), True


def _outcome(result: Result, rule_id: str) -> str:
    rule = result.rule(rule_id)
    return rule.outcome if rule else result.verdict
