"""One device model: ``python -m testbed.vfio_user MODULE:CLASS --listener FD ...``; testbed starts it, not people."""

from __future__ import annotations

import argparse
import gc
import resource
import signal
import socket

from testbed.vfio_user.model import find_model
from testbed.vfio_user.server import Channels, Server

MEMORY_BYTES = 2 << 30  # a model that grows without end dies alone


def main() -> None:
    """Serve until QEMU or testbed is gone."""
    parser = argparse.ArgumentParser(prog="testbed.vfio_user")
    parser.add_argument("model", metavar="MODULE:CLASS")
    parser.add_argument("--listener", type=int, required=True, help="a listening Unix socket")
    parser.add_argument("--control", type=int, help="a stream socket to testbed")
    parser.add_argument("--wire", type=int, help="a stream socket: the cable")
    parser.add_argument("--events", type=int, help="shared memory for events")
    parser.add_argument("--mac", default="02:00:00:00:00:02")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for testbed
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    channels = Channels(
        listener=socket.socket(fileno=given.listener),
        control=socket.socket(fileno=given.control) if given.control is not None else None,
        wire=socket.socket(fileno=given.wire) if given.wire is not None else None,
        events=given.events,
    )
    server = Server(find_model(given.model), channels, bytes.fromhex(given.mac.replace(":", "")))
    gc.freeze()  # what is there now stays; a collection in the middle of a burst has less to look at
    server.serve()


if __name__ == "__main__":
    main()
