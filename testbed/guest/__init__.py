"""Running guests: QEMU's argv, the machine's life, snapshots, the agent's channel, the accelerator."""

from testbed.guest.accelerator import probe
from testbed.guest.conductor import Conductor, conduct
from testbed.guest.execute import Command, execute
from testbed.guest.guest import Guest, Outcome
from testbed.guest.qemu import Blueprint, Clock, Probe, Shape
from testbed.guest.running import running
from testbed.guest.runtime import runtime_directory
from testbed.guest.snapshot import is_saved, restored, restored_base, save, save_base
from testbed.guest.spare import warm

__all__ = [
    "Blueprint",
    "Clock",
    "Command",
    "Conductor",
    "Guest",
    "Outcome",
    "Probe",
    "Shape",
    "conduct",
    "execute",
    "is_saved",
    "probe",
    "restored",
    "restored_base",
    "running",
    "runtime_directory",
    "save",
    "save_base",
    "warm",
]
