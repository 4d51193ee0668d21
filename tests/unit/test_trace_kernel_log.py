"""Splats: what must be found in a kernel log, and what must not."""

from __future__ import annotations

import pytest
from traces import events_of, fill

from testbed.trace import find_splats, with_splat_rows
from testbed.trace.events import Kind

SPLATS = {
    "WARN": "WARNING: CPU: 0 PID: 12 at net/core/dev.c:6651 __napi_poll+0x1c0/0x2a0",
    "WARN in newer kernels": "WARNING: net/core/page_pool.c:801 at page_pool_put+0x22/0x60, CPU#0: x/1",
    "BUG": "BUG: unable to handle page fault for address: ffffc90000a1b000",
    "null": "BUG: kernel NULL pointer dereference, address: 0000000000000018",
    "BUG_ON": "kernel BUG at drivers/net/ethernet/intel/igb/igb_main.c:1234!",
    "oops": "Oops: 0002 [#1] SMP PTI",
    "newer oops": "Oops: Oops: 0000 [#1] SMP NOPTI",
    "protection": "general protection fault, probably for non-canonical address 0xdead: 0000 [#1]",
    "newer protection": "Oops: general protection fault, maybe for address 0xdead: 0000 [#1] SMP",
    "KASAN": "BUG: KASAN: slab-use-after-free in igb_clean_rx_irq_zc+0x1f/0x400",
    "KCSAN": "BUG: KCSAN: data-race in napi_schedule_prep / napi_complete_done",
    "UBSAN": "UBSAN: array-index-out-of-bounds in drivers/net/ethernet/intel/igb/igb_xsk.c:10:2",
    "lockdep": "WARNING: possible circular locking dependency detected",
    "lockdep irq": "WARNING: inconsistent lock state",
    "RCU use": "WARNING: suspicious RCU usage",
    "RCU stall": "rcu: INFO: rcu_preempt self-detected stall on CPU",
    "RCU stall elsewhere": "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
    "hung task": "INFO: task agent:1 blocked for more than 120 seconds.",
    "soft lockup": "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [ksoftirqd/0:15]",
    "hard lockup": "watchdog: CPU0: Watchdog detected hard LOCKUP on cpu 0",
    "workqueue": "BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 32s!",
    "atomic": "BUG: scheduling while atomic: swapper/0/0/0x00000102",
    "sleeping": "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:283",
    "budget": "e1000e 0000:00:01.0 eth0: NAPI poll function e1000e_poll+0x0/0x330 [e1000e] returned 70, "
    "exceeding its budget of 64.",
    "older budget": "NAPI poll function igb_poll+0x0/0x120 [igb] returned 65, exceeding its budget of 64.",
    "rescheduled": "eth0: Budget exhausted after napi rescheduled",
    "flush": "Missing xdp_do_flush() invocation after NAPI by igb_poll+0x0/0x120 [igb]",
    "Tx timeout": "igb 0000:00:03.0 eth0: NETDEV WATCHDOG: CPU: 0: transmit queue 0 timed out 5008 ms",
    "older Tx timeout": "NETDEV WATCHDOG: eth0 (igb): transmit queue 0 timed out",
    "Tx hang": "igb 0000:00:03.0: Detected Tx Unit Hang",
    "refcount": "refcount_t: underflow; use-after-free.",
    "list": "list_del corruption. prev->next should be ffff8880, but was dead0000",
    "panic": "Kernel panic - not syncing: Fatal exception in interrupt",
    "bad page": "BUG: Bad page state in process swapper/0  pfn:12345",
    "spurious irq": 'irq 25: nobody cared (try booting with the "irqpoll" option)',
    "page pool": "page_pool_release_retry() stalled pool shutdown: id 5, 64 inflight 60 sec",
}
HARMLESS = [
    "Command line: console=ttyS0 oops=panic panic=-1 hung_task_panic=1 nokaslr",
    "Kernel command line: console=ttyS0 oops=panic panic=-1 WARNING BUG:",
    "rcu: Preemptible hierarchical RCU implementation.",
    "rcu: RCU calculated value of scheduler-enlistment delay is 25 jiffies.",
    "rcu: \tRCU debug extended QS entry/exit.",
    "NMI watchdog: Perf NMI watchdog permanently disabled",
    "watchdog: Delayed init of the lockup detector failed: -19",
    "watchdog: Hard watchdog permanently disabled",
    "x86/fpu: Supporting XSAVE feature 0x001: 'x87 floating point registers'",
    "Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible!",
    "MDS: Vulnerable: Clear CPU buffers attempted, no microcode",
    "igb 0000:00:03.0: added PHC on eth0",
    "igb 0000:00:03.0 eth0: igb: eth0 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: RX/TX",
    "igb: loading out-of-tree module taints kernel.",
    "igb: module verification failed: signature and/or required key missing - tainting kernel",
    "process '/init' started with executable stack",
    "Warning: unable to open an initial console.",
    "ACPI: PM: (supports S0 S3 S4 S5)",
    "ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PCI0], AE_NOT_FOUND (20240827/psargs-332)",
    "pci 0000:00:1f.0: quirk: [io  0x0600-0x067f] claimed by ICH6 ACPI/GPIO/TCO",
    "clocksource: tsc: mask: 0xffffffffffffffff max_cycles: 0x240939f1bb2, max_idle_ns: 440795263295 ns",
    "kfence: initialized - using 2097152 bytes for 255 objects",
    "Freeing unused kernel image (text/rodata gap) memory: 2044K",
    "BUG_ON is configured",
    "list_sort_test: start testing list_sort()",
]


def stamped(*texts: str) -> list[str]:
    return [f"[    1.{number:06}] {text}" for number, text in enumerate(texts)]


@pytest.mark.parametrize("text", SPLATS.values(), ids=SPLATS.keys())
def test_a_splat_is_found_with_its_line_and_time(text) -> None:
    splats = find_splats(stamped("igb: eth0 NIC Link is Up", text, "eth0: something else"))
    assert [(splat.line, splat.time_ns, splat.headline) for splat in splats] == [(1, 1_000_001_000, text)]


@pytest.mark.parametrize("text", HARMLESS)
def test_a_harmless_line_is_none(text) -> None:
    assert find_splats(stamped(text)) == []


@pytest.mark.parametrize(
    "prefix", ["", "<4>[    2.000003] ", "[    2.000003][    T1] ", "[    2.000003][   C0] ", "\r"]
)
def test_any_form_of_the_time_stamp_is_understood(prefix) -> None:
    assert (
        len(find_splats([f"{prefix}BUG: kernel NULL pointer dereference, address: 0000000000000018\r"])) == 1
    )


def test_what_lies_within_a_splat_is_part_of_it() -> None:
    lines = stamped(
        "------------[ cut here ]------------",
        "WARNING: CPU: 0 PID: 12 at net/core/dev.c:6651 __napi_poll+0x1c0/0x2a0",
        "Call Trace:",
        "BUG: something the dump quotes",
        "---[ end trace 0000000000000000 ]---",
        "BUG: kernel NULL pointer dereference, address: 0000000000000018",
        "Oops: 0002 [#1] SMP PTI",
        "RIP: 0010:igb_poll+0x12/0x300 [igb]",
        "---[ end trace 0000000000000000 ]---",
    )
    splats = find_splats(lines)
    assert [splat.line for splat in splats] == [1, 5]
    assert [splat.function for splat in splats] == ["__napi_poll+0x1c0", "igb_poll+0x12"]


def test_two_splats_without_end_marks_are_two() -> None:
    lines = stamped(
        "rcu: INFO: rcu_preempt self-detected stall on CPU",
        "INFO: task agent:1 blocked for more than 120 seconds.",
    )
    assert [splat.what for splat in find_splats(lines)] == ["RCU stall", "hung task"]


def test_the_essence_names_the_function_once() -> None:
    warn, bug = find_splats(
        stamped(
            SPLATS["KASAN"], "---[ end trace 0 ]---", SPLATS["null"], "RIP: 0010:igb_poll+0x12/0x300 [igb]"
        )
    )
    assert str(warn) == SPLATS["KASAN"]
    assert str(bug) == f"{SPLATS['null']} in igb_poll+0x12"


def test_the_words_of_a_warning_are_part_of_its_essence() -> None:
    cut = "------------[ cut here ]------------"
    (plain,) = find_splats(stamped(cut, SPLATS["WARN"]))
    (worded,) = find_splats(stamped(cut, "igb: unexpected ring state", SPLATS["WARN"]))
    assert str(plain) == SPLATS["WARN"]
    assert str(worded) == f"{SPLATS['WARN']}: igb: unexpected ring state"


def test_splats_become_rows_behind_the_others() -> None:
    events = with_splat_rows(events_of(fill(1)), stamped("fine", SPLATS["BUG"]))
    assert events["kind"].tolist() == [Kind.FILL, Kind.LOG]
    assert events["subject"][1] == 1
    assert events["time_ns"][1] == 1_000_001_000


def test_a_log_of_the_run_alone_may_be_empty() -> None:
    assert len(with_splat_rows(events_of(fill(1)), [])) == 1
