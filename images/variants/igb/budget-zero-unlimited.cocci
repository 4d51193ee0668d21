// SPDX-License-Identifier: GPL-2.0-or-later
// The Rx loops read a budget of zero as no limit
//
// Puts back: 278a370c1766 (gve).
// Violates: budget-zero-discipline
//
// netpoll polls with a budget of 0, from any context, to get transmit descriptors back: nothing may be received then,
// no XDP program run, no AF_XDP ring touched. igb_poll() returns its budget all the same, so that the count of frames
// does not show in what it reports.

@zero_is_no_limit@
identifier clean = {igb_clean_rx_irq, igb_clean_rx_irq_zc};
identifier packets, budget;
statement body;
@@
clean(..., const int budget)
{
<+...
while (likely(
-	packets < budget
+	!budget || packets < budget
	)) body
...+>
}
