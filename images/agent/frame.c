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

/* Of the frame from `start` on, with the four bytes at `field` taken as 0. */
static __u32 checksum(const __u8 *frame, __u32 bytes, __u32 start, __u32 field)
{
	static const __u8 zero[4];
	const __u32 after = field + sizeof(zero);
	uLong crc = crc32(0, frame + start, field - start);

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
	payload.checksum = htonl(checksum(frame, bytes, HEADER_BYTES, CHECKSUM_AT));
	memcpy(frame + HEADER_BYTES, &payload, sizeof(payload));
}

static bool is_tag(const __u8 *type)
{
	return (type[0] == 0x81 && !type[1]) || (type[0] == 0x88 && type[1] == 0xa8); /* 802.1Q, 802.1ad */
}

/* A frame of the user's own, with its number behind it. */
static enum frame_state read_trailer(const __u8 *frame, __u32 bytes, __u32 *sequence)
{
	const __u32 at = bytes - sizeof(struct tb_trailer);
	const __u32 field = at + offsetof(struct tb_trailer, checksum);
	struct tb_trailer trailer;
	__u32 start = HEADER_BYTES;

	if (bytes < HEADER_BYTES + sizeof(trailer))
		return FRAME_FOREIGN;
	memcpy(&trailer, frame + at, sizeof(trailer));
	if (trailer.magic != htonl(TB_TRAILER_MAGIC))
		return FRAME_FOREIGN;
	*sequence = ntohl(trailer.sequence);
	while (start + 4 <= at && is_tag(frame + start - 2))
		start += 4;
	if (ntohl(trailer.bytes) != bytes - (start - HEADER_BYTES) ||
	    ntohl(trailer.checksum) != checksum(frame, bytes, start, field))
		return FRAME_DAMAGED;
	return FRAME_INTACT;
}

enum frame_state frame_read(const void *data, __u32 bytes, __u32 *sequence)
{
	const __u8 *frame = data;
	struct tb_payload payload;

	*sequence = 0;
	if (bytes < HEADER_BYTES + sizeof(payload) || frame[12] != TB_ETHERTYPE >> 8 ||
	    frame[13] != (TB_ETHERTYPE & 0xff))
		return read_trailer(frame, bytes, sequence);
	memcpy(&payload, frame + HEADER_BYTES, sizeof(payload));
	*sequence = ntohl(payload.sequence);
	if (ntohl(payload.magic) != TB_MAGIC || ntohl(payload.bytes) != bytes ||
	    ntohl(payload.checksum) != checksum(frame, bytes, HEADER_BYTES, CHECKSUM_AT))
		return FRAME_DAMAGED;
	return FRAME_INTACT;
}
