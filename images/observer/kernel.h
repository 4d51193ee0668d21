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
