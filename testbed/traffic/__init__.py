"""Frames in and out of a guest's wire.

:class:`Wire` is the host's end of QEMU's ``-netdev stream``; ``wire.scapy()`` makes it the interface of any
scapy script; :func:`numbered_frames` makes the frames whose fate the guest's ledger follows.
"""

from __future__ import annotations

from testbed.traffic.frames import HOST_MAC, Numbered, numbered_frames, parse
from testbed.traffic.wire import Tap, Wire

__all__ = ["HOST_MAC", "Numbered", "Tap", "Wire", "numbered_frames", "parse"]
