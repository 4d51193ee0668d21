"""A model of the DesignWare EQOS Ethernet core (dwmac 5.10), which Linux drives with stmmac; it knows no protocol."""

from testbed.dwmac.device import DwmacIntel, Eqos, StmmacPci

__all__ = ["DwmacIntel", "Eqos", "StmmacPci"]
