"""What stands before the first step: rings, UMEM, XDP program, socket."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from testbed.scenario.fields import fields_of

__all__ = ["SettingRow", "Settings", "settings_table"]

NicRing: TypeAlias = Annotated[int, Meta(ge=64, le=4096, extra={"multiple_of": 8})]
SocketRing: TypeAlias = Annotated[int, Meta(ge=1, le=65536, extra={"power_of_two": True})]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of a run; each has a range here, and :mod:`testbed.scenario.check` looks across them."""

    rx_ring: Annotated[NicRing, Meta(description="Rx descriptors of the NIC's ring")] = 256
    tx_ring: Annotated[NicRing, Meta(description="Tx descriptors of the NIC's ring")] = 256
    umem_chunks: Annotated[int, Meta(ge=1, le=65536, description="chunks of the UMEM")] = 512
    chunk_bytes: Annotated[Literal[2048, 4096], Meta(description="bytes of a chunk")] = 2048
    fill_entries: Annotated[SocketRing, Meta(description="entries of the FILL ring")] = 512
    completion_entries: Annotated[SocketRing, Meta(description="entries of the COMPLETION ring")] = 512
    prefill: Annotated[
        int, Meta(ge=0, le=65536, description="chunks posted to FILL before each bind, as most programs do")
    ] = 0
    rx_entries: Annotated[SocketRing, Meta(description="entries of the socket's RX ring")] = 256
    tx_entries: Annotated[SocketRing, Meta(description="entries of the socket's TX ring")] = 256
    mode: Annotated[
        Literal["zerocopy", "copy", "none"], Meta(description="how the socket is bound; none: there is none")
    ] = "zerocopy"
    need_wakeup: Annotated[bool, Meta(description="bind with XDP_USE_NEED_WAKEUP")] = True
    busy_poll: Annotated[
        int,
        Meta(
            ge=0,
            le=64,
            description="with which budget each wakeup polls the NIC itself (SO_PREFER_BUSY_POLL); 0: none does",
        ),
    ] = 0
    queue: Annotated[int, Meta(ge=0, le=63, description="queue of the NIC that the socket is bound to")] = 0
    verdict: Annotated[
        Literal["redirect", "pass", "drop", "tx", "by_frame"],
        Meta(description="the XDP program's answer to our frames; by_frame: what each inject says"),
    ] = "redirect"
    xdp_mode: Annotated[
        Literal["native", "generic", "none"],
        Meta(description="where the XDP program runs: in the driver, in the stack, nowhere"),
    ] = "native"
    vcpus: Annotated[int, Meta(ge=1, le=4, description="CPUs of the guest")] = 1
    app_cpu: Annotated[int, Meta(ge=0, le=3, description="the CPU that user space runs on")] = 0
    irq_cpu: Annotated[int, Meta(ge=0, le=3, description="the CPU that the NIC's interrupts go to")] = 0


class SettingRow(NamedTuple):
    """A line of ``testbed list settings``; every member is text."""

    name: str
    type: str
    range: str
    default: str
    about: str


def settings_table() -> list[SettingRow]:
    """Return all settings with type, range, default and meaning, in the order of the file format."""
    return [
        SettingRow(field.name, field.type, field.range, field.default, field.about)
        for field in fields_of(Settings).values()
    ]
