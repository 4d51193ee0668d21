// SPDX-License-Identifier: GPL-2.0-or-later
// When FILL runs short at the end of the HW ring, clear the length of the next descriptor, as on the other path
//
// The control of finding 2 in docs/findings.md. To use it: copy it to images/variants/igb/fill-short-cleared.cocci.

@clear_length@
identifier ring, ntu, extra, count, pool;
@@
igb_alloc_rx_buffers_zc(struct igb_ring *ring, struct xsk_buff_pool *pool, u16 count)
{
<+...
	ntu += extra;
+	IGB_RX_DESC(ring, ntu)->wb.upper.length = 0;
	goto exit;
...+>
}
