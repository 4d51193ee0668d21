"""Our own model of a DesignWare EQOS, as in Intel's Elkhart Lake, and the kernel's stmmac (dwmac-intel)."""

from testbed.nic import Nic

__all__ = ["NIC"]

NIC = Nic(
    name="stmmac",
    about="DesignWare EQOS with four queues, played by testbed; a test decides what its descriptors and interrupts do",
    device={},
    model="testbed.dwmac:DwmacIntel",
    driver="stmmac",
    modules=("dwmac-intel",),
    since={
        "copy": (0, 0),
        "native_xdp": (5, 13),
        "generic_xdp": (0, 0),
        "zero_copy": (5, 13),
        "tx_frames": (0, 0),
    },
)
