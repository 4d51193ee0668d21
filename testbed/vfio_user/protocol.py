"""The vfio-user protocol, version 0.0, as declarations: commands, layouts and limits.

Source: docs/interop/vfio-user.rst of QEMU, and include/uapi/linux/vfio.h, whose structures the messages carry.
All numbers are in the host's order, which is little-endian wherever QEMU and testbed run together.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

__all__ = [
    "DMA_MAP",
    "DMA_RW",
    "DMA_UNMAP",
    "HEADER",
    "INFO",
    "IRQ_SET",
    "MAX_DMA_MAPS",
    "MAX_MESSAGE_BYTES",
    "MAX_MESSAGE_FDS",
    "MAX_TRANSFER_BYTES",
    "REGION_INFO",
    "REGION_RW",
    "Command",
    "Header",
    "Irq",
    "IrqSet",
    "MessageFlags",
    "Region",
]

HEADER = struct.Struct("<HHIII")  # id, command, bytes with header, flags, errno
VERSION = struct.Struct("<HH")  # major, minor; JSON and a NUL follow
DMA_MAP = struct.Struct("<IIQQQ")  # argsz, flags, offset in the file, address, bytes
DMA_UNMAP = struct.Struct("<IIQQ")  # argsz, flags, address, bytes
INFO = struct.Struct("<IIII")  # argsz, flags, and two numbers: of DEVICE_GET_INFO and DEVICE_GET_IRQ_INFO
REGION_INFO = struct.Struct("<IIIIQQ")  # argsz, flags, index, capability offset, bytes, offset in a file
IRQ_SET = struct.Struct("<IIIII")  # argsz, flags, index, start, count; BOOL data follow
REGION_RW = struct.Struct("<QII")  # offset, region, count; data follow
MULTI_COUNT = struct.Struct("<Q")
MULTI_WRITE = struct.Struct("<QII8s")  # offset, region, count, data
DMA_RW = struct.Struct("<QQ")  # address, count; data follow

MAX_TRANSFER_BYTES = 4096  # of one REGION_READ or REGION_WRITE
MAX_MESSAGE_BYTES = 8192  # longer ones are nobody's: QEMU's longest is a WRITE_MULTI of 200
MAX_MESSAGE_FDS = 16
MAX_DMA_MAPS = 128  # a machine has about 20; each costs a file descriptor
DMA_WRITABLE = 2
DMA_UNMAP_ALL = 2
REGION_READ_WRITE = 3
DEVICE_RESET_AND_PCI = 3


class Command(enum.IntEnum):
    """What a message asks for."""

    VERSION = 1
    DMA_MAP = 2
    DMA_UNMAP = 3
    DEVICE_GET_INFO = 4
    DEVICE_GET_REGION_INFO = 5
    DEVICE_GET_REGION_IO_FDS = 6
    DEVICE_GET_IRQ_INFO = 7
    DEVICE_SET_IRQS = 8
    REGION_READ = 9
    REGION_WRITE = 10
    DMA_READ = 11  # this and the next are the server's to send
    DMA_WRITE = 12
    DEVICE_RESET = 13
    REGION_WRITE_MULTI = 15


class MessageFlags(enum.IntFlag):
    """Flags of a header; the low four bits are 0 in a command and 1 in a reply."""

    REPLY = 1
    TYPE = 0xF
    NO_REPLY = 0x10
    ERROR = 0x20


class Region(enum.IntEnum):
    """Regions of a PCI device; 0 to 5 are its BARs."""

    ROM = 6
    CONFIG = 7
    VGA = 8
    COUNT = 9


class Irq(enum.IntEnum):
    """Interrupt types of a PCI device."""

    INTX = 0
    MSI = 1
    MSIX = 2
    ERROR = 3
    REQUEST = 4
    COUNT = 5


class IrqInfo(enum.IntFlag):
    """What DEVICE_GET_IRQ_INFO says of a type."""

    EVENTFD = 1
    MASKABLE = 2
    AUTOMASKED = 4
    NORESIZE = 8


class IrqSet(enum.IntFlag):
    """What DEVICE_SET_IRQS asks: one kind of data and one action."""

    NONE = 1
    BOOL = 2
    EVENTFD = 4
    DATA = 7
    MASK = 8
    UNMASK = 16
    TRIGGER = 32
    ACTION = 56


class Header(NamedTuple):
    """The first 16 bytes of a message."""

    id: int
    command: int
    size: int
    flags: int
    error: int
