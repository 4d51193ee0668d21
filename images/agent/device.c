// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A device model that lives in the guest's time. It acts when the guest accesses it, for which the guest waits, and while
 * the machine is stopped: interrupts come only then. So a sleeping program wakes up now and then, looks whether the model
 * wants a stop, and stops the machine for it. The longer nothing happens, the longer it sleeps in between.
 */
#include "agent.h"

#define FIRST_SLICE_NS 100000
#define LAST_SLICE_NS 3200000
#define GRID_NS 10000

bool device_follows(void)
{
	return __atomic_load_n(&trace_position()->follows, __ATOMIC_SEQ_CST);
}

static __u64 on_grid(__u64 time_ns)
{
	return (time_ns + GRID_NS - 1) / GRID_NS * GRID_NS;
}

void device_serve_until(__u64 time_ns)
{
	__u64 slice = FIRST_SLICE_NS;

	while (device_follows()) {
		const __u64 now = clock_program_ns();
		const __u64 due = __atomic_load_n(&trace_position()->due_ns, __ATOMIC_SEQ_CST);
		__u64 next = now + slice;

		if (due && due <= now) {
			channel_device_barrier();
			slice = FIRST_SLICE_NS;
			continue;
		}
		if (due && due < next)
			next = on_grid(due);
		if (next >= time_ns)
			return;
		clock_sleep_until(next);
		trace_tell_time(next);
		if (slice < LAST_SLICE_NS)
			slice *= 2;
	}
}
