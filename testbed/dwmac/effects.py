"""What reads and writes of registers do besides: each effect that :mod:`testbed.dwmac.registers` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.dwmac.descriptors import Ring
from testbed.dwmac.registers import CHANNELS, Bits
from testbed.vfio_user import DeviceEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.dwmac.device import Eqos
    from testbed.dwmac.registers import Register

    Read = Callable[[Eqos, Register], int]
    Write = Callable[[Eqos, Register, int], None]

__all__ = ["READS", "WRITES"]

READS: dict[str, Read] = {}
"""What a read returns instead of the register's content."""
WRITES: dict[str, Write] = {}
"""What a write does instead of changing the content alone."""
_MDIO_DATA, _MTL_STATUS = 0x204 >> 2, 0xC20 >> 2
_OVERFLOW = 1 << 16


def _on_read(effect: str) -> Callable[[Read], Read]:
    def register(function: Read) -> Read:
        READS[effect] = function
        return function

    return register


def _on_write(effect: str) -> Callable[[Write], Write]:
    def register(function: Write) -> Write:
        WRITES[effect] = function
        return function

    return register


@_on_read("interrupt_status")
def _read_interrupt_status(device: Eqos, _register: Register) -> int:
    return device.core.interrupts.summary()


@_on_read("time_seconds")
def _read_seconds(device: Eqos, _register: Register) -> int:
    return device.core.clock.now()[0]


@_on_read("time_nanoseconds")
def _read_nanoseconds(device: Eqos, _register: Register) -> int:
    return device.core.clock.now()[1]


@_on_read("current_tx")
def _read_current_tx(device: Eqos, register: Register) -> int:
    return device.transmitters[_channel_of(register)].current_address()


@_on_read("current_rx")
def _read_current_rx(device: Eqos, register: Register) -> int:
    return device.mac.receivers[_channel_of(register)].current_address()


@_on_read("missed_count")
def _read_missed(device: Eqos, register: Register) -> int:
    receiver = device.mac.receivers[_channel_of(register)]
    missed, receiver.missed = receiver.missed, 0
    return min(missed, 0x7FF) | (1 << 15 if missed > 0x7FF else 0)


@_on_read("rx_debug")
def _read_rx_debug(device: Eqos, register: Register) -> int:
    receiver = device.mac.receivers[(register.offset - 0xD00) // 0x40]
    return min(len(receiver.waiting), 0x3FFF) << 16 | (2 << 4 if receiver.waiting else 0)


@_on_write("mode")
def _write_mode(device: Eqos, register: Register, value: int) -> None:
    if value & Bits.MODE_SWR:
        device.software_reset()
        return
    device.registers.write(register, value)
    for number in range(CHANNELS):
        device.core.interrupts.update(number)


@_on_write("configuration")
def _write_configuration(device: Eqos, register: Register, value: int) -> None:
    device.registers.write(register, value)
    device.schedule_rx()
    for number in range(CHANNELS):
        device.schedule_tx(number)


@_on_write("filter")
def _write_filter(device: Eqos, register: Register, value: int) -> None:
    device.registers.write(register, value)
    device.core.filters.changed()


@_on_write("vlan_tag")
def _write_vlan_tag(device: Eqos, register: Register, value: int) -> None:
    device.registers.write(register, value)
    if value & Bits.VLAN_OB:
        device.core.filters.access_vlans(value)


@_on_write("mdio")
def _write_mdio(device: Eqos, register: Register, value: int) -> None:
    device.registers.write(register, value)
    if value & Bits.MDIO_GB:
        words = device.registers.words
        words[_MDIO_DATA] = device.core.phy.access(value, words[_MDIO_DATA])


@_on_write("flow")
def _write_flow(device: Eqos, register: Register, value: int) -> None:
    if value & Bits.FLOW_FCB:
        device.core.counters.add("TX_PAUSE")
    device.registers.write(register, value & ~Bits.FLOW_FCB)


@_on_write("mac_interrupt")
def _write_mac_interrupt(device: Eqos, register: Register, value: int) -> None:
    device.registers.write(register, value)
    device.core.interrupts.update_common()


@_on_write("queue_interrupt")
def _write_queue_interrupt(device: Eqos, register: Register, value: int) -> None:
    words, number = device.registers.words, (register.offset - 0xD00) // 0x40
    kept = words[register.offset >> 2] & _OVERFLOW & ~value
    words[register.offset >> 2] = value & ~_OVERFLOW | kept
    if not kept:
        words[_MTL_STATUS] &= ~(1 << number)
    device.core.interrupts.update_common()


@_on_write("mmc_control")
def _write_mmc_control(device: Eqos, register: Register, value: int) -> None:
    device.registers.write(register, value)
    device.core.counters.control(value)


@_on_write("time_control")
def _write_time_control(device: Eqos, register: Register, value: int) -> None:
    device.core.clock.rebase()
    device.registers.write(register, value)
    device.core.clock.control(value)


@_on_write("time_rate")
def _write_time_rate(device: Eqos, register: Register, value: int) -> None:
    device.core.clock.rebase()
    device.registers.write(register, value)


@_on_write("tx_control")
def _write_tx_control(device: Eqos, register: Register, value: int) -> None:
    device.registers.write(register, value)
    device.schedule_tx(_channel_of(register))


@_on_write("rx_control")
def _write_rx_control(device: Eqos, register: Register, value: int) -> None:
    device.registers.write(register, value & ~Bits.RX_RPF)
    device.schedule_rx()


@_on_write("tx_base")
def _write_tx_base(device: Eqos, register: Register, value: int) -> None:
    device.registers.write(register, value)
    device.transmitters[_channel_of(register)].rewind()


@_on_write("rx_base")
def _write_rx_base(device: Eqos, register: Register, value: int) -> None:
    device.registers.write(register, value)
    device.mac.receivers[_channel_of(register)].rewind()


@_on_write("tx_tail")
def _write_tx_tail(device: Eqos, register: Register, value: int) -> None:
    device.registers.write(register, value)
    number = _channel_of(register)
    index = Ring.transmit(device.registers.words, number).index(value)
    device.host.record(DeviceEvent.TAIL, number, 1, index, value)
    device.schedule_tx(number)


@_on_write("rx_tail")
def _write_rx_tail(device: Eqos, register: Register, value: int) -> None:
    device.registers.write(register, value)
    number = _channel_of(register)
    index = Ring.receive(device.registers.words, number).index(value)
    device.host.record(DeviceEvent.TAIL, number, 0, index, value)
    device.mac.receivers[number].tail(value)
    device.schedule_rx()


@_on_write("enable")
def _write_enable(device: Eqos, register: Register, value: int) -> None:
    before = device.registers.words[register.offset >> 2]
    device.registers.write(register, value)
    device.core.interrupts.enable(_channel_of(register), before, value)


@_on_write("status")
def _write_status(device: Eqos, register: Register, value: int) -> None:
    device.core.interrupts.clear(_channel_of(register), value)


def _channel_of(register: Register) -> int:
    return (register.offset - 0x1100) // 0x80
