/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The few fields of the kernel's structures that the observer reads. CO-RE finds where they lie in the running kernel,
 * so one object serves every kernel, and no vmlinux.h is generated.
 */
#ifndef TESTBED_OBSERVER_KERNEL_H
#define TESTBED_OBSERVER_KERNEL_H

#include <linux/types.h>
#include <stdbool.h>

#define __core __attribute__((preserve_access_index))

struct net_device {
	int ifindex;
} __core;

struct hrtimer {
	void *base;
} __core;

struct napi_struct {
	unsigned long state;
	struct net_device *dev;
	unsigned int napi_id;
	struct hrtimer timer;
} __core;

/* Bits of napi_struct.state, whose enumeration in linux/netdevice.h has no name that CO-RE could find it by. */
#define NAPIF_MISSED (1u << 1)
#define NAPIF_IN_BUSY_POLL (1u << 6)

struct xsk_buff_pool {
	struct net_device *netdev;
	__u64 *dma_pages;
	__u16 queue_id;
} __core;

struct sk_buff {
	struct net_device *dev;
	unsigned char *data;
	unsigned int len;
	unsigned int data_len;
} __core;

struct irqaction;
struct bpf_prog;

#endif
