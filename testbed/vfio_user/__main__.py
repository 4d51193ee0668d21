"""One device model: ``python -m testbed.vfio_user MODULE:CLASS CONTROL``; testbed starts it, not people."""

from __future__ import annotations

import gc
import resource
import signal
import socket
import sys

from testbed.vfio_user.control import await_beginning
from testbed.vfio_user.model import find_model
from testbed.vfio_user.server import Channels, Server

MEMORY_BYTES = 2 << 30  # a model that grows without end dies alone


def main() -> None:
    """Get everything ready, wait for word of what it is for, and serve until QEMU or testbed is gone."""
    name, control_fd = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for testbed
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    model = find_model(name)
    gc.freeze()  # what is there now stays; a collection in the middle of a burst has less to look at
    control = socket.socket(fileno=int(control_fd))
    try:
        mac, (listener, wire, events) = await_beginning(control)
    except EOFError:
        return
    channels = Channels(socket.socket(fileno=listener), control, socket.socket(fileno=wire), events)
    Server(model, channels, mac).serve()


if __name__ == "__main__":
    main()
