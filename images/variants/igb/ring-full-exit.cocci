// SPDX-License-Identifier: GPL-2.0-or-later
// The right repair: on a full AF_XDP Rx ring, step past the refused frame, then leave the poll
//
// igb asks for IGB_XDP_EXIT when xdp_do_redirect() says -ENOBUFS and the socket uses need_wakeup, then falls through
// to the label of XDP_DROP, which overwrites the result: the exit is never taken. Two changes belong together.
//
// exit_survives: what XDP_DROP stores must not hide the exit. The exception is still traced on the way, as in i40e,
// ice and ixgbe. Only the -ENOBUFS branch ever stores IGB_XDP_EXIT, so that no other verdict changes.
//
// step_past_refused: the driver's loop was written for cores that left a refused buffer with the driver, which would
// offer the frame again in the next poll. Since 6.8 (and igb has zero copy only since 6.14) xsk_rcv_zc() frees it. To
// leave the descriptor in place is then to own a free chunk: it is handed out a second time while the first frame
// still waits. So the refused frame ends here, like one that a program drops:
//  - xsk_buff_free() is harmless after the core's own (xp_free() returns when the buffer is on the free list), and
//    keeps the chunk from leaking should a redirect say -ENOBUFS without having freed it;
//  - next_to_clean moves on, so that the refill after the loop gives the slot a fresh chunk;
//  - it counts as work and in the statistics as every frame taken off the ring does. That is at most `budget`, since
//    the loop only begins a frame while it is below. A poll that ends at exactly `budget` is polled again, and leaves
//    at its first refused frame.
// `failure` makes the driver set need_wakeup: user space wakes it when it has made room.

@exit_survives exists@
identifier result;
@@
igb_run_xdp_zc(...)
{
...
trace_xdp_exception(...);
...
-result = IGB_XDP_CONSUMED;
+if (result != IGB_XDP_EXIT)
+	result = IGB_XDP_CONSUMED;
...
}

@step_past_refused@
identifier xdp_res, failure, xdp, packets, bytes, size, ntc, ring;
@@
igb_clean_rx_irq_zc(...)
{
<+...
if (xdp_res == IGB_XDP_EXIT) {
	failure = true;
+	xsk_buff_free(xdp);
+	packets++;
+	bytes += size;
+	if (++ntc == ring->count)
+		ntc = 0;
	break;
} else if (xdp_res == IGB_XDP_CONSUMED) {
	xsk_buff_free(xdp);
}
...
packets++;
bytes += size;
ntc++;
if (ntc == ring->count)
	ntc = 0;
...+>
}
