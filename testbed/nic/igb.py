"""QEMU's igb (an Intel 82576) and the driver of the same name."""

from testbed.nic import Nic

__all__ = ["NIC"]

NIC = Nic(
    name="igb",
    about="Intel 82576, QEMU's own model; AF_XDP zero copy from kernel 6.14 on",
    device={"driver": "igb", "romfile": ""},
    driver="igb",
    modules=("igb",),
    since={"copy": (0, 0), "native_xdp": (5, 10), "generic_xdp": (0, 0), "zero_copy": (6, 14)},
)
