// SPDX-License-Identifier: GPL-2.0-or-later
/* The observer's programs, and the table of events that they and the agent write in turn. */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "agent.h"
#include "observer.skel.h"

static struct observer *observer;
static struct tb_event *events;
static __u32 attached_flags;

static int log_warning(enum libbpf_print_level level, const char *format, va_list arguments)
{
	FILE *log;

	if (level != LIBBPF_WARN)
		return 0;
	log = fopen("/dev/kmsg", "we");
	if (!log)
		return 0;
	vfprintf(log, format, arguments);
	fclose(log);
	return 0;
}

__u32 trace_capacity(void)
{
	return bpf_map__max_entries(observer->maps.events);
}

/* Leave out what the kernel at hand has no function for; of napi_disable() and its locked core take the core. */
static void choose_programs(void)
{
	struct btf *kernel = btf__load_vmlinux_btf();
	const bool locked = btf__find_by_name_kind(kernel, "napi_disable_locked", BTF_KIND_FUNC) > 0;

	bpf_program__set_autoload(observer->progs.on_disable, !locked);
	bpf_program__set_autoload(observer->progs.on_disabled, !locked);
	bpf_program__set_autoload(observer->progs.on_enable, !locked);
	bpf_program__set_autoload(observer->progs.on_disable_locked, locked);
	bpf_program__set_autoload(observer->progs.on_disabled_locked, locked);
	bpf_program__set_autoload(observer->progs.on_enable_locked, locked);
	bpf_program__set_autoload(observer->progs.on_skb_freed,
				  btf__find_by_name_kind(kernel, "dev_kfree_skb_any_reason", BTF_KIND_FUNC) > 0);
	btf__free(kernel);
}

void trace_load(void)
{
	libbpf_set_print(log_warning);
	observer = observer__open();
	if (!observer)
		channel_fail("the observer cannot be opened: %s", strerror(errno));
	choose_programs();
	if (observer__load(observer))
		channel_fail("the observer does not load: %s (the log says more)", strerror(errno));
	if (observer__attach(observer))
		channel_fail("the observer does not attach: %s (the log says more)", strerror(errno));
	events = mmap(NULL, (size_t)trace_capacity() * sizeof(*events), PROT_READ | PROT_WRITE, MAP_SHARED,
		      bpf_map__fd(observer->maps.events), 0);
	if (events == MAP_FAILED)
		channel_fail("the table of events cannot be mapped: %s", strerror(errno));
	observer->bss->control.ifindex = interface_index();
}

/* To a device model, which reads it where it lies. */
void trace_tell_time(__u64 now_ns)
{
	__atomic_store_n(&observer->bss->control.position.now_ns, now_ns, __ATOMIC_SEQ_CST);
}

void trace_start(void)
{
	observer->bss->control.position.head = 0;
	observer->bss->control.position.lost = 0;
	trace_queue_irqs();
	__atomic_store_n(&observer->bss->control.recording, 1, __ATOMIC_SEQ_CST);
}

void trace_stop(void)
{
	__atomic_store_n(&observer->bss->control.recording, 0, __ATOMIC_SEQ_CST);
}

const struct tb_event *trace_events(void)
{
	return events;
}

const struct tb_position *trace_position(void)
{
	return &observer->bss->control.position;
}

void trace_record(enum tb_event_kind kind, __u32 subject, __s32 a, __s32 b, __u64 c)
{
	const __u32 row = __atomic_fetch_add(&observer->bss->control.position.head, 1, __ATOMIC_SEQ_CST);
	const __u64 now = clock_now_ns();

	if (row >= trace_capacity()) {
		__atomic_fetch_add(&observer->bss->control.position.lost, 1, __ATOMIC_SEQ_CST);
		return;
	}
	trace_tell_time(now);
	events[row] = (struct tb_event){
		.time_ns = now,
		.kind = kind,
		.cpu = sched_getcpu(),
		.subject = subject,
		.a = a,
		.b = b,
		.c = c,
	};
}

__u64 trace_last_irq_ns(void)
{
	return __atomic_load_n(&observer->bss->control.last_irq_ns, __ATOMIC_SEQ_CST);
}

const __u8 *trace_queue_irqs(void)
{
	interface_mark_queue_irqs(observer->bss->control.queue_irq);
	return observer->bss->control.queue_irq;
}

int trace_attach_xdp(__u32 action, enum tb_xdp_mode mode)
{
	const __u32 flags = mode == TB_XDP_GENERIC ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE;
	int error;

	observer->bss->control.verdict = action;
	error = bpf_xdp_attach(interface_index(), bpf_program__fd(observer->progs.numbered_frames), flags, NULL);
	if (!error)
		attached_flags = flags;
	return error;
}

int trace_detach_xdp(void)
{
	int error = attached_flags ? bpf_xdp_detach(interface_index(), attached_flags, NULL) : 0;

	attached_flags = 0;
	return error;
}

int trace_add_socket(__u32 queue, int fd)
{
	return bpf_map_update_elem(bpf_map__fd(observer->maps.sockets), &queue, &fd, BPF_ANY) ? -errno : 0;
}

void trace_remove_socket(__u32 queue)
{
	bpf_map_delete_elem(bpf_map__fd(observer->maps.sockets), &queue);
}
