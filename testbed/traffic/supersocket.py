"""A guest's wire as scapy's interface: sendp, sniff, srp1 and sr1 of any script work on it unchanged.

scapy asks the interface for its socket classes, and the routing table for the interface. So
:func:`scapy_interface` registers an interface and, while it is open, lets it be the only one that routes lead
to: no frame of a script can reach a real network of the host by mistake.
"""

# mypy: disallow-subclassing-any=False
# scapy is not followed by mypy, so that its classes are Any.

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import scapy.layers.inet  # so that Ether knows IP
import scapy.route6  # noqa: F401 - fills conf.route6
from scapy.config import conf
from scapy.interfaces import InterfaceProvider, NetworkInterface
from scapy.layers.l2 import Ether
from scapy.supersocket import SuperSocket
from scapy.utils6 import in6_mactoifaceid

from testbed.errors import UsageError
from testbed.traffic.frames import HOST_MAC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scapy.packet import Packet

    from testbed.traffic.wire import Wire

__all__ = ["WireL3Socket", "WireListenSocket", "WireSuperSocket", "scapy_interface"]


class WireSuperSocket(SuperSocket):
    """A layer 2 socket on a wire: each one gets every frame that comes after it was opened.

    It does not see what the host itself sends. A BPF filter is not looked at: scapy's senders give one to
    save work, and match answers themselves.

    :param wire: an open wire; closing the socket leaves it open.
    """

    desc = "read/write frames of a guest's wire"

    def __init__(self, wire: Wire, iface: Any = None, **_: object) -> None:
        self.wire = wire
        self.iface = iface
        self.promisc = True
        self.ins = wire.tap()
        self.outs = None

    def send(self, x: Packet | bytes) -> int:
        """Send a packet; return its length in bytes.

        :raise GuestLost: QEMU does not take it.
        """
        data = bytes(x)
        if hasattr(x, "sent_time"):
            x.sent_time = time.time()
        self.wire.send([data])
        return len(data)

    def recv_raw(self, x: int = 0) -> tuple[type[Packet] | None, bytes | None, float | None]:  # noqa: ARG002
        """Return class, bytes and time of the next frame; None three times if none waits (select tells).

        :param x: not looked at; frames come whole.
        :raise EOFError: the wire has ended.
        """
        item = self.ins.take()
        return (None, None, None) if item is None else (Ether, item[1], item[0])


class WireListenSocket(WireSuperSocket):
    """The layer 2 socket of sniff; where a filter is the point of the call, it is refused, not ignored.

    :raise UsageError: a filter is given.
    """

    desc = "read frames of a guest's wire"

    def __init__(self, wire: Wire, filter: str | None = None, **options: Any) -> None:  # noqa: A002 - scapy's name
        self.closed = True  # scapy closes in __del__ even what was refused here
        if filter:
            message = f"expected no BPF filter on a guest's wire, seen {filter!r}"
            raise UsageError(message, "give sniff lfilter=lambda packet: ... instead")
        self.closed = False
        super().__init__(wire, **options)


class WireL3Socket(WireSuperSocket):
    """A layer 3 socket on a wire: puts the Ethernet header before what is sent, takes it off what comes."""

    def send(self, x: Packet) -> int:
        """Send a packet of layer 3, to the MAC address that ARP or neighbour discovery finds for it."""
        x.sent_time = time.time()
        return super().send(Ether() / x)

    def recv(self, x: int = 0, **kwargs: Any) -> Packet | None:
        """Return the next frame's payload, or None if none waits."""
        packet = super().recv(x, **kwargs)
        if packet is None:
            return None
        packet.payload.time = packet.time
        return packet.payload


class WireProvider(InterfaceProvider):
    """Tells scapy of the interfaces that are wires; they come and go with :func:`scapy_interface`."""

    name = "testbed"
    wires: ClassVar[dict[str, tuple[NetworkInterface, Wire]]] = {}

    def load(self) -> dict[str, NetworkInterface]:
        """Return the interfaces by name."""
        return {name: interface for name, (interface, _) in self.wires.items()}

    def _l2socket(self, dev: NetworkInterface) -> Any:
        return partial(WireSuperSocket, self.wires[dev.name][1])

    def _l2listen(self, dev: NetworkInterface) -> Any:
        return partial(WireListenSocket, self.wires[dev.name][1])

    def _l3socket(self, dev: NetworkInterface, ipv6: bool) -> Any:  # noqa: ARG002, FBT001 - scapy's signature
        return partial(WireL3Socket, self.wires[dev.name][1])


@contextmanager
def scapy_interface(
    wire: Wire,
    name: str = "wire0",
    mac: str = HOST_MAC,
    ip: str = "192.0.2.1",
    network: str = "192.0.2.0/24",
) -> Iterator[NetworkInterface]:
    """Make a wire scapy's default interface; all of scapy's settings are as before when this ends.

    scapy has one configuration per process: a second wire opened inside is the default until it ends.

    :param mac: address of our end, the source of frames that name none.
    :param ip: our IPv4 address, likewise.
    :param network: the IPv4 network on the wire; all other addresses are sought on it, too.
    """
    provider = _provider()
    data = {"name": name, "description": name, "network_name": name, "index": 1 << 20, "mac": mac}
    link_local = f"fe80::{in6_mactoifaceid(mac)}"
    interface = NetworkInterface(provider, {**data, "ips": [ip, link_local]})
    provider.wires[name] = (interface, wire)
    conf.ifaces.data[name] = interface
    saved = conf.iface
    conf.iface = interface
    try:
        with (
            _only_routes(conf.route, []),
            _only_routes(conf.route6, [("::", 0, "::", name, [link_local], 1)]),
        ):
            conf.route.ifadd(name, f"{ip}/{network.partition('/')[2]}")
            conf.route.ifadd(name, f"{ip}/0")
            yield interface
    finally:
        conf.iface = saved
        del conf.ifaces.data[name]
        del provider.wires[name]


@contextmanager
def _only_routes(table: Any, routes: list[Any]) -> Iterator[None]:
    """Put other routes into one of scapy's tables; what was learnt by them is forgotten at both ends."""
    saved, table.routes = table.routes, routes
    table.invalidate_cache()
    conf.netcache.flush()
    try:
        yield
    finally:
        table.routes = saved
        table.invalidate_cache()
        conf.netcache.flush()


def _provider() -> WireProvider:
    if WireProvider not in conf.ifaces.providers:
        conf.ifaces.register_provider(WireProvider)
    provider: WireProvider = conf.ifaces.providers[WireProvider]
    return provider
