// SPDX-License-Identifier: GPL-2.0-or-later
/* One AF_XDP socket with its UMEM and four rings, straight on the kernel's interface: the steps must be exact. */
#include <errno.h>
#include <linux/if_xdp.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "agent.h"

#ifndef AF_XDP
#define AF_XDP 44
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif

#define BUSY_POLL_US 20 /* each call polls once, however long this is: it must only not be 0 */
#define REBIND_TRIES 200 /* the old pool of a queue is released by a worker: EBUSY until then */

struct ring {
	void *map;
	size_t map_bytes;
	_Atomic __u32 *producer;
	_Atomic __u32 *consumer;
	__u32 *flags;
	void *entries;
	__u32 size;
};

static int fd = -1;
static __u32 bound_queue;
static bool busy; /* sendto() and recvfrom() poll the NIC, whether a flag asks for it or not */
static __u8 *umem;
static size_t umem_bytes;
static __u32 chunk_size;
static __u32 chunk_total;
static __u32 tx_sequence;
static __u32 fill_seen; /* entries of FILL known to be taken */
static struct ring rings[4];

static int set_option(int option, const void *value, socklen_t bytes)
{
	return setsockopt(fd, SOL_XDP, option, value, bytes) ? -errno : 0;
}

static int map_ring(enum tb_ring which, __u32 size, const struct xdp_ring_offset *offset, off_t page_offset,
		    size_t entry_bytes)
{
	struct ring *ring = &rings[which];

	ring->map_bytes = offset->desc + size * entry_bytes;
	ring->map = mmap(NULL, ring->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
			 page_offset);
	if (ring->map == MAP_FAILED) {
		ring->map = NULL;
		return -errno;
	}
	ring->producer = (void *)((char *)ring->map + offset->producer);
	ring->consumer = (void *)((char *)ring->map + offset->consumer);
	ring->flags = (void *)((char *)ring->map + offset->flags);
	ring->entries = (char *)ring->map + offset->desc;
	ring->size = size;
	return 0;
}

static int get_offsets(struct xdp_mmap_offsets *offsets)
{
	socklen_t bytes = sizeof(*offsets);

	return getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, offsets, &bytes) ? -errno : 0;
}

static __u32 used(const struct ring *ring)
{
	return ring->map ? atomic_load(ring->producer) - atomic_load(ring->consumer) : 0;
}

static bool asks_for_wakeup(const struct ring *ring)
{
	return ring->map && (*(volatile __u32 *)ring->flags & XDP_RING_NEED_WAKEUP);
}

static __u32 least(__u32 a, __u32 b)
{
	return a < b ? a : b;
}

int xsk_close(void)
{
	/* The unbind happens only when the last mapping of the rings is gone. */
	for (int i = 0; i < 4; i++)
		if (rings[i].map)
			munmap(rings[i].map, rings[i].map_bytes);
	memset(rings, 0, sizeof(rings));
	if (fd >= 0) {
		trace_remove_socket(bound_queue);
		close(fd);
	}
	if (umem)
		munmap(umem, umem_bytes);
	fd = -1;
	busy = false;
	umem = NULL;
	ledger_close();
	return 0;
}

int xsk_umem(__u32 chunks, __u32 chunk_bytes, __u32 fill_entries, __u32 completion_entries)
{
	struct xdp_umem_reg registration = { 0 };
	struct xdp_mmap_offsets offsets;
	int error;

	xsk_close();
	if (chunks > TB_MAX_CHUNKS)
		return -EINVAL;
	umem_bytes = (size_t)chunks * chunk_bytes;
	umem = mmap(NULL, umem_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (umem == MAP_FAILED) {
		umem = NULL;
		return -ENOMEM;
	}
	fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	registration.addr = (__u64)(unsigned long)umem;
	registration.len = umem_bytes;
	registration.chunk_size = chunk_bytes;
	chunk_size = chunk_bytes;
	chunk_total = chunks;
	tx_sequence = 0;
	fill_seen = 0;
	if ((error = set_option(XDP_UMEM_REG, &registration, sizeof(registration))) ||
	    (error = set_option(XDP_UMEM_FILL_RING, &fill_entries, sizeof(fill_entries))) ||
	    (error = set_option(XDP_UMEM_COMPLETION_RING, &completion_entries, sizeof(completion_entries))) ||
	    (error = get_offsets(&offsets)) ||
	    (error = map_ring(TB_RING_FILL, fill_entries, &offsets.fr, XDP_UMEM_PGOFF_FILL_RING, sizeof(__u64))) ||
	    (error = map_ring(TB_RING_COMPLETION, completion_entries, &offsets.cr,
			      XDP_UMEM_PGOFF_COMPLETION_RING, sizeof(__u64))))
		return error;
	return ledger_open(chunks);
}

static int bind_queue(__u32 queue, __u16 flags)
{
	const struct timespec pause = { .tv_nsec = 5000000 };
	struct sockaddr_xdp address = {
		.sxdp_family = AF_XDP,
		.sxdp_flags = flags,
		.sxdp_ifindex = interface_index(),
		.sxdp_queue_id = queue,
	};

	for (int tries = 0; tries < REBIND_TRIES; tries++) {
		if (!bind(fd, (struct sockaddr *)&address, sizeof(address)))
			return 0;
		if (errno != EBUSY)
			return -errno;
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	}
	return -EBUSY;
}

/* As Documentation/networking/napi.rst has it: the budget is of each poll, and the interrupt is to stay masked meanwhile. */
static int poll_busily(int budget)
{
	const int prefer = 1, duration_us = BUSY_POLL_US;

	if (setsockopt(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, &prefer, sizeof(prefer)) ||
	    setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &duration_us, sizeof(duration_us)) ||
	    setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget, sizeof(budget)))
		return -errno;
	busy = true;
	return 0;
}

int xsk_bind(__u32 queue, __u16 flags, __u32 rx_entries, __u32 tx_entries, __u32 busy_budget)
{
	struct xdp_mmap_offsets offsets;
	int error;

	if (fd < 0)
		return -EBADF;
	if ((error = set_option(XDP_RX_RING, &rx_entries, sizeof(rx_entries))) ||
	    (error = set_option(XDP_TX_RING, &tx_entries, sizeof(tx_entries))) ||
	    (error = get_offsets(&offsets)) ||
	    (error = map_ring(TB_RING_RX, rx_entries, &offsets.rx, XDP_PGOFF_RX_RING, sizeof(struct xdp_desc))) ||
	    (error = map_ring(TB_RING_TX, tx_entries, &offsets.tx, XDP_PGOFF_TX_RING, sizeof(struct xdp_desc))) ||
	    (error = bind_queue(queue, flags)) || (busy_budget && (error = poll_busily(busy_budget))))
		return error;
	bound_queue = queue;
	return trace_add_socket(queue, fd);
}

/* Chunks whose FILL entry the kernel has taken are the kernel's. Its index lags: it moves in batches. */
static void note_taken(void)
{
	const struct ring *fill = &rings[TB_RING_FILL];
	const __u64 *entries = fill->entries;
	__u32 consumer = atomic_load(fill->consumer);

	while (fill_seen != consumer) {
		__u32 chunk = entries[fill_seen++ & (fill->size - 1)] / chunk_size;

		if (ledger_owner(chunk) == TB_OWNER_FILL)
			ledger_set_owner(chunk, TB_OWNER_KERNEL);
	}
}

int xsk_fill(__u32 count)
{
	struct ring *fill = &rings[TB_RING_FILL];
	__u64 *entries = fill->entries;
	__u32 producer, chunk, done = 0;

	if (!fill->map)
		return -EBADF;
	note_taken();
	producer = atomic_load(fill->producer);
	count = least(count, least(fill->size - used(fill), ledger_free_chunks()));
	while (done < count && ledger_take(&chunk)) {
		ledger_check_held(chunk, umem + (size_t)chunk * chunk_size);
		ledger_set_owner(chunk, TB_OWNER_FILL);
		trace_record(TB_EV_FILL, chunk, 0, 0, 0);
		entries[(producer + done++) & (fill->size - 1)] = (__u64)chunk * chunk_size;
	}
	atomic_store(fill->producer, producer + done);
	return done;
}

static void deliver(const struct xdp_desc *descriptor)
{
	__u64 address = descriptor->addr & XSK_UNALIGNED_BUF_ADDR_MASK;
	enum frame_state state;
	__u32 sequence, chunk;

	if (address + descriptor->len > umem_bytes) {
		ledger_violation(chunk_total, TB_LEDGER_BAD_ADDRESS, address);
		return;
	}
	chunk = address / chunk_size;
	state = frame_read(umem + address, descriptor->len, &sequence);
	trace_record(TB_EV_RX, chunk, descriptor->len, state, sequence);
	ledger_deliver(chunk, address % chunk_size, descriptor->len, state, sequence);
}

int xsk_rx_drain(__u32 count)
{
	struct ring *rx = &rings[TB_RING_RX];
	const struct xdp_desc *entries = rx->entries;
	__u32 consumer, done;

	if (!rx->map)
		return -EBADF;
	note_taken();
	consumer = atomic_load(rx->consumer);
	count = least(count, used(rx));
	for (done = 0; done < count; done++)
		deliver(&entries[(consumer + done) & (rx->size - 1)]);
	atomic_store(rx->consumer, consumer + done);
	return done;
}

int xsk_tx(__u32 count, __u32 bytes)
{
	struct ring *tx = &rings[TB_RING_TX];
	struct xdp_desc *entries = tx->entries;
	__u32 producer, chunk, done = 0;

	if (!tx->map)
		return -EBADF;
	if (bytes > chunk_size)
		return -EMSGSIZE;
	producer = atomic_load(tx->producer);
	count = least(count, least(tx->size - used(tx), ledger_free_chunks()));
	while (done < count && ledger_take(&chunk)) {
		__u64 address = (__u64)chunk * chunk_size;

		ledger_check_held(chunk, umem + address);
		frame_write(umem + address, bytes, tx_sequence);
		ledger_set_owner(chunk, TB_OWNER_TX);
		trace_record(TB_EV_TX, chunk, bytes, 0, tx_sequence++);
		entries[(producer + done++) & (tx->size - 1)] = (struct xdp_desc){ .addr = address, .len = bytes };
	}
	atomic_store(tx->producer, producer + done);
	return done;
}

int xsk_comp_drain(__u32 count)
{
	struct ring *completion = &rings[TB_RING_COMPLETION];
	const __u64 *entries = completion->entries;
	__u32 consumer, done;

	if (!completion->map)
		return -EBADF;
	consumer = atomic_load(completion->consumer);
	count = least(count, used(completion));
	for (done = 0; done < count; done++) {
		__u64 address = entries[(consumer + done) & (completion->size - 1)];

		if (address >= umem_bytes) {
			ledger_violation(chunk_total, TB_LEDGER_BAD_ADDRESS, address);
			continue;
		}
		trace_record(TB_EV_COMPLETION, address / chunk_size, 0, 0, 0);
		ledger_complete(address / chunk_size);
	}
	atomic_store(completion->consumer, consumer + done);
	return done;
}

/* EAGAIN, EBUSY and ENOBUFS of a wakeup say "later"; the rings tell what came of it. */
static int wakeup_result(ssize_t result)
{
	if (result >= 0 || errno == EAGAIN || errno == EBUSY || errno == ENOBUFS)
		return 1;
	return -errno;
}

int xsk_kick_tx(void)
{
	return wakeup_result(sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0));
}

int xsk_wakeup_rx(void)
{
	if (!busy && !asks_for_wakeup(&rings[TB_RING_FILL]))
		return 0;
	return wakeup_result(recvfrom(fd, NULL, 0, MSG_DONTWAIT, NULL, NULL));
}

int xsk_wakeup_tx(void)
{
	return busy || asks_for_wakeup(&rings[TB_RING_TX]) ? xsk_kick_tx() : 0;
}

static int record_napi_id(void)
{
	__u32 napi_id = 0;
	socklen_t bytes = sizeof(napi_id);

	if (getsockopt(fd, SOL_SOCKET, SO_INCOMING_NAPI_ID, &napi_id, &bytes))
		return -errno;
	trace_record(TB_EV_NAPI_ID, napi_id, 0, 0, 0);
	return 0;
}

int xsk_snapshot(void)
{
	struct xdp_statistics statistics = { 0 };
	const __u64 *fields = (const __u64 *)&statistics;
	socklen_t bytes = sizeof(statistics);

	if (fd < 0)
		return 0;
	note_taken();
	for (int i = 0; i < 4; i++) {
		const struct ring *ring = &rings[i];

		if (ring->map)
			trace_record(TB_EV_RING, i, atomic_load(ring->producer), atomic_load(ring->consumer),
				     ring->size | (__u64)asks_for_wakeup(ring) << 32);
	}
	if (getsockopt(fd, SOL_XDP, XDP_STATISTICS, &statistics, &bytes))
		return -errno;
	for (__u32 i = 0; i < bytes / sizeof(__u64); i++)
		trace_record(TB_EV_XDP_STATISTICS, i, 0, 0, fields[i]);
	ledger_report(used(&rings[TB_RING_FILL]));
	return busy ? record_napi_id() : 0;
}
