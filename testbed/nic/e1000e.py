"""QEMU's e1000e (an Intel 82574L) and the driver of the same name."""

from testbed.nic import Nic

__all__ = ["NIC"]

NIC = Nic(
    name="e1000e",
    about="Intel 82574L, QEMU's own model; no native XDP, so generic XDP and copy mode",
    device={"driver": "e1000e", "romfile": ""},
    driver="e1000e",
    modules=("e1000e",),
    since={"copy": (0, 0), "generic_xdp": (0, 0)},
)
