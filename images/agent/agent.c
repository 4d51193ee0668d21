// SPDX-License-Identifier: GPL-2.0-or-later
/* Boot, say ready, then run one program after another for ever. Every wait for the host is a stopped machine. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <time.h>
#include "agent.h"

static void sleep_until_quiet(void)
{
	/* RCU callbacks, deferred driver work and link messages of the start-up all end within this virtual second. */
	const struct timespec second = { .tv_sec = 1 };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &second, NULL);
}

static void send_pages(const void *mailbox, const struct tb_ready *ready)
{
	const __u32 count = ready->mailbox_pages + ready->event_pages + 1;
	const unsigned long position = (unsigned long)trace_position();
	__u64 *addresses = calloc(count, sizeof(*addresses));

	if (!addresses)
		channel_fail("no memory for %u addresses", count);
	memory_addresses(mailbox, ready->mailbox_pages, addresses);
	memory_addresses(trace_events(), ready->event_pages, addresses + ready->mailbox_pages);
	memory_addresses((const void *)(position / TB_PAGE_BYTES * TB_PAGE_BYTES), 1, addresses + count - 1);
	addresses[count - 1] += position % TB_PAGE_BYTES;
	channel_send(TB_PAGES, addresses, count, sizeof(*addresses));
	free(addresses);
}

static void send_ready(void)
{
	struct tb_ready ready = {
		.step_bytes = sizeof(struct tb_step),
		.event_bytes = sizeof(struct tb_event),
		.max_events = trace_capacity(),
		.ifindex = interface_index(),
		.event_pages = trace_capacity() * sizeof(struct tb_event) / TB_PAGE_BYTES,
	};
	const void *mailbox = channel_mailbox(&ready.mailbox_pages);
	struct utsname name;

	interface_mac(ready.mac);
	interface_driver(ready.driver, sizeof(ready.driver));
	uname(&name);
	snprintf(ready.release, sizeof(ready.release), "%.63s", name.release);
	channel_send(TB_READY, &ready, 1, sizeof(ready));
	send_pages(mailbox, &ready);
}

static void run_program(void)
{
	struct tb_end end = { 0 };
	const struct tb_step *steps;
	__u32 count;

	steps = channel_program(&count);
	trace_start();
	end.steps_done = steps_run(steps, count, &end.error);
	trace_stop();
	channel_send(TB_END, &end, 1, sizeof(end));
	channel_stop_machine();
}

int main(void)
{
	boot_mount();
	channel_open();
	clock_open();
	boot_load_modules();
	boot_interface();
	frame_open();
	trace_load();
	sleep_until_quiet();
	send_ready();
	channel_stop_ready();
	for (;;)
		run_program();
}
