/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The agent: the guest's init. It owns the AF_XDP socket and runs programs of fixed-size steps. */
#ifndef TESTBED_AGENT_H
#define TESTBED_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include "protocol.h"

/* boot.c: the guest before the first program */
void boot_mount(void);
void boot_load_modules(void);
int boot_netconsole(bool on);
void boot_interface(void);

/* interface.c: the NIC under test */
extern const char interface_name[];
unsigned int interface_index(void);
void interface_mac(__u8 mac[6]);
void interface_driver(char *name, size_t bytes);
int interface_up(void);
int interface_set_up(bool up);
int interface_wait_for_carrier(void);
int interface_set_rings(__u32 rx, __u32 tx);
int interface_set(enum tb_setting setting, __u64 value);
int interface_set_mtu(__u32 bytes);
int interface_set_coalesce(__u32 rx_usecs, __u32 tx_usecs, const __u32 *tx_frames);
int interface_set_threaded(bool on);
int interface_set_irq_cpu(__u32 cpu, const __u8 marks[TB_MAX_IRQS]);
int interface_stack_send(__u32 count, __u32 bytes);
__u64 interface_counter(enum tb_counter counter);
void interface_mark_queue_irqs(__u8 marks[TB_MAX_IRQS]);

/* channel.c: messages, the mailbox, and the machine's stop */
void channel_open(void);
void channel_send(enum tb_message type, const void *records, __u32 count, __u32 record_bytes);
const void *channel_mailbox(__u32 *pages);
const struct tb_step *channel_program(__u32 *count);
const void *channel_payload(void);
__u32 channel_payload_bytes(void);
void channel_stop_machine(void);
void channel_stop_ready(void);
void channel_barrier(const struct tb_barrier *barrier, bool frames);
void channel_device_barrier(void);
_Noreturn void channel_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* clock.c: the program's clock, in nanoseconds of CLOCK_MONOTONIC */
#define CLOCK_GRID_NS 50000
__u64 clock_now_ns(void);
void clock_open(void);
bool clock_is_real(void);
void clock_start(void);
__u64 clock_program_ns(void);
void clock_sleep_until(__u64 time_ns);
void clock_sleep_ns(__u64 duration_ns);
void clock_spin_until(__u64 time_ns);
void clock_align(__u64 time_ns);
void clock_hit(__u64 time_ns);
void clock_realign(__u64 step_ns);

/* memory.c: where a range of our memory lies in the guest's */
void memory_addresses(const void *start, __u32 pages, __u64 *addresses);

/* device.c: a device model that lives in the guest's time */
bool device_follows(void);
void device_serve_until(__u64 time_ns);

/* trace.c: the observer and the one table of events */
void trace_load(void);
void trace_start(void);
void trace_stop(void);
const struct tb_event *trace_events(void);
const struct tb_position *trace_position(void);
void trace_tell_time(__u64 now_ns);
__u32 trace_capacity(void);
void trace_record(enum tb_event_kind kind, __u32 subject, __s32 a, __s32 b, __u64 c);
__u64 trace_last_irq_ns(void);
const __u8 *trace_queue_irqs(void);
int trace_attach_xdp(__u32 action, enum tb_xdp_mode mode);
int trace_detach_xdp(void);
int trace_add_socket(__u32 queue, int fd);
void trace_remove_socket(__u32 queue);

/* frame.c: numbered frames */
enum frame_state { FRAME_DAMAGED = -1, FRAME_FOREIGN = 0, FRAME_INTACT = 1 };
void frame_open(void);
void frame_write(void *frame, __u32 bytes, __u32 sequence);
enum frame_state frame_read(const void *frame, __u32 bytes, __u32 *sequence);

/* ledger.c: who owns which chunk */
int ledger_open(__u32 chunks);
void ledger_close(void);
__u32 ledger_free_chunks(void);
bool ledger_take(__u32 *chunk);
enum tb_owner ledger_owner(__u32 chunk);
void ledger_set_owner(__u32 chunk, enum tb_owner owner);
void ledger_deliver(__u32 chunk, __u16 offset, __u32 bytes, enum frame_state state, __u32 sequence);
void ledger_check_held(__u32 chunk, const __u8 *data);
void ledger_complete(__u32 chunk);
void ledger_report(__u32 fill_entries);
void ledger_violation(__u32 chunk, enum tb_ledger what, __u64 sequence);

/* xsk.c: the AF_XDP socket. All return a number of entries or -errno. */
int xsk_umem(__u32 chunks, __u32 chunk_bytes, __u32 fill_entries, __u32 completion_entries);
int xsk_bind(__u32 queue, __u16 flags, __u32 rx_entries, __u32 tx_entries, __u32 busy_budget);
int xsk_close(void);
int xsk_fill(__u32 count);
int xsk_rx_drain(__u32 count);
int xsk_tx(__u32 count, __u32 bytes);
int xsk_comp_drain(__u32 count);
int xsk_kick_tx(void);
int xsk_wakeup_rx(void);
int xsk_wakeup_tx(void);
int xsk_snapshot(void);

/* exec.c: a program of the user's. Both return -errno, exec_store() the number of bytes. */
int exec_store(const struct tb_step *step);
int exec_run(bool terminal);

/* steps.c */
__u32 steps_run(const struct tb_step *steps, __u32 count, int *error);

#endif
