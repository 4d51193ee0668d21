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

static int load_module(const char *name, const char *parameters)
{
	char path[300];
	int file, error = 0;

	snprintf(path, sizeof(path), "/modules/%s", name);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return -errno;
	if (syscall(SYS_finit_module, file, parameters, 0) && errno != EEXIST)
		error = -errno;
	close(file);
	return error;
}

/*
 * A file of the image names modules in load order, one a line; `parameters` are the last one's. Returns -errno, and in
 * `name` the module that was refused.
 */
static int load_modules(const char *list, const char *parameters, char *name, int bytes)
{
	FILE *order = fopen(list, "re");
	int error = 0;

	if (!order)
		return -ENOENT;
	while (!error && fgets(name, bytes, order)) {
		const int next = fgetc(order);

		ungetc(next, order);
		name[strcspn(name, "\n")] = 0;
		error = load_module(name, next == EOF ? parameters : "");
	}
	fclose(order);
	return error;
}

void boot_load_modules(void)
{
	char name[256];
	const int error = load_modules("/modules/order", "", name, sizeof(name));

	if (error && error != -ENOENT)
		channel_fail("cannot load module %s: %s", name, strerror(-error));
}

int boot_netconsole(bool on)
{
	char name[256], target[64];

	if (!on)
		return syscall(SYS_delete_module, "netconsole", O_NONBLOCK) ? -errno : 0;
	snprintf(target, sizeof(target), "netconsole=@/%s,@192.0.2.1/ff:ff:ff:ff:ff:ff", interface_name);
	return load_modules("/modules/later", target, name, sizeof(name));
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
