// SPDX-License-Identifier: GPL-2.0-or-later
/* From the kernel's first process to an interface with carrier. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "agent.h"

#define WAIT_MS 20000

static void mount_at(const char *type, const char *path)
{
	mkdir(path, 0755);
	if (mount(type, path, type, 0, NULL) && errno != EBUSY)
		channel_fail("cannot mount %s: %s", path, strerror(errno));
}

void boot_mount(void)
{
	mount_at("devtmpfs", "/dev");
	mount_at("proc", "/proc");
	mount_at("sysfs", "/sys");
}

/* /modules/order names the modules in load order, one a line. */
void boot_load_modules(void)
{
	FILE *order = fopen("/modules/order", "re");
	char line[256], path[300];

	while (order && fgets(line, sizeof(line), order)) {
		int file;

		line[strcspn(line, "\n")] = 0;
		snprintf(path, sizeof(path), "/modules/%s", line);
		file = open(path, O_RDONLY | O_CLOEXEC);
		if (file < 0 || (syscall(SYS_finit_module, file, "", 0) && errno != EEXIST))
			channel_fail("cannot load module %s: %s", line, strerror(errno));
		close(file);
	}
	if (order)
		fclose(order);
}

void boot_interface(void)
{
	const struct timespec millisecond = { .tv_nsec = 1000000 };
	int error;

	for (int waited = 0; !interface_index(); waited++) {
		if (waited == WAIT_MS)
			channel_fail("%s did not appear in %d ms", interface_name, WAIT_MS);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &millisecond, NULL);
	}
	error = interface_up();
	if (!error)
		error = interface_wait_for_carrier();
	if (error)
		channel_fail("cannot bring %s up: %s", interface_name, strerror(-error));
}
