// SPDX-License-Identifier: GPL-2.0-or-later
/* The NIC under test, as the kernel's ioctls and sysfs show it. */
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "agent.h"

#define ADDRESS "192.0.2.2" /* TEST-NET-1, /24 */
#define NETMASK "255.255.255.0"
#define CARRIER_WAIT_MS 10000
#define CARRIER_LOOK_MS 10

const char interface_name[] = "eth0";

unsigned int interface_index(void)
{
	return if_nametoindex(interface_name);
}

static int request(unsigned long code, struct ifreq *ifr)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int error = 0;

	if (fd < 0)
		return -errno;
	strcpy(ifr->ifr_name, interface_name);
	if (ioctl(fd, code, ifr))
		error = -errno;
	close(fd);
	return error;
}

void interface_mac(__u8 mac[6])
{
	struct ifreq ifr = { 0 };

	request(SIOCGIFHWADDR, &ifr);
	memcpy(mac, ifr.ifr_hwaddr.sa_data, 6);
}

static int set_address(unsigned long code, const char *text)
{
	struct ifreq ifr = { 0 };
	struct sockaddr_in *address = (struct sockaddr_in *)&ifr.ifr_addr;

	address->sin_family = AF_INET;
	inet_pton(AF_INET, text, &address->sin_addr);
	return request(code, &ifr);
}

int interface_set_up(bool up)
{
	struct ifreq ifr = { 0 };
	int error = request(SIOCGIFFLAGS, &ifr);

	ifr.ifr_flags = up ? ifr.ifr_flags | IFF_UP : ifr.ifr_flags & ~IFF_UP;
	return error ? error : request(SIOCSIFFLAGS, &ifr);
}

int interface_up(void)
{
	int error = set_address(SIOCSIFADDR, ADDRESS);

	if (!error)
		error = set_address(SIOCSIFNETMASK, NETMASK);
	return error ? error : interface_set_up(true);
}

static FILE *open_sysfs(const char *name, const char *mode)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/class/net/%s/%s", interface_name, name);
	return fopen(path, mode);
}

static __u64 read_sysfs(const char *name)
{
	FILE *file = open_sysfs(name, "re");
	__u64 value = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%llu", &value) != 1)
		value = 0;
	fclose(file);
	return value;
}

static int write_sysfs(const char *name, __u64 value)
{
	FILE *file = open_sysfs(name, "we");
	int error = 0;

	if (!file)
		return -errno;
	if (fprintf(file, "%llu\n", value) < 0)
		error = -errno;
	if (fclose(file) && !error)
		error = -errno;
	return error;
}

int interface_wait_for_carrier(void)
{
	/* A link needs half a second or more, and each look costs. */
	const struct timespec interval = { .tv_nsec = CARRIER_LOOK_MS * 1000000 };

	for (int waited = 0; read_sysfs("carrier") != 1; waited += CARRIER_LOOK_MS) {
		if (waited >= CARRIER_WAIT_MS)
			return -ENOLINK;
		clock_nanosleep(CLOCK_MONOTONIC, 0, &interval, NULL);
	}
	return 0;
}

void interface_driver(char *name, size_t bytes)
{
	char path[PATH_MAX], target[PATH_MAX] = "";

	snprintf(path, sizeof(path), "/sys/class/net/%s/device/driver", interface_name);
	if (readlink(path, target, sizeof(target) - 1) < 0)
		return;
	snprintf(name, bytes, "%s", strrchr(target, '/') ? strrchr(target, '/') + 1 : target);
}

int interface_set_rings(__u32 rx, __u32 tx)
{
	struct ethtool_ringparam rings = { .cmd = ETHTOOL_GRINGPARAM };
	struct ifreq ifr = { .ifr_data = (void *)&rings };
	int error = request(SIOCETHTOOL, &ifr);

	if (error || (rings.rx_pending == rx && rings.tx_pending == tx))
		return error;
	rings.cmd = ETHTOOL_SRINGPARAM;
	rings.rx_pending = rx;
	rings.tx_pending = tx;
	return request(SIOCETHTOOL, &ifr);
}

int interface_set_mtu(__u32 bytes)
{
	struct ifreq ifr = { .ifr_mtu = bytes };

	return request(SIOCSIFMTU, &ifr);
}

int interface_set_coalesce(__u32 rx_usecs, __u32 tx_usecs, const __u32 *tx_frames)
{
	struct ethtool_coalesce coalesce = { .cmd = ETHTOOL_GCOALESCE };
	struct ifreq ifr = { .ifr_data = (void *)&coalesce };
	int error = request(SIOCETHTOOL, &ifr);

	if (error)
		return error;
	coalesce.cmd = ETHTOOL_SCOALESCE;
	coalesce.rx_coalesce_usecs = rx_usecs;
	/* Drivers whose queue pairs share a vector refuse a value of its own for Tx and show 0 for it. */
	if (coalesce.tx_coalesce_usecs || tx_frames)
		coalesce.tx_coalesce_usecs = tx_usecs;
	if (tx_frames)
		coalesce.tx_max_coalesced_frames = *tx_frames;
	return request(SIOCETHTOOL, &ifr);
}

int interface_set_threaded(bool on)
{
	return write_sysfs("threaded", on);
}

int interface_set_irq_cpu(__u32 cpu, const __u8 marks[TB_MAX_IRQS])
{
	for (int irq = 0; irq < TB_MAX_IRQS; irq++) {
		char path[64];
		FILE *file;

		if (!marks[irq])
			continue;
		snprintf(path, sizeof(path), "/proc/irq/%d/smp_affinity_list", irq);
		file = fopen(path, "we");
		if (!file || fprintf(file, "%u\n", cpu) < 0 || fclose(file))
			return -errno;
	}
	return 0;
}

static int set_byte_queue_limits(__u64 bytes)
{
	int error = 0, queue;

	for (queue = 0; !error; queue++) {
		char name[64];

		snprintf(name, sizeof(name), "queues/tx-%d/byte_queue_limits/limit_max", queue);
		error = write_sysfs(name, bytes);
	}
	return queue > 1 && error == -ENOENT ? 0 : error;
}

int interface_set(enum tb_setting setting, __u64 value)
{
	switch (setting) {
	case TB_SET_NAPI_DEFER_HARD_IRQS:
		return write_sysfs("napi_defer_hard_irqs", value);
	case TB_SET_GRO_FLUSH_TIMEOUT:
		return write_sysfs("gro_flush_timeout", value);
	case TB_SET_BYTE_QUEUE_LIMIT:
		return set_byte_queue_limits(value);
	}
	return -EINVAL;
}

/* The second column of /proc/net/softnet_stat: packets dropped because a backlog was full, summed over CPUs. */
static __u64 softnet_dropped(void)
{
	FILE *file = fopen("/proc/net/softnet_stat", "re");
	unsigned int processed, dropped;
	__u64 sum = 0;

	if (!file)
		return 0;
	while (fscanf(file, "%x %x%*[^\n]", &processed, &dropped) == 2)
		sum += dropped;
	fclose(file);
	return sum;
}

__u64 interface_counter(enum tb_counter counter)
{
	switch (counter) {
	case TB_COUNTER_RX_PACKETS:
		return read_sysfs("statistics/rx_packets");
	case TB_COUNTER_TX_PACKETS:
		return read_sysfs("statistics/tx_packets");
	case TB_COUNTER_RX_DROPPED:
		return read_sysfs("statistics/rx_dropped");
	case TB_COUNTER_RX_MISSED:
		return read_sysfs("statistics/rx_missed_errors");
	case TB_COUNTER_SOFTNET_DROPPED:
		return softnet_dropped();
	}
	return 0;
}

/* The name of the device below the interface: "virtio0", or a PCI address. */
static void device_name(char *name, size_t bytes)
{
	char path[64], target[256];
	const char *last;
	ssize_t length;

	snprintf(path, sizeof(path), "/sys/class/net/%s/device", interface_name);
	length = readlink(path, target, sizeof(target) - 1);
	target[length < 0 ? 0 : length] = 0;
	last = strrchr(target, '/');
	snprintf(name, bytes, "%s", last ? last + 1 : target);
}

/*
 * "eth0-TxRx-0", "eth0-rx-0", "eth0:tx-0", "virtio0-input.0" are queue vectors; "eth0", "eth0:mac", "virtio0-config"
 * are not.
 */
static bool serves_queue(const char *actions, const char *device)
{
	static const char *const words[] = { "rx-", "tx-", "input.", "output." };
	const bool by_interface = !strncmp(actions, interface_name, strlen(interface_name));
	char lower[128];
	size_t i;

	if (!by_interface && (!*device || strncmp(actions, device, strlen(device))))
		return false;
	for (i = 0; actions[i] && i + 1 < sizeof(lower); i++)
		lower[i] = tolower((unsigned char)actions[i]);
	lower[i] = 0;
	for (i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strstr(lower, words[i]))
			return true;
	return false;
}

static bool read_irq_actions(int irq, char *actions, int bytes)
{
	char path[64];
	FILE *file;
	bool read;

	snprintf(path, sizeof(path), "/sys/kernel/irq/%d/actions", irq);
	file = fopen(path, "re");
	if (!file)
		return false;
	read = fgets(actions, bytes, file);
	fclose(file);
	return read;
}

void interface_mark_queue_irqs(__u8 marks[TB_MAX_IRQS])
{
	int vectors = 0, other = -1;
	char actions[128], device[256];

	device_name(device, sizeof(device));
	for (int irq = 0; irq < TB_MAX_IRQS; irq++) {
		marks[irq] = 0;
		if (!read_irq_actions(irq, actions, sizeof(actions)))
			continue;
		if (serves_queue(actions, device)) {
			marks[irq] = 1;
			vectors++;
		} else if (!strncmp(actions, interface_name, strlen(interface_name))) {
			other = irq;
		}
	}
	if (!vectors && other >= 0) /* one vector serves everything */
		marks[other] = 1;
}
