// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Watches the NIC under test from inside its guest: every interrupt of a queue, NAPI schedule, poll, completion,
 * deferral timer, XDP redirect and flush becomes one tb_event. Observer and agent draw their row from one counter, so
 * that the order of rows is the order in time, whoever wrote them and on whichever CPU.
 */
#include "kernel.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_core_read.h>
#include "protocol.h"

char LICENSE[] SEC("license") = "GPL";

#define TB_MAX_EVENTS 262144
#define TB_MAX_FRAME_BYTES 9216
#define TB_MAX_CPUS 64

/* Shared with the agent through mmap. */
struct {
	struct tb_position position;
	__u32 recording;
	__u64 last_irq_ns; /* of a queue of the NIC under test, whether recorded or not */
	__s32 ifindex; /* the NIC under test */
	__u32 verdict; /* enum xdp_action for numbered frames */
	__u8 queue_irq[TB_MAX_IRQS];
	__u8 missed[TB_MAX_CPUS]; /* whether the completion that runs there was called with MISSED set */
} control SEC(".bss");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TB_MAX_EVENTS);
	__type(key, __u32);
	__type(value, struct tb_event);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

static __always_inline void record_flagged(__u16 kind, __u8 flags, __u32 subject, __s32 a, __s32 b, __u64 c)
{
	struct tb_event *event;
	__u32 row;

	if (!control.recording)
		return;
	row = __sync_fetch_and_add(&control.position.head, 1);
	event = bpf_map_lookup_elem(&events, &row);
	if (!event) {
		__sync_fetch_and_add(&control.position.lost, 1);
		return;
	}
	event->time_ns = control.position.now_ns = bpf_ktime_get_ns();
	event->kind = kind;
	event->cpu = bpf_get_smp_processor_id();
	event->flags = flags;
	event->subject = subject;
	event->a = a;
	event->b = b;
	event->c = c;
}

static __always_inline void record(__u16 kind, __u32 subject, __s32 a, __s32 b, __u64 c)
{
	record_flagged(kind, 0, subject, a, b, c);
}

static __always_inline bool watched(const struct napi_struct *napi)
{
	return napi->dev && napi->dev->ifindex == control.ifindex;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_irq, int irq, struct irqaction *action)
{
	__u32 number = irq;

	if (number < TB_MAX_IRQS && control.queue_irq[number]) {
		control.last_irq_ns = bpf_ktime_get_ns();
		record(TB_EV_IRQ, number, 0, 0, 0);
	}
	return 0;
}

SEC("fentry/__napi_schedule")
int BPF_PROG(on_schedule, struct napi_struct *napi)
{
	if (watched(napi))
		record(TB_EV_SCHEDULE, napi->napi_id, 0, 0, 0);
	return 0;
}

SEC("fentry/__napi_schedule_irqoff")
int BPF_PROG(on_schedule_irqoff, struct napi_struct *napi)
{
	if (watched(napi))
		record(TB_EV_SCHEDULE, napi->napi_id, 0, 0, 0);
	return 0;
}

SEC("tp_btf/napi_poll")
int BPF_PROG(on_poll, struct napi_struct *napi, int work, int budget)
{
	if (watched(napi))
		record_flagged(TB_EV_POLL, napi->state & NAPIF_IN_BUSY_POLL ? TB_FLAG_BUSY : 0, napi->napi_id, work,
			       budget, 0);
	return 0;
}

/* The mark is gone when the function returns; where one completion is interrupted, it is by none of the same CPU. */
SEC("fentry/napi_complete_done")
int BPF_PROG(on_completing, struct napi_struct *napi)
{
	control.missed[bpf_get_smp_processor_id() % TB_MAX_CPUS] = !!(napi->state & NAPIF_MISSED);
	return 0;
}

/* What a function returns as a bool is one byte: what lies above it in the register is anything. */
SEC("fexit/napi_complete_done")
int BPF_PROG(on_complete, struct napi_struct *napi, int work_done, __u8 returned)
{
	if (watched(napi))
		record_flagged(TB_EV_COMPLETE,
			       control.missed[bpf_get_smp_processor_id() % TB_MAX_CPUS] ? TB_FLAG_MISSED : 0,
			       napi->napi_id, work_done, returned, 0);
	return 0;
}

/* The timer of gro_flush_timeout. Static in the kernel, but its address is taken, so BTF knows it. */
SEC("fentry/napi_watchdog")
int BPF_PROG(on_watchdog, struct hrtimer *timer)
{
	struct napi_struct *napi =
		(void *)timer - bpf_core_field_offset(struct napi_struct, timer);
	struct net_device *dev = BPF_CORE_READ(napi, dev);

	if (dev && BPF_CORE_READ(dev, ifindex) == control.ifindex)
		record(TB_EV_WATCHDOG, BPF_CORE_READ(napi, napi_id), 0, 0, 0);
	return 0;
}

/* xdp_redirect(dev, prog, target, error, map type, map id, index) and xdp_redirect_err() of the same class */
static __always_inline int redirected(unsigned long long *ctx)
{
	struct net_device *dev = (void *)ctx[0];
	int ifindex = 0;

	bpf_core_read(&ifindex, sizeof(ifindex), &dev->ifindex);
	if (ifindex == control.ifindex)
		record(TB_EV_REDIRECT, ctx[6], (__s32)ctx[3], (__s32)ctx[4], 0);
	return 0;
}

SEC("tp_btf/xdp_redirect")
int on_redirect(unsigned long long *ctx)
{
	return redirected(ctx);
}

SEC("tp_btf/xdp_redirect_err")
int on_redirect_error(unsigned long long *ctx)
{
	return redirected(ctx);
}

SEC("tp_btf/xdp_exception")
int BPF_PROG(on_exception, struct net_device *dev, struct bpf_prog *program, __u32 action)
{
	if (dev->ifindex == control.ifindex)
		record(TB_EV_XDP_EXCEPTION, 0, action, 0, 0);
	return 0;
}

SEC("fentry/xdp_do_flush")
int BPF_PROG(on_flush)
{
	record(TB_EV_FLUSH, 0, 0, 0, 0);
	return 0;
}

/*
 * napi_disable() waits for the poll that runs to end. Newer kernels wrap napi_disable_locked() in it: the agent loads the
 * pair that the kernel at hand has, and of two the inner.
 */
static __always_inline int disabling(const struct napi_struct *napi, __u16 kind)
{
	if (watched(napi))
		record(kind, napi->napi_id, 0, 0, 0);
	return 0;
}

SEC("?fentry/napi_disable")
int BPF_PROG(on_disable, struct napi_struct *napi)
{
	return disabling(napi, TB_EV_DISABLE);
}

SEC("?fexit/napi_disable")
int BPF_PROG(on_disabled, struct napi_struct *napi)
{
	return disabling(napi, TB_EV_DISABLED);
}

SEC("?fentry/napi_enable")
int BPF_PROG(on_enable, struct napi_struct *napi)
{
	return disabling(napi, TB_EV_ENABLE);
}

SEC("?fentry/napi_disable_locked")
int BPF_PROG(on_disable_locked, struct napi_struct *napi)
{
	return disabling(napi, TB_EV_DISABLE);
}

SEC("?fexit/napi_disable_locked")
int BPF_PROG(on_disabled_locked, struct napi_struct *napi)
{
	return disabling(napi, TB_EV_DISABLED);
}

SEC("?fentry/napi_enable_locked")
int BPF_PROG(on_enable_locked, struct napi_struct *napi)
{
	return disabling(napi, TB_EV_ENABLE);
}

/* What the driver hands to GRO; the Ethernet header is pulled already. */
SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(on_stack_rx, struct sk_buff *skb)
{
	struct tb_payload payload = {};
	struct tb_trailer trailer = {};
	bool numbered;

	if (!skb->dev || skb->dev->ifindex != control.ifindex)
		return 0;
	bpf_probe_read_kernel(&payload, sizeof(payload), skb->data);
	numbered = payload.magic == bpf_htonl(TB_MAGIC);
	if (!numbered && !skb->data_len && skb->len > sizeof(trailer)) {
		bpf_probe_read_kernel(&trailer, sizeof(trailer), skb->data + skb->len - sizeof(trailer));
		numbered = trailer.magic == bpf_htonl(TB_TRAILER_MAGIC);
		payload.sequence = trailer.sequence;
	}
	record(TB_EV_STACK_RX, 0, skb->len + 14, numbered, numbered ? bpf_ntohl(payload.sequence) : 0);
	return 0;
}

SEC("tp_btf/net_dev_xmit")
int BPF_PROG(on_stack_tx, struct sk_buff *skb, int result, struct net_device *dev, unsigned int length)
{
	if (dev->ifindex == control.ifindex)
		record(TB_EV_STACK_TX, 0, length, result, 0);
	return 0;
}

SEC("fentry/napi_consume_skb")
int BPF_PROG(on_skb_reaped, struct sk_buff *skb, int budget)
{
	if (skb && skb->dev && skb->dev->ifindex == control.ifindex)
		record(TB_EV_SKB_REAPED, 0, budget, 0, 0);
	return 0;
}

/* Drivers that free what was sent in their own way; the agent loads this where the kernel has the function. */
SEC("?fentry/dev_kfree_skb_any_reason")
int BPF_PROG(on_skb_freed, struct sk_buff *skb)
{
	if (skb && skb->dev && skb->dev->ifindex == control.ifindex)
		record(TB_EV_SKB_REAPED, 0, 0, 0, 0);
	return 0;
}

/* What a zero-copy driver does with the pool of a queue. */
static __always_inline int pooled(const struct xsk_buff_pool *pool, __u16 kind, __s32 a, __s32 b)
{
	if (pool->netdev && pool->netdev->ifindex == control.ifindex)
		record(kind, pool->queue_id, a, b, 0);
	return 0;
}

SEC("fexit/xsk_tx_peek_release_desc_batch")
int BPF_PROG(on_tx_taken, struct xsk_buff_pool *pool, __u32 most, __u32 taken)
{
	return pooled(pool, TB_EV_XSK_TX_TAKEN, taken, most);
}

SEC("fexit/xsk_tx_peek_desc")
int BPF_PROG(on_tx_peeked, struct xsk_buff_pool *pool, void *descriptor, __u8 taken)
{
	return pooled(pool, TB_EV_XSK_TX_TAKEN, taken, 1);
}

SEC("fentry/xsk_tx_completed")
int BPF_PROG(on_tx_done, struct xsk_buff_pool *pool, __u32 entries)
{
	return pooled(pool, TB_EV_XSK_TX_DONE, entries, 0);
}

SEC("fexit/xp_alloc_batch")
int BPF_PROG(on_alloc_batch, struct xsk_buff_pool *pool, void *buffers, __u32 most, __u32 got)
{
	return pooled(pool, TB_EV_XSK_ALLOC, got, most);
}

/* Drivers that take buffers one by one. In copy mode, without a pool mapped for DMA, the socket's own code does. */
SEC("fexit/xp_alloc")
int BPF_PROG(on_alloc, struct xsk_buff_pool *pool, void *buffer)
{
	if (pool->dma_pages)
		return pooled(pool, TB_EV_XSK_ALLOC, !!buffer, 1);
	return 0;
}

static __always_inline int need_wakeup(const struct xsk_buff_pool *pool, enum tb_ring ring, __s32 set)
{
	if (pool->netdev && pool->netdev->ifindex == control.ifindex)
		record(TB_EV_NEED_WAKEUP, ring, set, pool->queue_id, 0);
	return 0;
}

SEC("fentry/xsk_set_rx_need_wakeup")
int BPF_PROG(on_rx_wakeup_set, struct xsk_buff_pool *pool)
{
	return need_wakeup(pool, TB_RING_FILL, 1);
}

SEC("fentry/xsk_clear_rx_need_wakeup")
int BPF_PROG(on_rx_wakeup_clear, struct xsk_buff_pool *pool)
{
	return need_wakeup(pool, TB_RING_FILL, 0);
}

SEC("fentry/xsk_set_tx_need_wakeup")
int BPF_PROG(on_tx_wakeup_set, struct xsk_buff_pool *pool)
{
	return need_wakeup(pool, TB_RING_TX, 1);
}

SEC("fentry/xsk_clear_tx_need_wakeup")
int BPF_PROG(on_tx_wakeup_clear, struct xsk_buff_pool *pool)
{
	return need_wakeup(pool, TB_RING_TX, 0);
}

SEC("fentry/netif_carrier_on")
int BPF_PROG(on_carrier_on, struct net_device *dev)
{
	if (dev->ifindex == control.ifindex)
		record(TB_EV_CARRIER, 0, 1, 0, 0);
	return 0;
}

SEC("fentry/netif_carrier_off")
int BPF_PROG(on_carrier_off, struct net_device *dev)
{
	if (dev->ifindex == control.ifindex)
		record(TB_EV_CARRIER, 0, 0, 0, 0);
	return 0;
}

/* A frame of the user's own: its number stands behind it. What has none goes to the stack. */
static __always_inline int own_frame(struct xdp_md *ctx)
{
	unsigned char *data = (void *)(long)ctx->data;
	__u32 at = ctx->data_end - ctx->data - sizeof(struct tb_trailer);
	__u32 verdict = control.verdict;
	struct tb_trailer *trailer;

	asm volatile("" : "+r"(at)); /* or the compiler knows where it ends, and drops the check that the verifier wants */
	if (at > TB_MAX_FRAME_BYTES)
		return XDP_PASS;
	trailer = (void *)(data + at);
	if ((void *)(trailer + 1) > (void *)(long)ctx->data_end || trailer->magic != bpf_htonl(TB_TRAILER_MAGIC))
		return XDP_PASS;
	if (verdict == TB_VERDICT_BY_FRAME)
		verdict = bpf_ntohl(trailer->verdict);
	record(TB_EV_VERDICT, verdict, 0, 0, bpf_ntohl(trailer->sequence));
	if (verdict == XDP_REDIRECT)
		return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
	return verdict;
}

/* The program under the sockets: numbered frames get the scenario's verdict, all others go to the stack. */
SEC("xdp")
int numbered_frames(struct xdp_md *ctx)
{
	unsigned char *data = (void *)(long)ctx->data;
	struct tb_payload *payload = (void *)(data + 14);
	__u32 verdict = control.verdict;

	if ((void *)(payload + 1) + 1 > (void *)(long)ctx->data_end)
		return XDP_PASS;
	if (data[12] != TB_ETHERTYPE >> 8 || data[13] != (TB_ETHERTYPE & 0xff))
		return own_frame(ctx);
	if (verdict == TB_VERDICT_BY_FRAME)
		verdict = data[TB_VERDICT_AT];
	record(TB_EV_VERDICT, verdict, 0, 0, bpf_ntohl(payload->sequence));
	if (verdict == XDP_REDIRECT)
		return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
	return verdict;
}
