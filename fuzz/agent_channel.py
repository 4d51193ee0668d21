"""Atheris target: any bytes on the agent's channel, in this process.

    python fuzz/agent_channel.py -runs=100000 [CORPUS]

Nothing may escape but :class:`GuestLost`, the channel ends by it, and what it reads is what was sent.
"""

from __future__ import annotations

import contextlib
import socket
import sys

import atheris

with atheris.instrument_imports(include=["testbed.guest.channel"]):
    from testbed.errors import GuestLost
    from testbed.guest.channel import HEADER, MAGIC, VERSION, Barrier, Channel, End, MessageType, Ready
    from testbed.guest.guest import Shared

COVERS = ["testbed.guest.channel"]
DECODERS = {MessageType.READY: Ready.of, MessageType.BARRIER: Barrier.of, MessageType.END: End.of}
PATIENCE_S = 5.0


def messages(data: bytes) -> bytes:
    """Return messages of the input's kinds and sizes, mostly right, and what is left of it as it is."""
    take = atheris.FuzzedDataProvider(data)
    sent = b""
    while take.remaining_bytes() > 4:
        payload = take.ConsumeBytes(take.ConsumeIntInRange(0, 128))
        wrong = take.ConsumeIntInRange(0, 15) == 0
        magic = take.ConsumeInt(4) & 0xFFFFFFFF if wrong else MAGIC
        kind = take.ConsumeIntInRange(0, 10)
        records = take.PickValueInList([1, 1, 1, 2, 8, 0xFFFFFFFF])
        size = len(payload) // records if records < 9 else len(payload)
        sent += HEADER.pack(magic, VERSION, kind, records, size) + payload[: size * records]
    return sent + take.ConsumeBytes(take.remaining_bytes())


def one(data: bytes) -> None:
    """Run one input."""
    ours, theirs = socket.socketpair()
    with Channel(ours) as channel:
        with theirs:
            theirs.settimeout(PATIENCE_S)
            with contextlib.suppress(BrokenPipeError):  # it had seen enough
                theirs.sendall(messages(data))
        ready: Ready | None = None
        while True:
            try:
                message = channel.receive(PATIENCE_S)
            except GuestLost as error:
                assert "no message within" not in str(error), "the channel did not end"
                return
            try:
                decode = DECODERS.get(message.type)
                decoded = decode(message) if decode else None
                ready = decoded if isinstance(decoded, Ready) else ready
                if message.type is MessageType.PAGES and ready:
                    Shared.of(ready, message.payload)
                str(message)
            except GuestLost:
                pass


def main() -> None:
    """Fuzz; the arguments are libFuzzer's."""
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
