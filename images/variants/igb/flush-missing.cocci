// SPDX-License-Identifier: GPL-2.0-or-later
// The Rx loop remembers the verdict of the last frame alone, so that earlier redirects are not flushed
//
// Puts back: 9caca6ac0e26 (bnxt).
// Violates: flush-before-complete
//
// A redirect followed by any other verdict in the same poll stays on its per-CPU list until another poll
// flushes it; its frame reaches the socket late or, at the end of the traffic, never.

@each_frame_forgets@
symbol xdp_xmit;
identifier size;
@@
if (!size)
	break;
+xdp_xmit = 0;
dma_rmb();
