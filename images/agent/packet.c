// SPDX-License-Identifier: GPL-2.0-or-later
/* Frames through the stack: what an ordinary program sends on the interface, without AF_XDP. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <sys/socket.h>
#include <unistd.h>
#include "agent.h"

#define MAX_FRAME_BYTES 16384
#define FIRST_SEQUENCE 0x80000000u /* apart from the numbers that AF_XDP frames of this guest have */

static __u32 next_sequence = FIRST_SEQUENCE;

static int open_socket(void)
{
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = 0, /* only to send */
		.sll_ifindex = interface_index(),
	};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);

	if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address))) {
		close(fd);
		return -errno;
	}
	return fd < 0 ? -errno : fd;
}

int interface_stack_send(__u32 count, __u32 bytes)
{
	static __u8 frame[MAX_FRAME_BYTES];
	int fd = open_socket();
	__u32 sent = 0;

	if (fd < 0)
		return fd;
	while (sent < count) {
		frame_write(frame, bytes, next_sequence++);
		if (send(fd, frame, bytes, MSG_DONTWAIT) != (ssize_t)bytes)
			break; /* a full queue takes no more: the count says so */
		sent++;
	}
	close(fd);
	return sent;
}
