// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The program's clock: where the program should be by what it slept, not by what its steps cost. Sleeps end at times
 * counted from there, as those of a periodic task do, so that a few nanoseconds more or less in one step do not move
 * all that follows. A program that is later than the sleep is long starts from now, on a grid for the same reason.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include "agent.h"

#define ALIGN_AHEAD_NS 12000 /* more than waking up takes */
#define HIT_AHEAD_NS 1000    /* more than reading the clock takes */

static __u64 program_ns;
static bool real; /* the host's time, and not counted instructions */

__u64 clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (__u64)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The kernel hands words of its command line that it does not know to its first process as environment. */
bool clock_is_real(void)
{
	return real;
}

void clock_open(void)
{
	const char *name = getenv(TB_CLOCK_VARIABLE);

	real = name && !strcmp(name, "real");
	/* The kernel may let a sleep last 50 us longer to spare a wakeup, and so end it by other timers than ours. */
	if (prctl(PR_SET_TIMERSLACK, 1))
		channel_fail("the slack of timers cannot be set: %s", strerror(errno));
}

void clock_start(void)
{
	program_ns = clock_now_ns();
}

__u64 clock_program_ns(void)
{
	const __u64 now = clock_now_ns();

	if (program_ns < now)
		program_ns += (now - program_ns + CLOCK_GRID_NS - 1) / CLOCK_GRID_NS * CLOCK_GRID_NS;
	return program_ns;
}

void clock_sleep_until(__u64 time_ns)
{
	const struct timespec time = { .tv_sec = time_ns / 1000000000, .tv_nsec = time_ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL); /* returns at once when it is past */
	program_ns = time_ns;
}

void clock_spin_until(__u64 time_ns)
{
	while (clock_now_ns() < time_ns)
		;
}

/*
 * Return at a set time, to the instruction. Where QEMU counts instructions at 2 ns each, a sleep still ends some
 * nanoseconds early or late, by when its timer was set (the APIC counts in steps of 16). So wake a little before, read
 * the clock, and execute just as many instructions as are left. Elsewhere this is a short spin.
 */
static void burn(__u64 left_ns)
{
	__u64 turns = left_ns / 4;

	asm volatile("1: dec %0\n\t"
		     "jnz 1b\n\t"
		     "test $2, %1\n\t"
		     "jz 2f\n\t"
		     "nop\n"
		     "2:"
		     : "+r"(turns)
		     : "r"((__u32)left_ns)
		     : "cc");
}

static void burn_until(__u64 time_ns)
{
	const __u64 left = time_ns - clock_now_ns();

	if (left >= 8 && left <= ALIGN_AHEAD_NS) /* it is not, when the time is past or another task ran instead */
		burn(left);
}

void clock_align(__u64 time_ns)
{
	clock_sleep_until(time_ns - ALIGN_AHEAD_NS);
	burn_until(time_ns);
	program_ns = time_ns;
}

/* As clock_align(), without sleeping and with the program's time left alone. */
void clock_hit(__u64 time_ns)
{
	clock_spin_until(time_ns - HIT_AHEAD_NS);
	burn_until(time_ns);
}

/* When the program's time is past, go on at one of the set times that follow it, so that small differences vanish. */
void clock_realign(__u64 step_ns)
{
	const __u64 now = clock_now_ns();

	if (program_ns + ALIGN_AHEAD_NS < now)
		clock_align(program_ns + (now + ALIGN_AHEAD_NS - program_ns + step_ns - 1) / step_ns * step_ns);
}

void clock_sleep_ns(__u64 duration_ns)
{
	__u64 end;

	if (program_ns + duration_ns < clock_now_ns())
		clock_program_ns();
	end = program_ns + duration_ns;
	device_serve_until(end);
	clock_align(end);
}
