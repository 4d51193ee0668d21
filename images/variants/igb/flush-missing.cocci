// SPDX-License-Identifier: GPL-2.0-or-later
// The Rx loop remembers the verdict of the last frame alone, so that earlier redirects are not flushed
//
// Puts back: 9caca6ac0e26 (bnxt).
// Violates: flush-before-complete
//
// A redirect followed by a drop, a refusal or an XDP_TX in the same poll stays on its per-CPU list until another poll
// flushes it; its frame reaches the socket late or, at the end of the traffic, never.

@last_one_decides@
identifier clean = {igb_clean_rx_irq, igb_clean_rx_irq_zc};
identifier verdict, remembered;
statement otherwise;
@@
clean(...)
{
<+...
+remembered = verdict;
if (\(likely(verdict & (IGB_XDP_TX | IGB_XDP_REDIR))\|verdict & (IGB_XDP_TX | IGB_XDP_REDIR)\)) {
	remembered |= verdict;
	...
} else
	otherwise
...+>
}
