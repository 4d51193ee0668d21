// SPDX-License-Identifier: GPL-2.0-or-later
/* What each kind of step does. A step returns a count, or -errno, which ends the program. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include "agent.h"

typedef int step_function(const struct tb_step *step);

static __u32 current; /* index of the step that runs */

static __s64 irq_cpu = -1; /* of the NIC's interrupts; -1: the kernel's choice */

/* After a change that makes the driver start anew: its interrupts may have other numbers, and its link comes late. */
static int settled(int result)
{
	int error = result < 0 ? result : interface_wait_for_carrier();
	const __u8 *irqs = trace_queue_irqs();

	if (!error && irq_cpu >= 0)
		error = interface_set_irq_cpu(irq_cpu, irqs);
	return error < 0 ? error : result;
}

static int step_rings(const struct tb_step *step)
{
	return settled(interface_set_rings(step->a, step->b));
}

static int step_umem(const struct tb_step *step)
{
	return xsk_umem(step->count, step->a, step->b, step->c);
}

static int step_xdp_attach(const struct tb_step *step)
{
	return settled(trace_attach_xdp(step->a, step->b));
}

static int step_xdp_detach(const struct tb_step *step)
{
	return settled(trace_detach_xdp());
}

static int step_bind(const struct tb_step *step)
{
	return settled(xsk_bind(step->queue, step->a, step->b, step->c, step->count));
}

static int step_unbind(const struct tb_step *step)
{
	return xsk_close();
}

static int step_fill(const struct tb_step *step)
{
	return xsk_fill(step->count);
}

static int step_rx_drain(const struct tb_step *step)
{
	return xsk_rx_drain(step->count);
}

static int step_tx(const struct tb_step *step)
{
	return xsk_tx(step->count, step->a);
}

static int step_tx_kick(const struct tb_step *step)
{
	return xsk_kick_tx();
}

static int step_comp_drain(const struct tb_step *step)
{
	return xsk_comp_drain(step->count);
}

static int step_wakeup_rx(const struct tb_step *step)
{
	return xsk_wakeup_rx();
}

static int step_wakeup_tx(const struct tb_step *step)
{
	return xsk_wakeup_tx();
}

static int step_sleep(const struct tb_step *step)
{
	clock_sleep_ns(step->a * 1000);
	return 0;
}

static int step_set(const struct tb_step *step)
{
	return interface_set(step->a, step->b);
}

static int step_snapshot_rings(const struct tb_step *step)
{
	for (int counter = TB_COUNTER_RX_PACKETS; counter <= TB_COUNTER_SOFTNET_DROPPED; counter++)
		trace_record(TB_EV_INTERFACE, counter, 0, 0, interface_counter(counter));
	return xsk_snapshot();
}

static int step_host(const struct tb_step *step)
{
	const struct tb_barrier barrier = { .step = current, .action = step->a };

	channel_barrier(&barrier, step->b);
	return 0;
}

static int step_mtu(const struct tb_step *step)
{
	return settled(interface_set_mtu(step->a));
}

static int step_coalesce(const struct tb_step *step)
{
	const __u32 tx_frames = step->c - 1;
	int error;

	/* What a driver has not at all, or not as much of, it says before it changes anything. */
	for (__u32 rx = step->a, tx = step->b;; rx /= 2, tx /= 2) {
		error = interface_set_coalesce(rx, tx, step->c ? &tx_frames : NULL);
		if (!step->count || (error != -EINVAL && error != -EOPNOTSUPP))
			return settled(error);
		if (!rx && !tx)
			return 0;
	}
}

static int step_threaded(const struct tb_step *step)
{
	return interface_set_threaded(step->a);
}

static int step_stack_send(const struct tb_step *step)
{
	return interface_stack_send(step->count, step->a);
}

static int step_log_line(const struct tb_step *step)
{
	const __u64 words[] = { step->a, step->b, step->c };
	FILE *log = fopen("/dev/kmsg", "we");

	if (!log)
		return -errno;
	fprintf(log, "<5>testbed: %.*s\n", (int)sizeof(words), (const char *)words);
	return fclose(log) ? -errno : 0;
}

static int step_netconsole(const struct tb_step *step)
{
	return boot_netconsole(step->a);
}

static int step_cpus(const struct tb_step *step)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(step->a, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		return -errno;
	irq_cpu = step->b;
	return settled(0);
}

static int step_interface(const struct tb_step *step)
{
	const int error = interface_set_up(step->a);

	return step->a ? settled(error) : error;
}

static int step_exec(const struct tb_step *step)
{
	return exec_run(step->a);
}

static step_function *const functions[] = {
	[TB_STEP_RINGS] = step_rings,
	[TB_STEP_UMEM] = step_umem,
	[TB_STEP_XDP_ATTACH] = step_xdp_attach,
	[TB_STEP_XDP_DETACH] = step_xdp_detach,
	[TB_STEP_BIND] = step_bind,
	[TB_STEP_UNBIND] = step_unbind,
	[TB_STEP_FILL] = step_fill,
	[TB_STEP_RX_DRAIN] = step_rx_drain,
	[TB_STEP_TX] = step_tx,
	[TB_STEP_TX_KICK] = step_tx_kick,
	[TB_STEP_COMP_DRAIN] = step_comp_drain,
	[TB_STEP_WAKEUP_RX] = step_wakeup_rx,
	[TB_STEP_WAKEUP_TX] = step_wakeup_tx,
	[TB_STEP_SLEEP] = step_sleep,
	[TB_STEP_SET] = step_set,
	[TB_STEP_SNAPSHOT_RINGS] = step_snapshot_rings,
	[TB_STEP_HOST] = step_host,
	[TB_STEP_MTU] = step_mtu,
	[TB_STEP_COALESCE] = step_coalesce,
	[TB_STEP_THREADED] = step_threaded,
	[TB_STEP_STACK_SEND] = step_stack_send,
	[TB_STEP_LOG_LINE] = step_log_line,
	[TB_STEP_CPUS] = step_cpus,
	[TB_STEP_INTERFACE] = step_interface,
	[TB_STEP_NETCONSOLE] = step_netconsole,
	[TB_STEP_FILE] = exec_store,
	[TB_STEP_EXEC] = step_exec,
};

static int run_step(const struct tb_step *step)
{
	if (step->kind >= sizeof(functions) / sizeof(*functions) || !functions[step->kind])
		return -ENOSYS;
	return functions[step->kind](step);
}

__u32 steps_run(const struct tb_step *steps, __u32 count, int *error)
{
	*error = 0;
	clock_start();
	for (__u32 i = 0; i < count; i++) {
		const struct tb_step *step = &steps[i];
		int result;

		current = i;
		trace_record(TB_EV_STEP_BEGIN, i, step->kind, step->queue, step->count ? step->count : step->a);
		result = run_step(step);
		trace_record(TB_EV_STEP_END, i, result < 0 ? result : 0, 0, result < 0 ? 0 : result);
		if (result < 0) {
			*error = result;
			return i;
		}
	}
	return count;
}
