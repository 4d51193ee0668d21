"""Ready guests, saved once and restored for every run.

A snapshot is a directory of the cache, named by everything that decides what the guest is: QEMU, kernel, variants, NIC,
shape and image. Every run starts from one, also the first: what happens at which tick of the virtual clock depends on
when QEMU started, and this way it is the same for all.

A guest can be saved again after a program, as a base from which many short programs start.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from testbed.cache import Origin, build_once, cache_dir, content_key
from testbed.errors import GuestLost, Unsupported
from testbed.guest.channel import Ready
from testbed.guest.conductor import conduct
from testbed.guest.guest import Guest, Shared
from testbed.guest.machine import Machine
from testbed.guest.qemu import Descriptors, command_line
from testbed.vfio_user.model import model_sources

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from testbed.guest.qemu import Blueprint
    from testbed.scenario import Program
    from testbed.toolchain import Toolchain

__all__ = ["is_saved", "restored", "restored_base", "save", "save_base"]

STATE = "state"
AGENT = "agent.json"
PAST = "events"
BASE_LIMIT_S = 120.0


class _Agent(msgspec.Struct):
    """What the agent said when it became ready."""

    ready: Ready
    shared: Shared


def _directory(toolchain: Toolchain, blueprint: Blueprint) -> Path:
    kernel, initramfs = _in_cache(blueprint.kernel), _in_cache(blueprint.initramfs)
    placeless = replace(blueprint, probe=None, kernel=kernel, initramfs=initramfs)
    command = command_line(placeless, Path("console"), Descriptors(0, 0, 0, 0), incoming=False)
    model = model_sources(blueprint.nic.model) if blueprint.nic.model else []
    return cache_dir() / "snapshots" / content_key(toolchain.identity, *command, *model)


def _in_cache(file: Path) -> Path:
    """Return its path in the cache, so that snapshots outlive the cache's moving to another place."""
    return file.relative_to(cache_dir()) if cache_dir() in file.parents else file


def is_saved(toolchain: Toolchain, blueprint: Blueprint) -> bool:
    """Return whether the cache has a snapshot of this guest."""
    return _directory(toolchain, blueprint).exists()


def save(toolchain: Toolchain, blueprint: Blueprint) -> Path:
    """Return the snapshot's directory; when the cache has none, boot the guest and save it.

    :raise BootError: the guest does not become ready.
    """

    def boot(target: Path) -> None:
        with Machine(toolchain, replace(blueprint, probe=None), target) as machine:
            guest = Guest.boot(machine)
            machine.save(target / STATE)
        (target / AGENT).write_bytes(msgspec.json.encode(_Agent(guest.ready, guest.shared)))

    return build_once(_directory(toolchain, blueprint), boot, _origin(toolchain, blueprint))


def save_base(toolchain: Toolchain, blueprint: Blueprint, program: Program) -> Path:
    """Return the snapshot's directory of the guest after a program that injects nothing; made when there is none.

    :raise Unsupported: driver or kernel refuses a step of the program.
    :raise GuestLost: a step failed for another reason, or the guest died.
    """
    ready = save(toolchain, blueprint)

    def lead(target: Path) -> None:
        with restored(toolchain, replace(blueprint, probe=None), target) as guest:
            outcome = conduct(guest, program, BASE_LIMIT_S)
            if outcome.end is None:
                raise GuestLost(f"the guest died on the way to a base: {outcome.death}")
            if outcome.end.error:
                why = os.strerror(-outcome.end.error)
                raise Unsupported(
                    f"driver or kernel refuses {program.describe(outcome.end.steps_done)}: {why}"
                )
            guest.machine.save(target / STATE)
        (target / AGENT).write_bytes(msgspec.json.encode(_Agent(guest.ready, guest.shared)))
        (target / PAST).write_bytes(outcome.events)

    directory = ready.with_name(content_key(ready.name, program.steps.tobytes()))
    origin = _origin(toolchain, blueprint)
    about = f"{origin.about}, a base of fuzzing"
    return build_once(directory, lead, Origin(about, (*origin.made_of, f"snapshots/{ready.name}")))


@contextmanager
def restored_base(
    toolchain: Toolchain, blueprint: Blueprint, directory: Path, program: Program
) -> Iterator[tuple[Guest, bytes]]:
    """Give a guest as it stood after a program, and the events of that; see :func:`restored`."""
    saved = save_base(toolchain, blueprint, program)
    agent = msgspec.json.decode((saved / AGENT).read_bytes(), type=_Agent)
    with Machine(toolchain, blueprint, directory, saved / STATE) as machine:
        yield Guest(machine, agent.ready, agent.shared), (saved / PAST).read_bytes()


def _origin(toolchain: Toolchain, blueprint: Blueprint) -> Origin:
    shape = blueprint.shape
    files = (blueprint.kernel, blueprint.initramfs)
    entries = [
        f"{file.parent.parent.name}/{file.parent.name}" for file in files if cache_dir() in file.parents
    ]
    about = f"{blueprint.nic.name}, {shape.clock} time, {shape.accelerator}, {shape.vcpus} CPUs"
    return Origin(about, (f"toolchain:{toolchain.identity}", *entries))


@contextmanager
def restored(
    toolchain: Toolchain,
    blueprint: Blueprint,
    directory: Path,
    pcap: Path | None = None,
    gdb: socket.socket | None = None,
) -> Iterator[Guest]:
    """Give a guest that waits for a program; it ends with the context.

    :param directory: for its console log; this, ``pcap`` and ``gdb``: see :class:`testbed.guest.machine.Machine`.
    :raise BootError: there was no snapshot, and the guest does not become ready.
    :raise GuestLost: QEMU does not take the snapshot.
    """
    saved = save(toolchain, blueprint)
    agent = msgspec.json.decode((saved / AGENT).read_bytes(), type=_Agent)
    with Machine(toolchain, blueprint, directory, saved / STATE, pcap, gdb) as machine:
        yield Guest(machine, agent.ready, agent.shared)
