// SPDX-License-Identifier: GPL-2.0-or-later
/* Physical addresses of our own memory (Documentation/admin-guide/mm/pagemap.rst). */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "agent.h"

#define PAGE_PRESENT (1ull << 63)
#define PAGE_FRAME ((1ull << 55) - 1)

void memory_addresses(const void *start, __u32 pages, __u64 *addresses)
{
	const off_t first = (unsigned long)start / TB_PAGE_BYTES;
	const ssize_t bytes = pages * sizeof(*addresses);
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	for (__u32 page = 0; page < pages; page++) /* a page that was never touched has no address */
		(void)*((const volatile char *)start + (size_t)page * TB_PAGE_BYTES);
	if (pagemap < 0 || pread(pagemap, addresses, bytes, first * sizeof(*addresses)) != bytes)
		channel_fail("/proc/self/pagemap cannot be read: %s", strerror(errno));
	close(pagemap);
	for (__u32 page = 0; page < pages; page++) {
		if (!(addresses[page] & PAGE_PRESENT))
			channel_fail("page %u of a shared range is not in memory", page);
		addresses[page] = (addresses[page] & PAGE_FRAME) * TB_PAGE_BYTES;
	}
}
