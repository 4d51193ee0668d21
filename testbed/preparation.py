"""From names to a guest: its shape, everything it is made of, and the guest itself, waiting for a program."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from testbed import image
from testbed.guest import Blueprint, Shape, probe, restored, runtime_directory
from testbed.kernel import bootable

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from testbed.guest import Clock, Guest
    from testbed.kernel import Kernel
    from testbed.nic import Nic
    from testbed.toolchain import Toolchain

__all__ = ["blueprint_of", "ready_guest", "shape_of"]


def shape_of(toolchain: Toolchain, clock: Clock | None, *, vcpus: int = 1, terminal: bool = False) -> Shape:
    """Return the shape of a guest with this clock; without one, the clock that suits the accelerator.

    :raise HostError: QEMU cannot be started.
    """
    accelerator = probe(toolchain).name
    # Only TCG counts instructions; who asks for virtual time gets TCG, whatever else there is.
    clock = clock or ("virtual" if accelerator == "tcg" else "real")
    return Shape(
        accelerator="kvm" if accelerator == "kvm" and clock == "real" else "tcg",
        clock=clock,
        vcpus=vcpus,
        terminal=terminal,
    )


def blueprint_of(
    toolchain: Toolchain, kernel: Kernel, nic: Nic, shape: Shape, later: Sequence[str] = ()
) -> Blueprint:
    """Return what such a guest is made of, built when the cache lacks it.

    :param later: modules that a step of the scenario loads.
    :raise TestbedError: kernel, image or a module cannot be built or read.
    """
    base = image.build(toolchain)
    return Blueprint(
        shape=shape,
        nic=nic,
        kernel=bootable(kernel, toolchain),
        initramfs=image.with_modules(base, kernel.module_closure(nic.modules), kernel.module_closure(later)),
    )


@contextmanager
def ready_guest(
    toolchain: Toolchain,
    kernel: Kernel,
    nic: Nic,
    shape: Shape,
    *,
    gdb: socket.socket | None = None,
    pcap: Path | None = None,
) -> Iterator[Guest]:
    """Give a guest that waits for a program; it ends with the context.

    :param gdb: a listening socket on which QEMU serves a debugger.
    :param pcap: where to record the frames of both directions.
    :raise TestbedError: it cannot be built, booted or restored.
    """
    blueprint = blueprint_of(toolchain, kernel, nic, shape)
    with (
        runtime_directory() as directory,
        restored(toolchain, blueprint, directory, pcap, gdb) as guest,
    ):
        yield guest
