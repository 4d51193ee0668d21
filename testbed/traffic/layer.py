"""The scapy layer of numbered frames, so that scripts, sniffers and ``rdpcap`` can dissect them.

Importing it binds the layer to our EtherType: ``Ether()/TestbedFrame(sequence=7)``.
"""

# mypy: disallow-subclassing-any=False
# scapy is not followed by mypy, so that its classes are Any.

from __future__ import annotations

import zlib

from scapy.fields import IntField, XIntField
from scapy.layers.l2 import Ether
from scapy.packet import Packet, bind_layers

from testbed.traffic.frames import CHECKSUM_AT, ETHERTYPE, HEADER_BYTES, MAGIC

__all__ = ["TestbedFrame"]


class TestbedFrame(Packet):
    """struct tb_payload of images/agent/protocol.h.

    Length and checksum are computed where they are not given. The frame is not padded: give it a payload that
    makes it 60 bytes or longer.
    """

    __test__ = False  # pytest: not a test class
    name = "testbed"
    fields_desc = [  # noqa: RUF012 - scapy's way to declare
        XIntField("magic", MAGIC),
        IntField("sequence", 0),
        IntField("bytes", None),
        XIntField("checksum", None),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in length and checksum."""
        data = pkt + pay
        if self.bytes is None:
            data = data[:8] + (HEADER_BYTES + len(data)).to_bytes(4, "big") + data[12:]
        if self.checksum is None:
            at = CHECKSUM_AT - HEADER_BYTES
            crc = zlib.crc32(data[:at] + bytes(4) + data[at + 4 :])
            data = data[:at] + crc.to_bytes(4, "big") + data[at + 4 :]
        return data


bind_layers(Ether, TestbedFrame, type=ETHERTYPE)
