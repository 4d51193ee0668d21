"""What makes a scenario wrong that its types alone cannot say, and how a fault is told to the user."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from testbed.scenario.fault import Fault
from testbed.scenario.fields import Field, fields_of
from testbed.scenario.model import Otherwise, Scenario
from testbed.scenario.own_frames import with_bytes
from testbed.scenario.program import MAX_STEPS
from testbed.scenario.settings import Settings
from testbed.scenario.steps import (
    MAX_BARRIER_FRAMES,
    STEPS,
    Inject,
    Repeat,
    Set,
    Sleep,
    Step,
    Tx,
    Xdp,
    describe,
)
from testbed.scenario.unroll import Totals, totals, unroll

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from testbed.errors import UsageError

__all__ = ["MAX_DEPTH", "MAX_FRAMES", "MAX_SLEEP_US", "Fault", "check_rules", "checked"]

MAX_FRAMES = 200_000  # injected and transmitted in one program
MAX_SLEEP_US = 600_000_000
MAX_DEPTH = 8  # repeats inside repeats
MAX_UMEM_BYTES = 64 << 20  # the guest has 256 MB
SETUP_STEPS = 6  # CPUS, RINGS, UMEM, FILL, XDP_ATTACH, BIND
FILTER_TICK_US = 1000  # QEMU's filter-buffer lets frames into the NIC at each of these


def checked(data: object, tell: Callable[[Fault], UsageError], directory: Path = Path()) -> Scenario:
    """Return the scenario that plain data (dicts, lists, scalars; or a Scenario) describes.

    :param tell: makes the error for a fault; it knows file and line.
    :param directory: where the paths of captures count from.
    :raise UsageError: a field is wrong, a capture cannot be read, or the fields do not go together.
    """
    try:
        data = with_bytes(msgspec.to_builtins(data), directory, tell)
        scenario = msgspec.convert(data, Scenario)
        fault = next(_faults(scenario), None)
    except msgspec.ValidationError as error:
        raise tell(_fault_of(str(error), data)) from None
    except RecursionError:
        raise tell(_too_deep("$")) from None
    if fault is not None:
        raise tell(fault)
    return scenario


def check_rules(
    scenario: Scenario, known: Collection[str], tell: Callable[[Fault], UsageError] | None = None
) -> None:
    """Check that all rules of ``must_exercise`` exist.

    :param known: the ids of all rules.
    :raise UsageError: one does not.
    """
    other = scenario.otherwise.must_exercise if scenario.otherwise else None
    for place, rules in (("$", scenario.must_exercise), ("$.otherwise", other or ())):
        for index, rule in enumerate(rules):
            if rule not in known:
                remedy = f"rules are {', '.join(sorted(known))}"
                fault = Fault(f"{place}.must_exercise[{index}]", "the id of a rule", repr(rule), remedy)
                raise tell(fault) if tell else fault.error(f"scenario {scenario.name}")


# What msgspec refused


def _fault_of(message: str, data: object) -> Fault:
    """Turn msgspec's message (``Expected `int` >= 1 - at `$.steps[0].count` ``) into the users' words."""
    text, _, path = message.partition(" - at `")
    path = path.rstrip("`") or "$"
    parent, _, name = path.rpartition(".")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", text):
        field = _fields_at(path, data).get(missing[1])
        about = f"{missing[1]}: {field.about}" if field and field.about else missing[1]
        return Fault(path, f"the field {missing[1]}", "none", f"add {about}")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", text):
        known = ", ".join(_fields_at(path, data)) or "none"
        place = f"{path}.{unknown[1]}"
        return Fault(place, f"a field out of {known}", repr(unknown[1]), f"remove or correct {unknown[1]!r}")
    seen = _shown(_at(path, data))
    if name == "step":
        return Fault(path, "a step", seen, f"steps are {', '.join(STEPS)}")
    field = _fields_at(parent, data).get(name.partition("[")[0])
    if field is None:
        return Fault(path, "a mapping" if path == "$" else "text", seen, "see the scenarios of the library")
    if "[" in name:
        return Fault(path, f"a member of the list {field.name}", seen, field.about)
    return Fault(path, field.expected, seen, f"{name}: {field.about}" if field.about else "correct it")


def _at(path: str, data: object) -> object:
    for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        if isinstance(data, dict) and name:
            data = data.get(name)
        elif isinstance(data, list) and index:
            data = data[int(index)]
        else:
            return None
    return data


def _fields_at(path: str, data: object) -> dict[str, Field]:
    if path == "$":
        return fields_of(Scenario)
    if path == "$.settings":
        return fields_of(Settings)
    if path == "$.otherwise":
        return fields_of(Otherwise)
    owner = _at(path, data)
    word = owner.get("step") if isinstance(owner, dict) else None
    return fields_of(STEPS[word]) if isinstance(word, str) and word in STEPS else {}


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return f"a {'mapping' if isinstance(value, dict) else 'list'} of {len(value)}"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


# What the fields say together


def _faults(scenario: Scenario) -> Iterator[Fault]:
    yield from _setting_faults(scenario.settings)
    yield from _otherwise_faults(scenario)
    yield from _step_faults(scenario)
    yield from _total_faults(totals(scenario))
    yield from _barrier_faults(scenario)


def _setting_faults(settings: Settings) -> Iterator[Fault]:
    for field in fields_of(Settings).values():
        value = getattr(settings, field.name)
        factor = field.extra.get("multiple_of", 1)
        power = field.extra.get("power_of_two", False)
        if (power and value & (value - 1)) or (factor > 1 and value % factor):
            low = 1 << (value.bit_length() - 1) if power else value - value % factor
            near = f"{low} or {low * 2 if power else low + factor}"
            yield Fault(f"$.settings.{field.name}", field.expected, str(value), f"write {near}")
    size = settings.umem_chunks * settings.chunk_bytes
    if size > MAX_UMEM_BYTES and settings.mode != "none":
        seen = f"{settings.umem_chunks} chunks of {settings.chunk_bytes}"
        expected = f"a UMEM of at most {MAX_UMEM_BYTES} bytes"
        yield Fault("$.settings.umem_chunks", expected, seen, "use fewer chunks")
    most = min(settings.umem_chunks, settings.fill_entries)
    if settings.prefill > most and settings.mode != "none":
        expected = f"at most {most}, what UMEM and FILL ring have"
        yield Fault(
            "$.settings.prefill", expected, str(settings.prefill), "write less, or more chunks and entries"
        )
    if settings.mode == "zerocopy" and settings.xdp_mode == "generic":
        remedy = "write xdp_mode: native, or mode: copy"
        yield Fault("$.settings.xdp_mode", "native, which zero copy needs", "generic", remedy)
    if settings.xdp_mode == "none" and settings.mode != "none":
        remedy = "write mode: none, or xdp_mode: native or generic"
        yield Fault("$.settings.xdp_mode", "an XDP program, which a socket needs", "none", remedy)
    for name in ("app_cpu", "irq_cpu"):
        if (cpu := getattr(settings, name)) >= settings.vcpus:
            yield Fault(
                f"$.settings.{name}", f"a CPU below vcpus, {settings.vcpus}", str(cpu), "write more vcpus"
            )
    if settings.mode == "none" and settings.xdp_mode != "none" and settings.verdict == "redirect":
        remedy = "write verdict: pass, drop or tx, or give the scenario a socket (mode: zerocopy or copy)"
        expected = "a verdict that needs no socket, because mode is none"
        yield Fault("$.settings.verdict", expected, "redirect", remedy)


def _otherwise_faults(scenario: Scenario) -> Iterator[Fault]:
    if scenario.otherwise is None:
        return
    lesser = scenario.otherwise.settings(scenario.settings)
    if lesser == scenario.settings:
        expected, seen = "a mode or xdp_mode that the settings do not have", "none"
        yield Fault("$.otherwise", expected, seen, "write mode: copy or xdp_mode: generic, or remove it")
    for fault in _setting_faults(lesser):
        yield fault._replace(path=fault.path.replace("$.settings", "$.otherwise"))


def _step_faults(scenario: Scenario) -> Iterator[Fault]:
    settings = scenario.settings
    for path, step, depth in _written(scenario.steps, "$", 0):
        if depth > MAX_DEPTH:
            yield _too_deep(path)
        if step.needs_socket and settings.mode == "none":
            remedy = "remove the step, or write mode: zerocopy or copy"
            yield Fault(path, "a step that needs no socket, because mode is none", describe(step), remedy)
        if isinstance(step, Tx) and step.count > settings.umem_chunks:
            remedy = "send in batches, with comp_drain between them"
            yield Fault(
                f"{path}.count", f"at most umem_chunks, {settings.umem_chunks}", str(step.count), remedy
            )
        if isinstance(step, Xdp) and settings.xdp_mode == "none":
            remedy = "remove the step, or write xdp_mode: native or generic"
            yield Fault(path, "a step without XDP program, because xdp_mode is none", describe(step), remedy)
        if isinstance(step, Inject):
            yield from _inject_faults(step, path)
        if isinstance(step, Inject) and step.verdict and settings.verdict != "by_frame":
            remedy = "write verdict: by_frame in the settings, or leave it out here"
            yield Fault(
                f"{path}.verdict", f"none, because the verdict is {settings.verdict}", step.verdict, remedy
            )
        if isinstance(step, Set) and not step.records():
            knobs = " or ".join(step.__struct_fields__)
            yield Fault(path, f"a value for {knobs}", "none", "write set: {napi_defer_hard_irqs: 2}")


def _inject_faults(step: Inject, path: str) -> Iterator[Fault]:
    if not step.hex and step.count is None:
        about = fields_of(Inject)["count"].about
        yield Fault(path, "the field count, frames or pcap", "none", f"add count: {about}")
    if step.hex and str(step.bytes) != fields_of(Inject)["bytes"].default:
        yield Fault(f"{path}.bytes", "none beside frames of your own", str(step.bytes), "remove it")


def _written(steps: tuple[Step, ...], parent: str, depth: int) -> Iterator[tuple[str, Step, int]]:
    """Yield each step once, as it is written, with its path and the number of repeats around it."""
    for index, step in enumerate(steps):
        path = f"{parent}.steps[{index}]"
        yield path, step, depth
        if isinstance(step, Repeat):
            yield from _written(step.steps, path, depth + 1)


def _total_faults(sums: Totals) -> Iterator[Fault]:
    limits = (
        (sums.records + SETUP_STEPS, MAX_STEPS, "steps with repeats written out", "repeat less often"),
        (sums.frames, MAX_FRAMES, "frames in all", "inject and send fewer, or make several runs (--runs)"),
        (sums.sleep_us, MAX_SLEEP_US, "microseconds of sleep in all", "sleep less"),
    )
    for seen, limit, what, remedy in limits:
        if seen > limit:
            yield Fault("$.steps", f"at most {limit} {what}", str(seen), remedy)


def _barrier_faults(scenario: Scenario) -> Iterator[Fault]:
    """Yield injects that pile up in QEMU's buffer because the guest's clock stands still between them."""
    waiting, slept_us = 0, 0
    for written in unroll(scenario):
        if isinstance(written.step, Sleep):
            slept_us += written.step.us
        elif isinstance(written.step, Inject):
            total = written.step.total
            waiting = total if slept_us >= FILTER_TICK_US else waiting + total
            slept_us = 0
        if waiting > MAX_BARRIER_FRAMES:
            expected = f"at most {MAX_BARRIER_FRAMES} frames per {FILTER_TICK_US} us of sleep"
            remedy = "QEMU would drop the rest: add sleep_us: 1000 between the injects"
            yield Fault(written.path, expected, str(waiting), remedy)


def _too_deep(path: str) -> Fault:
    return Fault(path, f"at most {MAX_DEPTH} repeats inside each other", "more", "write the steps out")
