// SPDX-License-Identifier: GPL-2.0-or-later
// A repair: when FILL runs dry, the descriptor behind the last one refilled is marked unused on every path
//
// igb_clean_rx_irq_zc() knows that a descriptor is done only by its length, and has no other end than a length of 0.
// igb_alloc_rx_buffers_zc() therefore clears the length of the descriptor at next_to_use, but not when the pool gives
// fewer buffers than are needed up to the end of the ring: that path jumps over it. The length of the frame that lay
// there a round ago still stands, so the next poll takes that frame again, and the one behind it: old frames are
// delivered twice, and the chunks they lie in get two owners. See docs/findings.md.

@clear_on_every_path@
identifier rx_ring, ntu;
@@
igb_alloc_rx_buffers_zc(struct igb_ring *rx_ring, ...)
{
<+...
+IGB_RX_DESC(rx_ring, ntu)->wb.upper.length = 0;
if (rx_ring->next_to_use != ntu) { ... }
...+>
}
