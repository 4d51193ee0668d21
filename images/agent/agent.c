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

static void send_ready(void)
{
	struct tb_ready ready = {
		.step_bytes = sizeof(struct tb_step),
		.event_bytes = sizeof(struct tb_event),
		.max_events = trace_capacity(),
		.ifindex = interface_index(),
	};
	struct utsname name;

	interface_mac(ready.mac);
	interface_driver(ready.driver, sizeof(ready.driver));
	uname(&name);
	snprintf(ready.release, sizeof(ready.release), "%.63s", name.release);
	channel_send(TB_READY, &ready, 1, sizeof(ready));
}

static void run_program(void)
{
	struct tb_end end = { 0 };
	const struct tb_event *events;
	struct tb_step *steps;
	__u32 count;

	steps = channel_receive_program(&count);
	trace_start();
	end.steps_done = steps_run(steps, count, &end.error);
	trace_stop();
	free(steps);
	events = trace_events(&end.events, &end.lost);
	channel_send(TB_EVENTS, events, end.events, sizeof(*events));
	channel_send(TB_END, &end, 1, sizeof(end));
	channel_stop_machine();
}

int main(void)
{
	boot_mount();
	boot_load_modules();
	channel_open();
	boot_interface();
	frame_open();
	trace_load();
	sleep_until_quiet();
	send_ready();
	channel_stop_machine();
	for (;;)
		run_program();
}
