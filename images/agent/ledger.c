// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Who owns which chunk of the UMEM, by what user space gave away and got back, and which numbered frames came.
 * A chunk that comes back twice is given away twice, as an ordinary application would: the damage must show.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "agent.h"

struct chunk {
	__u8 owner;	  /* enum tb_owner */
	__u8 state;	  /* of the frame in it: enum frame_state + 1 */
	__u16 offset;	  /* of the frame in it, while the owner is TB_OWNER_RX */
	__u32 bytes;
	__u32 sequence;
};

static struct chunk *chunks;
static __u32 chunk_count;

/* Chunks user space may give away, first in first out. Doubled chunks make it longer than the UMEM. */
static __u32 *free_chunks;
static __u32 free_head, free_tail, free_mask;

static __u8 *seen; /* a bit for each sequence number that arrived */
static const __u32 seen_limit = 1u << 24;
static __s64 last_sequence;

void ledger_close(void)
{
	free(chunks);
	free(free_chunks);
	free(seen);
	chunks = NULL;
	free_chunks = NULL;
	seen = NULL;
	chunk_count = 0;
}

int ledger_open(__u32 count)
{
	__u32 capacity = 1;

	while (capacity < 4 * count)
		capacity *= 2;
	chunks = calloc(count, sizeof(*chunks));
	free_chunks = calloc(capacity, sizeof(*free_chunks));
	seen = calloc(seen_limit / 8, 1);
	if (!chunks || !free_chunks || !seen) {
		ledger_close();
		return -ENOMEM;
	}
	chunk_count = count;
	free_mask = capacity - 1;
	free_head = 0;
	free_tail = 0;
	last_sequence = -1;
	while (free_head < count) {
		free_chunks[free_head] = free_head;
		free_head++;
	}
	return 0;
}

__u32 ledger_free_chunks(void)
{
	return free_head - free_tail;
}

static void give_back(__u32 chunk)
{
	if (free_head - free_tail > free_mask) {
		ledger_violation(chunk, TB_LEDGER_SURPLUS, 0);
		return;
	}
	free_chunks[free_head++ & free_mask] = chunk;
}

bool ledger_take(__u32 *chunk)
{
	if (free_head == free_tail)
		return false;
	*chunk = free_chunks[free_tail++ & free_mask];
	return true;
}

enum tb_owner ledger_owner(__u32 chunk)
{
	return chunks[chunk].owner;
}

void ledger_set_owner(__u32 chunk, enum tb_owner owner)
{
	chunks[chunk].owner = owner;
}

void ledger_violation(__u32 chunk, enum tb_ledger what, __u64 sequence)
{
	trace_record(TB_EV_LEDGER, chunk, what, chunk < chunk_count ? chunks[chunk].owner : 0, sequence);
}

static void check_order(__u32 chunk, __u32 sequence)
{
	if (sequence < seen_limit) {
		if (seen[sequence / 8] & (1 << sequence % 8))
			ledger_violation(chunk, TB_LEDGER_DUPLICATE, sequence);
		seen[sequence / 8] |= 1 << sequence % 8;
	}
	if ((__s64)sequence < last_sequence)
		ledger_violation(chunk, TB_LEDGER_OUT_OF_ORDER, sequence);
	else
		last_sequence = sequence;
}

void ledger_deliver(__u32 chunk, __u16 offset, __u32 bytes, enum frame_state state, __u32 sequence)
{
	struct chunk *entry = &chunks[chunk];

	if (entry->owner == TB_OWNER_RX || entry->owner == TB_OWNER_USER)
		ledger_violation(chunk, TB_LEDGER_TWICE, sequence);
	else if (entry->owner == TB_OWNER_TX)
		ledger_violation(chunk, TB_LEDGER_NOT_KERNELS, sequence);
	if (state == FRAME_DAMAGED)
		ledger_violation(chunk, TB_LEDGER_DAMAGED, sequence);
	if (state == FRAME_INTACT)
		check_order(chunk, sequence);
	entry->owner = TB_OWNER_RX;
	entry->offset = offset;
	entry->bytes = bytes;
	entry->state = state + 1;
	entry->sequence = sequence;
	give_back(chunk);
}

/* Before a delivered chunk is given away again: what user space read must still stand there. */
void ledger_check_held(__u32 chunk, const __u8 *data)
{
	struct chunk *entry = &chunks[chunk];
	__u32 sequence;

	if (entry->owner != TB_OWNER_RX || entry->state != FRAME_INTACT + 1)
		return;
	if (frame_read(data + entry->offset, entry->bytes, &sequence) != FRAME_INTACT || sequence != entry->sequence)
		ledger_violation(chunk, TB_LEDGER_CHANGED, entry->sequence);
}

void ledger_complete(__u32 chunk)
{
	if (chunks[chunk].owner != TB_OWNER_TX)
		ledger_violation(chunk, TB_LEDGER_NOT_KERNELS, 0);
	chunks[chunk].owner = TB_OWNER_USER;
	give_back(chunk);
}

/* The kernel cannot hold more entries in FILL than there are chunks that went there and did not come back. */
void ledger_report(__u32 fill_entries)
{
	__u32 counts[TB_OWNER_COUNT] = { 0 };

	for (__u32 i = 0; i < chunk_count; i++)
		counts[chunks[i].owner]++;
	for (__u32 owner = 0; owner < TB_OWNER_COUNT; owner++)
		trace_record(TB_EV_OWNERS, owner, 0, 0, counts[owner]);
	if (fill_entries > counts[TB_OWNER_FILL] + counts[TB_OWNER_KERNEL])
		ledger_violation(0, TB_LEDGER_SURPLUS, fill_entries);
}
