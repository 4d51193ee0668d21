"""How well the testbed sees: known bugs are put back into a driver, and the rules named for them must find each.

A variant counts as caught by a rule when, in one scenario, the variant violates it and the control holds it. The
control is the stock driver, or the repair that the variant names. Every run is kept in the cache, so that one goes on.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from testbed import image, nic, rules, scenario, trace
from testbed.cache import build_once, cache_dir, content_key
from testbed.errors import BuildError, UsageError
from testbed.kernel import known_variants, resolve, with_variants
from testbed.result import decode_result, save_result
from testbed.rules import all_rules
from testbed.run import Request, run
from testbed.scenario import canonical_json, fitted, library, load, required
from testbed.toolchain import open_toolchain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testbed.kernel.variant import Variant
    from testbed.nic import Nic
    from testbed.result import Result

__all__ = ["Catch", "Task", "catch", "catch_all", "tasks"]

Fate = Literal["caught", "survived", "out of sight", "not judged", "does not apply"]


class Task(msgspec.Struct, frozen=True):
    """One variant on one kernel and NIC; plain text, so that it can be handed to another process."""

    variant: str
    kernel: str
    nic: str


class Catch(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one rule that a variant must violate.

    :param scenario: where it was caught; where it survived, the number of scenarios tried stands in ``why``. A
        variant that says it is out of sight is tried all the same.
    :param observed: what the rule measured there, and ``control_observed`` the same for the control.
    """

    variant: str
    rule: str
    fate: Fate
    scenario: str = ""
    observed: float | None = None
    control: str = "stock"
    control_observed: float | None = None
    why: str = ""


def tasks(kernel: str, nic_name: str) -> list[Task]:
    """Return a task for each named variant of the NIC's driver that must violate something.

    :raise UsageError: there is no such NIC, or its driver has no such variant.
    """
    driver = nic.get(nic_name).driver
    found = [variant.name for variant in known_variants() if variant.driver == driver and variant.violates]
    if not found:
        raise UsageError(
            f"there is no variant of {driver} that must violate a rule", "see `testbed list variants`"
        )
    return [Task(name, kernel, nic_name) for name in found]


def catch_all(work: list[Task], jobs: int, done: Callable[[list[Catch]], None]) -> list[Catch]:
    """Try all variants, ``jobs`` at once, and return their catches in the order of ``work``.

    :param done: told of each variant as it is finished.
    """
    caught: dict[str, list[Catch]] = {}
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(catch, task): task for task in work}
        for future in as_completed(futures):
            caught[futures[future].variant] = future.result()
            done(future.result())
    return [each for task in work for each in caught[task.variant]]


def catch(task: Task) -> list[Catch]:
    """Return what became of each rule that the variant must violate."""
    variant = next(each for each in known_variants() if each.name == task.variant)
    control = variant.control or "stock"
    try:
        return [_catch_by(rule, variant, control, task) for rule in variant.violates]
    except BuildError as error:
        return [
            Catch(variant=variant.name, rule=rule, fate="does not apply", control=control, why=error.message)
            for rule in variant.violates
        ]


def _catch_by(rule: str, variant: Variant, control: str, task: Task) -> Catch:
    if rule not in all_rules():
        return Catch(
            variant=variant.name, rule=rule, fate="not judged", control=control, why="no such rule yet"
        )
    tried = 0
    for name in _scenarios(rule, nic.get(task.nic), task.kernel):
        tried += 1
        seen = _run(task, name, variant.name).rule(rule)
        if seen is None or seen.outcome != "violated":
            continue
        against = _run(task, name, variant.control).rule(rule)
        if against is not None and against.outcome == "hold":
            return Catch(
                variant=variant.name,
                rule=rule,
                fate="caught",
                scenario=name,
                observed=seen.observed,
                control=control,
                control_observed=against.observed,
            )
    return Catch(
        variant=variant.name,
        rule=rule,
        fate="out of sight" if variant.out_of_sight else "survived",
        control=control,
        why=variant.out_of_sight or f"in {tried} scenarios",
    )


def _scenarios(rule: str, on: Nic, kernel: str) -> Iterator[str]:
    """Yield the scenarios this NIC can run, those first that are there to exercise the rule."""
    release = resolve(kernel).version
    found = [fitted(load(entry.name), on.capabilities(release)) for entry in library()]
    able = [each for each in found if not on.missing(frozenset(map(str, required(each))), release)]
    yield from (each.name for each in sorted(able, key=lambda each: rule not in each.must_exercise))


def _run(task: Task, scenario_name: str, variant: str | None) -> Result:
    """Return the result of a run, from the cache when it was run before."""
    toolchain = open_toolchain()
    kernel = with_variants(resolve(task.kernel), [variant] if variant else [], toolchain)
    story = load(scenario_name)
    key = content_key(
        kernel.identity,
        task.nic,
        canonical_json(story),
        str(image.build(toolchain)),
        *(path for room in (nic, rules, scenario, trace) for path in _files(room.__file__)),
    )

    def fill(target: Path) -> None:
        request = Request(toolchain=toolchain, kernel=kernel, nic=nic.get(task.nic), scenario=story)
        save_result(target, run(request).result)

    directory = build_once(cache_dir() / "mutations" / key, fill)
    return decode_result((directory / "result.json").read_bytes(), str(directory))


def _files(module: str | None) -> list[Path]:
    return sorted(Path(module or "").parent.glob("*.py"))
