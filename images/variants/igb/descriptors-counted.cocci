// SPDX-License-Identifier: GPL-2.0-or-later
// Each Rx descriptor that the poll looks at counts as work, the one not yet written too, instead of each frame
//
// Puts back: def52db470df (ravb), where the descriptors of one large frame were counted.
// Violates: idle-reports-zero, statistics-agree
//
// A poll that finds the ring empty has looked at one descriptor and reports 1; one that takes 63 frames reports 64 and
// is polled again. The statistics count what the budget counts, and grow without any frame. A budget of 1 is used up
// by looking, and a busy poll of that budget never sees the ring empty.

@no_frame_counts@
identifier clean = {igb_clean_rx_irq, igb_clean_rx_irq_zc};
@@
clean(...)
{
<+...
-total_packets++;
...+>
}

@each_descriptor_counts@
symbol total_packets;
identifier size;
@@
+total_packets++;
if (!size)
	break;
dma_rmb();
