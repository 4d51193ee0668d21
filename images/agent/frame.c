// SPDX-License-Identifier: GPL-2.0-or-later
/* Numbered frames: an Ethernet header, struct tb_payload, and a filling that depends on the number. */
#include <arpa/inet.h>
#include <string.h>
#include <zlib.h>
#include "agent.h"

#define HEADER_BYTES 14
#define CHECKSUM_AT (HEADER_BYTES + offsetof(struct tb_payload, checksum))

static const __u8 host_mac[6] = { 0x02, 0, 0, 0, 0, 0x01 };
static __u8 guest_mac[6];

void frame_open(void)
{
	interface_mac(guest_mac);
}

static __u32 checksum(const __u8 *frame, __u32 bytes)
{
	static const __u8 zero[4];
	const __u32 after = CHECKSUM_AT + sizeof(zero);
	uLong crc = crc32(0, frame + HEADER_BYTES, CHECKSUM_AT - HEADER_BYTES);

	crc = crc32(crc, zero, sizeof(zero));
	return crc32(crc, frame + after, bytes - after);
}

void frame_write(void *data, __u32 bytes, __u32 sequence)
{
	struct tb_payload payload = { htonl(TB_MAGIC), htonl(sequence), htonl(bytes), 0 };
	__u8 *frame = data;

	memcpy(frame, host_mac, sizeof(host_mac));
	memcpy(frame + sizeof(host_mac), guest_mac, sizeof(guest_mac));
	frame[12] = TB_ETHERTYPE >> 8;
	frame[13] = TB_ETHERTYPE & 0xff;
	memset(frame + HEADER_BYTES + sizeof(payload), sequence & 0xff,
	       bytes - HEADER_BYTES - sizeof(payload));
	memcpy(frame + HEADER_BYTES, &payload, sizeof(payload));
	payload.checksum = htonl(checksum(frame, bytes));
	memcpy(frame + HEADER_BYTES, &payload, sizeof(payload));
}

enum frame_state frame_read(const void *data, __u32 bytes, __u32 *sequence)
{
	const __u8 *frame = data;
	struct tb_payload payload;

	*sequence = 0;
	if (bytes < HEADER_BYTES + sizeof(payload) || frame[12] != TB_ETHERTYPE >> 8 ||
	    frame[13] != (TB_ETHERTYPE & 0xff))
		return FRAME_FOREIGN;
	memcpy(&payload, frame + HEADER_BYTES, sizeof(payload));
	*sequence = ntohl(payload.sequence);
	if (ntohl(payload.magic) != TB_MAGIC || ntohl(payload.bytes) != bytes ||
	    ntohl(payload.checksum) != checksum(frame, bytes))
		return FRAME_DAMAGED;
	return FRAME_INTACT;
}
