"""QEMU's command line for a guest, and nothing else."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Literal

from testbed.guest.model import MODEL_SOCKET
from testbed.nic import GUEST_MAC

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.nic import Nic

__all__ = ["GDB", "NIC_ID", "PACER", "Blueprint", "Clock", "Descriptors", "Probe", "Shape", "command_line"]

Clock = Literal["virtual", "real"]
NIC_ID = "nic"  # of the NIC under test
MODEL_SLOT = 0x10  # on bus 0, of a NIC that a device model plays
GDB = "gdb"  # of the socket for a debugger; the stub is started later
PACER: dict[str, str | int] = {
    "qom-type": "filter-buffer",
    "id": "pacer",
    "netdev": "wire",
    "queue": "tx",
    "interval": 1000,  # microseconds
}
"""The filter that lets frames in at ticks of the virtual clock, as QMP's object-add takes it."""

KERNEL_ARGUMENTS = (
    "console=ttyS0",
    "rdinit=/init",
    "panic=-1",  # reboot at once, which -no-reboot makes QEMU's end
    "oops=panic",
    "nokaslr",
    "net.ifnames=0",
    "ipv6.disable=1",  # autoconfiguration sends frames nobody asked for
    "audit=0",
    # Emulated CPUs leak nothing, but flush their TLB twice in each system call where the kernel isolates page tables.
    "mitigations=off",
    "cryptomgr.notests",  # nobody here asks whether AES is right
    "no_timer_check",  # whether an emulated timer interrupts
    "random.trust_cpu=on",
)
# Under TCG the kernel distrusts the TSC and reads the ACPI timer instead, which costs a device access each time.
TCG_CPU = "Nehalem"  # the fewer features, the less code the kernel patches at boot; no RDRAND, so no host randomness
TCG_ARGUMENTS = ("tsc=reliable", "clocksource=tsc")
# The kernel does not know this word, and so hands it to the agent as environment.
REAL_CLOCK = "TESTBED_CLOCK=real"


@dataclass(frozen=True)
class Shape:
    """What a guest is besides kernel and NIC.

    :param clock: ``virtual`` counts instructions and is the same on every host; ``real`` follows the host's clock.
    :param terminal: whether it has a second serial port, /dev/ttyS1, for a person.
    """

    accelerator: Literal["tcg", "kvm"] = "tcg"
    clock: Clock = "virtual"
    vcpus: int = 1
    memory_mib: int = 256
    terminal: bool = False


@dataclass(frozen=True)
class Descriptors:
    """File descriptors that QEMU inherits: its ends of our socket pairs, the guest's memory, a listening socket.

    :param wire: -1 when a device model has it. :param model: the directory with the device model's socket, or -1.
    :param terminal: -1 when the shape has none. :param gdb: -1 when there is no debugger.
    :param counters: -1 when nobody counts basic blocks.
    """

    monitor: int
    agent: int
    wire: int
    memory: int
    terminal: int = -1
    gdb: int = -1
    model: int = -1
    counters: int = -1

    def all(self) -> list[int]:
        """Return those that there are."""
        return [fd for fd in astuple(self) if fd >= 0]


def _device(properties: dict[str, str | int]) -> str:
    driver = str(properties.pop("driver"))
    pairs = (f"{name}={_value(value)}" for name, value in properties.items())
    return ",".join((driver, *pairs))


def _value(value: str | int) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _clock_arguments(shape: Shape) -> list[str]:
    if shape.clock == "real":
        return []
    # Without the RTC's base the guest would see the host's date.
    return [*("-icount", "shift=1,sleep=off"), *("-rtc", "base=2026-01-01,clock=vm")]


def _person_arguments(shape: Shape, inherited: Descriptors) -> list[str]:
    """Return what a person at a terminal or in a debugger needs."""
    arguments = []
    if shape.terminal:
        arguments += ["-chardev", f"socket,id=terminal,fd={inherited.terminal}"]
        arguments += ["-device", "isa-serial,chardev=terminal"]
    if inherited.gdb >= 0:
        arguments += ["-chardev", f"socket,id={GDB},fd={inherited.gdb},server=on,wait=off"]
    return arguments


@dataclass(frozen=True)
class Probe:
    """A plugin that counts the basic blocks a guest executes; the guest notices nothing of it.

    :param plugin: images/plugin/coverage.c, compiled. :param leaders: the file of addresses that it reads.
    :param counters: descriptor of shared memory, a byte for each address.
    """

    plugin: Path
    leaders: Path
    counters: int


@dataclass(frozen=True)
class Blueprint:
    """All that decides what a guest is before its first program, and who watches it.

    :param kernel: a bzImage. :param initramfs: a cpio archive.
    """

    shape: Shape
    nic: Nic
    kernel: Path
    initramfs: Path
    probe: Probe | None = None


def _emulated(nic: Nic, inherited: Descriptors) -> list[str]:
    """Return the arguments for a NIC that QEMU plays itself, at the end of its wire."""
    device = _device({**nic.device, "id": NIC_ID, "netdev": "wire", "mac": GUEST_MAC})
    return ["-netdev", f"stream,id=wire,addr.type=fd,addr.str={inherited.wire}", "-device", device]


def _modelled(nic: Nic, shape: Shape, inherited: Descriptors) -> list[str]:
    """Return the arguments for a NIC that a device model plays; the wire is the model's.

    In virtual time the guest waits for each of its writes to registers, so that none is on its way when it stops.
    """
    device = {
        "driver": "vfio-user-pci",
        "id": NIC_ID,
        "addr": f"{MODEL_SLOT:#x}",
        "socket": {"type": "unix", "path": f"/proc/self/fd/{inherited.model}/{MODEL_SOCKET}"},
        **({"x-no-posted-writes": True} if shape.clock == "virtual" else {}),
        **nic.device,
    }
    return ["-device", json.dumps(device)]


def _probed(probe: Probe | None) -> list[str]:
    if probe is None:
        return []
    return ["-plugin", f"{probe.plugin},leaders={probe.leaders},fd={probe.counters}"]


def _memory(shape: Shape, fd: int) -> str:
    path = f"/proc/self/fd/{fd}"
    return f"memory-backend-file,id=ram,size={shape.memory_mib}M,mem-path={path},share=on"


def command_line(blueprint: Blueprint, console: Path, inherited: Descriptors, *, incoming: bool) -> list[str]:
    """Return QEMU's argv for a guest that stops before its first instruction (-S).

    :param console: the file QEMU writes the kernel's log to.
    :param incoming: the guest's state will come from a file.
    """
    shape, nic = blueprint.shape, blueprint.nic
    kernel_arguments = [*KERNEL_ARGUMENTS]
    kernel_arguments += TCG_ARGUMENTS if shape.accelerator == "tcg" else ()
    kernel_arguments += [REAL_CLOCK] if shape.clock == "real" else []
    return [
        "qemu-system-x86_64",
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-S"),
        *(
            "-machine",
            f"q35,accel={shape.accelerator},memory-backend=ram,hpet=off,usb=off,smbus=off,vmport=off",
        ),
        *("-object", _memory(shape, inherited.memory)),
        *("-cpu", TCG_CPU if shape.accelerator == "tcg" else "host"),
        *("-smp", str(shape.vcpus), "-m", f"{shape.memory_mib}M"),
        *(
            "-kernel",
            str(blueprint.kernel),
            "-initrd",
            str(blueprint.initramfs),
            "-append",
            " ".join(kernel_arguments),
        ),
        *("-chardev", f"file,id=console,path={console}", "-serial", "chardev:console"),
        *("-chardev", f"socket,id=monitor,fd={inherited.monitor}", "-qmp", "chardev:monitor"),
        *("-chardev", f"socket,id=agent,fd={inherited.agent}", "-device", "isa-debugcon,chardev=agent"),
        *(_modelled(nic, shape, inherited) if nic.model else _emulated(nic, inherited)),
        *("-device", "pvpanic", "-action", "panic=pause"),
        *_clock_arguments(shape),
        *_probed(blueprint.probe),
        *_person_arguments(shape, inherited),
        *(("-incoming", "defer") if incoming else ()),
    ]
