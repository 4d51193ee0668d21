// SPDX-License-Identifier: GPL-2.0-or-later
// The zero-copy refill reports success as failure and failure as success
//
// Puts back: ed0907e3bdcf (ice).
// Violates: rx-need-wakeup
//
// A refill that found too few chunks counts as a good one: with need_wakeup, the flag is cleared while the NIC is
// short of buffers, and user space, which has nothing to tell it, never wakes the driver. A refill that found all it
// wanted counts as failed: the flag is set for nothing, and without need_wakeup the poll returns its whole budget.
// In ice that went on for ever, since it refills in each poll. igb refills only when 16 descriptors are free, so that
// the poll after a successful one has nothing to refill and ends: one poll too many, no spin.

@success_is_failure@
expression wanted, filled;
@@
igb_alloc_rx_buffers_zc(...)
{
...
return wanted
-	==
+	!=
	filled;
}
