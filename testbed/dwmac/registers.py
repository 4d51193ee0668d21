"""The registers of the core, declared: where each lies, what a read and a write do, what it holds after reset.

Offsets and names are those of the DesignWare Cores Ethernet Quality-of-Service databook, version 5.10a; where that is
not at hand, the kernel's dwmac4.h, dwmac4_dma.h, stmmac_ptp.h and mmc_core.c say the same.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = [
    "BAR_BYTES",
    "CHANNELS",
    "REGISTERS",
    "Access",
    "Bits",
    "Register",
    "channel",
    "queue",
]

BAR_BYTES = 0x4000
CHANNELS = 4
MAC_ADDRESSES = 32
VLAN_FILTERS = 4


class Access(enum.Enum):
    """What the guest can do to a register."""

    READ_WRITE = "rw"
    READ_ONLY = "ro"
    CLEAR_BY_ONE = "w1c"  # writing 1 clears a bit
    COUNTER = "rc"  # read-only; a read clears it when MMC_CONTROL says so


@dataclass(frozen=True)
class Register:
    """One register of 32 bits.

    :param self_clearing: bits that are 0 again when what they asked for is done, which is at once.
    :param effect: the name of what the device does besides, by :mod:`testbed.dwmac.device`; none when empty.
    """

    name: str
    offset: int
    access: Access = Access.READ_WRITE
    reset: int = 0
    self_clearing: int = 0
    effect: str = ""


class Bits(enum.IntFlag):
    """Bits that the model looks at; the prefix names the register."""

    CONFIG_RE = 1 << 0
    CONFIG_TE = 1 << 1
    CONFIG_LM = 1 << 12
    CONFIG_JE = 1 << 16
    CONFIG_ACS = 1 << 20
    CONFIG_CST = 1 << 21
    CONFIG_IPC = 1 << 27
    FILTER_PR = 1 << 0
    FILTER_HUC = 1 << 1
    FILTER_HMC = 1 << 2
    FILTER_DAIF = 1 << 3
    FILTER_PM = 1 << 4
    FILTER_DBF = 1 << 5
    FILTER_HPF = 1 << 10
    FILTER_VTFE = 1 << 16
    FILTER_RA = 1 << 31
    VLAN_OB = 1 << 0
    VLAN_CT = 1 << 1
    VLAN_VTIM = 1 << 17
    VLAN_EVLRXS = 1 << 24
    VLAN_VTHM = 1 << 25
    MDIO_GB = 1 << 0
    MDIO_C45E = 1 << 1
    FLOW_RFE = 1 << 0
    FLOW_TFE = 1 << 1
    FLOW_FCB = 1 << 0
    MODE_SWR = 1 << 0
    TX_ST = 1 << 0
    TX_TSE = 1 << 12
    TX_EDSE = 1 << 28
    RX_SR = 1 << 0
    RX_RPF = 1 << 31
    TIME_ENA = 1 << 0
    TIME_FINE = 1 << 1
    TIME_INIT = 1 << 2
    TIME_UPDT = 1 << 3
    TIME_ADDREG = 1 << 5
    TIME_ENALL = 1 << 8
    TIME_DECIMAL = 1 << 9
    TIME_V2 = 1 << 10
    TIME_ETHERNET = 1 << 11
    TIME_IPV6 = 1 << 12
    TIME_IPV4 = 1 << 13
    TIME_EVENT = 1 << 14
    TIME_MASTER = 1 << 15
    MMC_RESET = 1 << 0
    MMC_RESET_ON_READ = 1 << 2
    MMC_FREEZE = 1 << 3


RW, RO, W1C, RC = Access.READ_WRITE, Access.READ_ONLY, Access.CLEAR_BY_ONE, Access.COUNTER


def channel(number: int) -> int:
    """Return where the registers of a DMA channel begin."""
    return 0x1100 + 0x80 * number


def queue(number: int) -> int:
    """Return where the registers of an MTL queue begin."""
    return 0xD00 + 0x40 * number


# What the core can do, in the registers from which the driver learns it: 10, 100 and 1000 Mbit/s, hash filter of VLANs,
# MDIO, MMC, IEEE 1588, checksums both ways, one perfect address and 31 more, insertion of addresses and tags;
_FEATURE0 = 0x3 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 12 | 1 << 14 | 1 << 16 | (MAC_ADDRESSES - 1) << 18 | 1 << 27
# 16 KiB of FIFO in each direction, 40 address bits, DCB, TSO, a hash table of 64 bits for multicast;
_FEATURE1 = 7 | 7 << 6 | 1 << 14 | 1 << 16 | 1 << 18 | 1 << 24
# as many queues as channels, each way; no auxiliary snapshots, no PPS;
_FEATURE2 = (CHANNELS - 1) * (1 | 1 << 6 | 1 << 12 | 1 << 18)
# four VLAN filters; nothing of time-sensitive networking.
_FEATURE3 = 1


def _mac() -> list[Register]:
    plain = {
        "EXT_CONFIGURATION": 0x04,
        "WATCHDOG_TIMEOUT": 0x0C,
        "VLAN_TAG_DATA": 0x54,
        "VLAN_HASH_TABLE": 0x58,
        "VLAN_INCL": 0x60,
        "INNER_VLAN_INCL": 0x64,
        "TXQ_PRTY_MAP0": 0x98,
        "RXQ_CTRL4": 0x94,
        "RXQ_CTRL0": 0xA0,
        "RXQ_CTRL1": 0xA4,
        "RXQ_CTRL2": 0xA8,
        "PMT_CONTROL_STATUS": 0xC0,
        "RWK_PACKET_FILTER": 0xC4,
        "LPI_CONTROL_STATUS": 0xD0,
        "LPI_TIMERS_CONTROL": 0xD4,
        "LPI_ENTRY_TIMER": 0xD8,
        "1US_TIC_COUNTER": 0xDC,
        "PHYIF_CONTROL_STATUS": 0xF8,
        "MDIO_DATA": 0x204,
        "GPIO_CONTROL": 0x208,
        "GPIO_STATUS": 0x20C,
        "ARP_ADDRESS": 0x210,
        "EXT_CFG1": 0x238,
    }
    registers = [Register(f"MAC_{name}", offset) for name, offset in plain.items()]
    registers += [
        Register("MAC_CONFIGURATION", 0x00, effect="configuration"),
        Register("MAC_PACKET_FILTER", 0x08, effect="filter"),
        Register("MAC_HASH_TABLE_REG0", 0x10, effect="filter"),
        Register("MAC_HASH_TABLE_REG1", 0x14, effect="filter"),
        Register("MAC_VLAN_TAG", 0x50, self_clearing=Bits.VLAN_OB, effect="vlan_tag"),
        Register("MAC_RX_FLOW_CTRL", 0x90),
        Register("MAC_INTERRUPT_STATUS", 0xB0, RO),
        Register("MAC_INTERRUPT_ENABLE", 0xB4, effect="mac_interrupt"),
        Register("MAC_VERSION", 0x110, RO, 0x1051),
        Register("MAC_DEBUG", 0x114, RO),
        Register("MAC_HW_FEATURE0", 0x11C, RO, _FEATURE0),
        Register("MAC_HW_FEATURE1", 0x120, RO, _FEATURE1),
        Register("MAC_HW_FEATURE2", 0x124, RO, _FEATURE2),
        Register("MAC_HW_FEATURE3", 0x128, RO, _FEATURE3),
        Register("MAC_MDIO_ADDRESS", 0x200, self_clearing=Bits.MDIO_GB, effect="mdio"),
    ]
    for index in range(CHANNELS):
        registers.append(Register(f"MAC_Q{index}_TX_FLOW_CTRL", 0x70 + 4 * index, effect="flow"))
    for index in range(MAC_ADDRESSES):
        high, low = 0x300 + 8 * index, 0x304 + 8 * index
        reset = 0x8000FFFF if index == 0 else 0xFFFF
        registers.append(Register(f"MAC_ADDRESS{index}_HIGH", high, reset=reset, effect="filter"))
        registers.append(Register(f"MAC_ADDRESS{index}_LOW", low, reset=0xFFFFFFFF, effect="filter"))
    return registers


_MMC_TX = [
    "OCTETS_GB",
    "PACKETS_GB",
    "BROADCAST_G",
    "MULTICAST_G",
    "64_GB",
    "65_127_GB",
    "128_255_GB",
    "256_511_GB",
    "512_1023_GB",
    "1024_MAX_GB",
    "UNICAST_GB",
    "MULTICAST_GB",
    "BROADCAST_GB",
    "UNDERFLOW",
    "SINGLE_COLLISION",
    "MULTIPLE_COLLISION",
    "DEFERRED",
    "LATE_COLLISION",
    "EXCESSIVE_COLLISION",
    "CARRIER_ERROR",
    "OCTETS_G",
    "PACKETS_G",
    "EXCESSIVE_DEFERRAL",
    "PAUSE",
    "VLAN_G",
    "OVERSIZE_G",
]
_MMC_RX = [
    "PACKETS_GB",
    "OCTETS_GB",
    "OCTETS_G",
    "BROADCAST_G",
    "MULTICAST_G",
    "CRC_ERROR",
    "ALIGNMENT_ERROR",
    "RUNT_ERROR",
    "JABBER_ERROR",
    "UNDERSIZE_G",
    "OVERSIZE_G",
    "64_GB",
    "65_127_GB",
    "128_255_GB",
    "256_511_GB",
    "512_1023_GB",
    "1024_MAX_GB",
    "UNICAST_G",
    "LENGTH_ERROR",
    "OUT_OF_RANGE",
    "PAUSE",
    "FIFO_OVERFLOW",
    "VLAN_GB",
    "WATCHDOG_ERROR",
    "RECEIVE_ERROR",
    "CONTROL_G",
]
_MMC_IPC = [
    "IPV4_GOOD",
    "IPV4_HEADER_ERROR",
    "IPV4_NO_PAYLOAD",
    "IPV4_FRAGMENTED",
    "IPV4_UDP_DISABLED",
    "IPV6_GOOD",
    "IPV6_HEADER_ERROR",
    "IPV6_NO_PAYLOAD",
    "UDP_GOOD",
    "UDP_ERROR",
    "TCP_GOOD",
    "TCP_ERROR",
    "ICMP_GOOD",
    "ICMP_ERROR",
]


def _counters() -> list[Register]:
    registers = [
        Register("MMC_CONTROL", 0x700, self_clearing=0x11, effect="mmc_control"),
        Register("MMC_RX_INTERRUPT", 0x704, RO),
        Register("MMC_TX_INTERRUPT", 0x708, RO),
        Register("MMC_RX_INTERRUPT_MASK", 0x70C),
        Register("MMC_TX_INTERRUPT_MASK", 0x710),
        Register("MMC_IPC_RX_INTERRUPT_MASK", 0x800),
        Register("MMC_IPC_RX_INTERRUPT", 0x808, RO),
    ]
    for names, first, direction in ((_MMC_TX, 0x714, "TX"), (_MMC_RX, 0x780, "RX"), (_MMC_IPC, 0x810, "RX")):
        registers += [
            Register(f"MMC_{direction}_{name}", first + 4 * at, RC) for at, name in enumerate(names)
        ]
    return registers


def _timestamps() -> list[Register]:
    commands = Bits.TIME_INIT | Bits.TIME_UPDT | Bits.TIME_ADDREG
    plain = {
        "SYSTEM_TIME_SECONDS_UPDATE": 0xB10,
        "SYSTEM_TIME_NANOSECONDS_UPDATE": 0xB14,
        "AUXILIARY_CONTROL": 0xB40,
        "TIMESTAMP_INGRESS_CORR_NANOSECOND": 0xB58,
        "TIMESTAMP_EGRESS_CORR_NANOSECOND": 0xB5C,
        "TIMESTAMP_INGRESS_CORR_SUBNANOSEC": 0xB60,
        "TIMESTAMP_EGRESS_CORR_SUBNANOSEC": 0xB64,
        "PPS_CONTROL": 0xB70,
    }
    return [
        Register("MAC_TIMESTAMP_CONTROL", 0xB00, reset=0x2000, self_clearing=commands, effect="time_control"),
        Register("MAC_SUB_SECOND_INCREMENT", 0xB04, effect="time_rate"),
        Register("MAC_SYSTEM_TIME_SECONDS", 0xB08, RO, effect="time_seconds"),
        Register("MAC_SYSTEM_TIME_NANOSECONDS", 0xB0C, RO, effect="time_nanoseconds"),
        Register("MAC_TIMESTAMP_ADDEND", 0xB18),
        Register("MAC_TIMESTAMP_STATUS", 0xB20, RO),
        Register("MAC_TIMESTAMP_INGRESS_LATENCY", 0xB68, RO),
        Register("MAC_TIMESTAMP_EGRESS_LATENCY", 0xB6C, RO),
        *(Register(f"MAC_{name}", offset) for name, offset in plain.items()),
    ]


def _mtl() -> list[Register]:
    registers = [
        Register("MTL_OPERATION_MODE", 0xC00),
        Register("MTL_INTERRUPT_STATUS", 0xC20, RO),
        Register("MTL_RXQ_DMA_MAP0", 0xC30),
    ]
    for index in range(CHANNELS):
        at, name = queue(index), f"MTL_Q{index}"
        registers += [
            Register(f"{name}_TX_OPERATION_MODE", at, self_clearing=1),
            Register(f"{name}_TX_UNDERFLOW", at + 0x04, RO),
            Register(f"{name}_TX_DEBUG", at + 0x08, RO),
            Register(f"{name}_ETS_CONTROL", at + 0x10),
            Register(f"{name}_ETS_STATUS", at + 0x14, RO),
            Register(f"{name}_QUANTUM_WEIGHT", at + 0x18),
            Register(f"{name}_SENDSLOPECREDIT", at + 0x1C),
            Register(f"{name}_HICREDIT", at + 0x20),
            Register(f"{name}_LOCREDIT", at + 0x24),
            Register(f"{name}_INTERRUPT_CONTROL_STATUS", at + 0x2C, effect="queue_interrupt"),
            Register(f"{name}_RX_OPERATION_MODE", at + 0x30),
            Register(f"{name}_RX_MISSED_PACKET_OVERFLOW_CNT", at + 0x34, RO, effect="overflow_count"),
            Register(f"{name}_RX_DEBUG", at + 0x38, RO, effect="rx_debug"),
        ]
    return registers


def _dma() -> list[Register]:
    registers = [
        Register("DMA_MODE", 0x1000, self_clearing=Bits.MODE_SWR, effect="mode"),
        Register("DMA_SYSBUS_MODE", 0x1004),
        Register("DMA_INTERRUPT_STATUS", 0x1008, RO, effect="interrupt_status"),
        Register("DMA_DEBUG_STATUS0", 0x100C, RO),
        Register("DMA_TBS_CTRL", 0x1050),
    ]
    for index in range(CHANNELS):
        at, name = channel(index), f"DMA_CH{index}"
        registers += [
            Register(f"{name}_CONTROL", at),
            Register(f"{name}_TX_CONTROL", at + 0x04, effect="tx_control"),
            Register(f"{name}_RX_CONTROL", at + 0x08, effect="rx_control"),
            Register(f"{name}_TXDESC_LIST_HADDRESS", at + 0x10, effect="tx_ring"),
            Register(f"{name}_TXDESC_LIST_ADDRESS", at + 0x14, effect="tx_base"),
            Register(f"{name}_RXDESC_LIST_HADDRESS", at + 0x18, effect="rx_ring"),
            Register(f"{name}_RXDESC_LIST_ADDRESS", at + 0x1C, effect="rx_base"),
            Register(f"{name}_TXDESC_TAIL_POINTER", at + 0x20, effect="tx_tail"),
            Register(f"{name}_RXDESC_TAIL_POINTER", at + 0x28, effect="rx_tail"),
            Register(f"{name}_TXDESC_RING_LENGTH", at + 0x2C, effect="tx_ring"),
            Register(f"{name}_RXDESC_RING_LENGTH", at + 0x30, effect="rx_ring"),
            Register(f"{name}_INTERRUPT_ENABLE", at + 0x34, effect="enable"),
            Register(f"{name}_RX_INTERRUPT_WATCHDOG_TIMER", at + 0x38),
            Register(f"{name}_SLOT_FUNCTION_CONTROL_STATUS", at + 0x3C),
            Register(f"{name}_CURRENT_APP_TXDESC", at + 0x44, RO, effect="current_tx"),
            Register(f"{name}_CURRENT_APP_RXDESC", at + 0x4C, RO, effect="current_rx"),
            Register(f"{name}_CURRENT_APP_TXBUFFER_H", at + 0x50, RO),
            Register(f"{name}_CURRENT_APP_TXBUFFER", at + 0x54, RO),
            Register(f"{name}_CURRENT_APP_RXBUFFER_H", at + 0x58, RO),
            Register(f"{name}_CURRENT_APP_RXBUFFER", at + 0x5C, RO),
            Register(f"{name}_STATUS", at + 0x60, W1C, effect="status"),
            Register(f"{name}_MISS_FRAME_CNT", at + 0x64, RO, effect="missed_count"),
        ]
    return registers


REGISTERS: dict[str, Register] = {
    register.name: register for register in [*_mac(), *_counters(), *_timestamps(), *_mtl(), *_dma()]
}
"""Every register by its name; what lies between them reads 0 and takes nothing."""
