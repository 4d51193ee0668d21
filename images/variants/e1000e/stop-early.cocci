// SPDX-License-Identifier: GPL-2.0-or-later
// The Rx loop stops after 8 frames, and the poll completes although more wait
//
// Puts back: 57030a0b620f (lan743x).
// Violates: full-when-backlogged, irq-rate
//
// A burst costs an interrupt for each 8 frames instead of one for each budget, and where no further frame raises one,
// the rest of the burst waits.

@eight_at_most@
identifier done;
expression limit;
identifier clean = {e1000_clean_rx_irq, e1000_clean_rx_irq_ps, e1000_clean_jumbo_rx_irq};
@@
clean(...)
{
<+...
if (*done >=
-	limit
+	min(limit, 8)
	)
	break;
...+>
}
