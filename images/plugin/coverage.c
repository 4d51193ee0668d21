// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A plugin of QEMU's TCG: counts how often the guest executes the instructions at certain addresses.
 *
 * -plugin coverage.so,leaders=FILE,fd=N: FILE holds the addresses, ascending, 8 bytes each in the host's order; N is an
 * inherited descriptor of shared memory with a byte for each. A count stops at 255. QEMU hands out no header, so what is
 * used of its interface, version 7, is declared here.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NO_REGISTERS 0

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void tb_translated(struct qemu_plugin_tb *block, void *context);
typedef void insn_executed(unsigned int vcpu, void *context);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, tb_translated *callback, void *context);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, insn_executed *callback, int flags,
					    void *context);

EXPORT int qemu_plugin_version = 7;

static const uint64_t *leaders;
static size_t count;
static uint8_t *counters;

static void executed(unsigned int vcpu, void *context)
{
	uint8_t *counter = context;

	(void)vcpu;
	if (*counter != UINT8_MAX)
		++*counter;
}

static int compare(const void *key, const void *member)
{
	const uint64_t a = *(const uint64_t *)key, b = *(const uint64_t *)member;

	return (a > b) - (a < b);
}

static void translated(struct qemu_plugin_tb *block, void *context)
{
	(void)context;
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
		const uint64_t address = qemu_plugin_insn_vaddr(insn);
		const uint64_t *found;

		if (address < leaders[0] || address > leaders[count - 1])
			continue;
		found = bsearch(&address, leaders, count, sizeof(*leaders), compare);
		if (found)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, NO_REGISTERS,
							       counters + (found - leaders));
	}
}

static int refuse(const char *what)
{
	fprintf(stderr, "coverage plugin: %s\n", what);
	return -1;
}

static int open_leaders(const char *path)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat file;
	void *map;

	if (fd < 0 || fstat(fd, &file))
		return refuse("the file of leaders cannot be read");
	count = file.st_size / sizeof(*leaders);
	if (!count || file.st_size % sizeof(*leaders))
		return refuse("the file of leaders is not whole");
	map = mmap(NULL, file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return refuse("the file of leaders cannot be mapped");
	leaders = map;
	return 0;
}

static int open_counters(int fd)
{
	struct stat file;
	void *map;

	if (fstat(fd, &file) || (size_t)file.st_size < count)
		return refuse("the memory for counters is missing or too small");
	map = mmap(NULL, file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return refuse("the memory for counters cannot be mapped");
	counters = map;
	return 0;
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	const char *path = NULL;
	int fd = -1;

	(void)info;
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "leaders=", 8))
			path = argv[i] + 8;
		else if (!strncmp(argv[i], "fd=", 3))
			fd = atoi(argv[i] + 3);
		else
			return refuse("expected leaders=FILE and fd=NUMBER");
	}
	if (!path || fd < 0)
		return refuse("expected leaders=FILE and fd=NUMBER");
	if (open_leaders(path) || open_counters(fd))
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
	return 0;
}
