// SPDX-License-Identifier: GPL-2.0-or-later
/* Messages to the host, the mailbox for its programs, and the I/O port that stops the machine. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "agent.h"

struct mailbox {
	struct tb_header header;
	struct tb_step steps[TB_MAX_STEPS];
};

#define TICK_NS 1000000
#define TICK_GUARD_NS 50000
#define ALARM_AHEAD_NS 30000
#define STOP_AHEAD_NS 600 /* reading the clock before and after leaves about half of it */
#define MODERATION_NS 1100000
#define QUIET_TRIES 10
#define SETTLE_NS 50000
#define RESETTLE_NS 250000
#define STOP_TRIES 10

static struct mailbox *mailbox;
static int alarm_timer = -1;
static __u64 ticks_from_ns; /* when the machine was stopped for its first frames; 0 before that */
static const size_t mailbox_bytes =
	(sizeof(struct mailbox) + TB_PAGE_BYTES - 1) / TB_PAGE_BYTES * TB_PAGE_BYTES;

void channel_open(void)
{
	if (ioperm(TB_MESSAGE_PORT, 1, 1) || iopl(3))
		channel_fail("no access to I/O ports: %s", strerror(errno));
	mailbox = mmap(NULL, mailbox_bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_LOCKED, -1, 0);
	if (mailbox == MAP_FAILED)
		channel_fail("no memory for the mailbox: %s", strerror(errno));
	alarm_timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	if (alarm_timer < 0)
		channel_fail("no timer for barriers: %s", strerror(errno));
}

const void *channel_mailbox(__u32 *pages)
{
	*pages = mailbox_bytes / TB_PAGE_BYTES;
	return mailbox;
}

static void write_bytes(const void *data, size_t bytes)
{
	asm volatile("rep outsb" : "+S"(data), "+c"(bytes) : "d"(TB_MESSAGE_PORT) : "memory");
}

void channel_send(enum tb_message type, const void *records, __u32 count, __u32 record_bytes)
{
	const struct tb_header header = {
		.magic = TB_MAGIC,
		.version = TB_VERSION,
		.type = type,
		.count = count,
		.record_bytes = record_bytes,
	};

	write_bytes(&header, sizeof(header));
	write_bytes(records, (size_t)count * record_bytes);
}

/* To be called after the machine was stopped: that is when the host filled the mailbox. */
const struct tb_step *channel_program(__u32 *count)
{
	const struct tb_header *header = &mailbox->header;

	if (header->magic != TB_MAGIC || header->version != TB_VERSION || header->type != TB_PROGRAM)
		channel_fail("expected a program of version %d, got magic %#x, version %u, type %u", TB_VERSION,
			     header->magic, header->version, header->type);
	if (header->record_bytes != sizeof(struct tb_step) || header->count > TB_MAX_STEPS)
		channel_fail("expected at most %d steps of %zu bytes, got %u of %u", TB_MAX_STEPS,
			     sizeof(struct tb_step), header->count, header->record_bytes);
	*count = header->count;
	return mailbox->steps;
}

const void *channel_payload(void)
{
	return (const char *)mailbox + TB_PAYLOAD_OFFSET;
}

__u32 channel_payload_bytes(void)
{
	return mailbox_bytes - TB_PAYLOAD_OFFSET;
}

void channel_stop_machine(void)
{
	asm volatile("outb %b0, %w1" : : "a"(1), "Nd"(TB_STOP_PORT) : "memory");
}

static bool quiet_at(__u64 time_ns)
{
	return device_follows() || time_ns >= trace_last_irq_ns() + MODERATION_NS;
}

/*
 * QEMU's NICs hold their moderation timer while the machine is stopped and set it anew when it goes on, and whether the
 * clock leaps to it then hangs on the race below. It runs for about a millisecond at most after an interrupt, so stop
 * later than that; a NIC that never falls silent for so long is stopped all the same.
 */
static __u64 quiet_ns(void)
{
	for (int tries = 0; tries < QUIET_TRIES; tries++) {
		const __u64 now = clock_program_ns();
		const __u64 wait = trace_last_irq_ns() + MODERATION_NS - now;

		if (quiet_at(now + ALARM_AHEAD_NS))
			return now + ALARM_AHEAD_NS;
		clock_sleep_until(now + (wait + CLOCK_GRID_NS - 1) / CLOCK_GRID_NS * CLOCK_GRID_NS);
	}
	return clock_program_ns() + ALARM_AHEAD_NS;
}

/*
 * Stop the machine at a set time. Where QEMU counts instructions, two of its threads race when the machine stops: either
 * nothing happens, or the virtual clock first leaps to the next timer. Both must lead to the same guest, so the next
 * timer is one of ours, the last instruction before the stop is always as far from it, and nothing is done until it has
 * fired. What then still differs, a few instructions, is made up for until a set time. When an interrupt of the guest
 * came in between, or the NIC's came since quiet_ns() chose the time, nothing is stopped and the caller tries again; a
 * guest that never leaves it is stopped all the same at the last try.
 */
static bool stop_at(__u64 expiry_ns, bool last)
{
	struct itimerspec alarm = { 0 };
	bool late;
	__u64 fired;

	alarm.it_value.tv_sec = expiry_ns / 1000000000;
	alarm.it_value.tv_nsec = expiry_ns % 1000000000;
	if (timerfd_settime(alarm_timer, TFD_TIMER_ABSTIME, &alarm, NULL))
		channel_fail("the timer of stops cannot be set: %s", strerror(errno));
	clock_hit(expiry_ns - STOP_AHEAD_NS);
	trace_tell_time(expiry_ns);
	late = !last && (clock_now_ns() > expiry_ns - STOP_AHEAD_NS / 2 || !quiet_at(expiry_ns));
	if (!late)
		channel_stop_machine();
	clock_spin_until(expiry_ns);
	if (read(alarm_timer, &fired, sizeof(fired)) != sizeof(fired))
		channel_fail("the timer of stops cannot be read: %s", strerror(errno));
	clock_align(expiry_ns + SETTLE_NS);
	if (device_follows()) /* which may have interrupted at the stop, for longer than that */
		clock_realign(RESETTLE_NS);
	return !late;
}

static void stop_soon(void)
{
	int left = STOP_TRIES;

	while (!stop_at(clock_program_ns() + ALARM_AHEAD_NS, --left == 0))
		;
}

/* Stop before the first program; what is saved here must not depend on that race either. */
void channel_stop_ready(void)
{
	clock_start();
	if (clock_is_real()) {
		channel_stop_machine();
		return;
	}
	stop_soon();
}

/*
 * The pacer's first tick is a whole number of microseconds after the stop at which it is added, on QEMU's own clock,
 * rounded down; counting instructions, that clock is the TSC. Where the stop falls varies by STOP_AHEAD_NS, for the race
 * above: move it to where both its ends lie in one microsecond.
 */
static __u64 in_one_microsecond(__u64 expiry_ns)
{
	const __u64 tsc = __builtin_ia32_rdtsc() + (expiry_ns - clock_now_ns());

	return expiry_ns + (1000 + (1000 + STOP_AHEAD_NS) / 2 - tsc % 1000) % 1000;
}

/*
 * Stop for the host in the middle of a program. Its frames come at ticks of a millisecond that begin at the stop for
 * the first of them: no stop close to a tick. In real time no instant is better than another, and none can be hit.
 */
void channel_barrier(const struct tb_barrier *barrier, bool frames)
{
	__u64 expiry, phase;
	int left = STOP_TRIES;

	channel_send(TB_BARRIER, barrier, 1, sizeof(*barrier));
	if (clock_is_real()) {
		channel_stop_machine();
		return;
	}
	if (device_follows()) { /* no timer of QEMU's, and no pacer */
		stop_soon();
		return;
	}
	do {
		expiry = quiet_ns();
		phase = (expiry - ticks_from_ns) % TICK_NS;
		if (ticks_from_ns && (phase < TICK_GUARD_NS || phase > TICK_NS - TICK_GUARD_NS))
			expiry += 3 * TICK_GUARD_NS;
		if (frames && !ticks_from_ns)
			expiry = in_one_microsecond(expiry);
	} while (!stop_at(expiry, --left == 0));
	if (frames && !ticks_from_ns)
		ticks_from_ns = expiry;
}

/* Stop for the device model alone. */
void channel_device_barrier(void)
{
	const struct tb_barrier barrier = { .step = TB_ALL, .action = TB_ACTION_DEVICE };

	channel_send(TB_BARRIER, &barrier, 1, sizeof(barrier));
	stop_soon();
}

void channel_fail(const char *format, ...)
{
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (!ioperm(TB_MESSAGE_PORT, 1, 1) && !iopl(3)) {
		channel_send(TB_FAILURE, text, strlen(text), 1);
		channel_stop_machine();
	}
	_exit(1); /* init has exited: the kernel panics, and the host sees that */
}
