// SPDX-License-Identifier: GPL-2.0-or-later
/* Messages to and from the host over a virtio-serial port, and the I/O port that stops the machine. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <time.h>
#include <unistd.h>
#include "agent.h"

#define PORT_NAME "testbed.agent"
#define PVPANIC_PORT 0x505 /* QEMU's pvpanic: writing 1 pauses the machine at this very instruction */
#define WAIT_FOR_PORT_MS 5000
#define MAX_STEPS 16384

static int port = -1;

/* The device number depends on the order of PCI devices, so the port is found by its name. */
static bool find_port(char *path, size_t bytes)
{
	DIR *ports = opendir("/sys/class/virtio-ports");
	struct dirent *entry;
	bool found = false;

	while (ports && !found && (entry = readdir(ports))) {
		char file[PATH_MAX], name[64] = "";
		FILE *stream;

		snprintf(file, sizeof(file), "/sys/class/virtio-ports/%s/name", entry->d_name);
		stream = fopen(file, "re");
		if (!stream)
			continue;
		if (fgets(name, sizeof(name), stream) && !strcmp(name, PORT_NAME "\n")) {
			snprintf(path, bytes, "/dev/%s", entry->d_name);
			found = true;
		}
		fclose(stream);
	}
	if (ports)
		closedir(ports);
	return found;
}

void channel_open(void)
{
	const struct timespec millisecond = { .tv_nsec = 1000000 };
	char path[PATH_MAX];

	for (int waited = 0; !find_port(path, sizeof(path)); waited++) {
		if (waited == WAIT_FOR_PORT_MS)
			channel_fail("no virtio port named " PORT_NAME " appeared in %d ms", WAIT_FOR_PORT_MS);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &millisecond, NULL);
	}
	port = open(path, O_RDWR | O_CLOEXEC);
	if (port < 0)
		channel_fail("cannot open %s: %s", path, strerror(errno));
	if (ioperm(PVPANIC_PORT, 1, 1))
		channel_fail("no access to I/O port %#x: %s", PVPANIC_PORT, strerror(errno));
}

static void write_all(const void *data, size_t bytes)
{
	while (bytes) {
		ssize_t written = write(port, data, bytes);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			channel_fail("the channel takes no more: %s", strerror(errno));
		data = (const char *)data + written;
		bytes -= written;
	}
}

static void read_all(void *data, size_t bytes)
{
	while (bytes) {
		ssize_t got = read(port, data, bytes);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			channel_fail("the channel gives no more: %s", got ? strerror(errno) : "closed by the host");
		data = (char *)data + got;
		bytes -= got;
	}
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

	write_all(&header, sizeof(header));
	write_all(records, (size_t)count * record_bytes);
}

struct tb_step *channel_receive_program(__u32 *count)
{
	struct tb_header header;
	struct tb_step *steps;

	read_all(&header, sizeof(header));
	if (header.magic != TB_MAGIC || header.version != TB_VERSION)
		channel_fail("expected magic %#x version %d, got %#x version %u", TB_MAGIC, TB_VERSION,
			     header.magic, header.version);
	if (header.type != TB_PROGRAM || header.record_bytes != sizeof(*steps) || header.count > MAX_STEPS)
		channel_fail("expected a program of at most %d records of %zu bytes, got type %u with %u of %u",
			     MAX_STEPS, sizeof(*steps), header.type, header.count, header.record_bytes);
	steps = calloc(header.count + 1, sizeof(*steps));
	if (!steps)
		channel_fail("no memory for %u steps", header.count);
	read_all(steps, (size_t)header.count * sizeof(*steps));
	*count = header.count;
	return steps;
}

void channel_stop_machine(void)
{
	outb(1, PVPANIC_PORT);
}

void channel_fail(const char *format, ...)
{
	char text[256];
	va_list arguments;
	FILE *log;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	log = fopen("/dev/kmsg", "we");
	if (log) {
		fprintf(log, "<2>testbed agent: %s\n", text);
		fclose(log);
	}
	/* Not channel_send(): it comes here when the channel itself is what failed. */
	if (port >= 0) {
		const struct tb_header header = { TB_MAGIC, TB_VERSION, TB_FAILURE, strlen(text), 1 };

		if (write(port, &header, sizeof(header)) == sizeof(header) &&
		    write(port, text, strlen(text)) > 0)
			channel_stop_machine();
	}
	_exit(1); /* init has exited: the kernel panics, the host sees it */
}
