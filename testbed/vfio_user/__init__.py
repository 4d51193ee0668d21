"""NICs as processes of their own: the vfio-user protocol and a server for device models; knows no NIC.

A device model imports from here: :class:`Device`, what it declares, and the :class:`Host` that it is handed.
"""

from testbed.vfio_user.device import (
    Bar,
    Command,
    Declaration,
    Device,
    DmaFault,
    Express,
    Host,
    Identity,
    Msi,
    MsiX,
    PowerManagement,
)
from testbed.vfio_user.events import DeviceEvent

__all__ = [
    "Bar",
    "Command",
    "Declaration",
    "Device",
    "DeviceEvent",
    "DmaFault",
    "Express",
    "Host",
    "Identity",
    "Msi",
    "MsiX",
    "PowerManagement",
]
