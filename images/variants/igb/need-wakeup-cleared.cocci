// SPDX-License-Identifier: GPL-2.0-or-later
// The poll ends by clearing the need_wakeup flag of the FILL ring, whatever happened
//
// Puts back: 9a91c05f4bd6 (tsnep).
// Violates: rx-need-wakeup
//
// When the NIC has used up all its buffers, only a wakeup makes the driver look at the FILL ring again, and user space
// is never told that one is needed. Reception stops for good.

@cleared_when_short@
expression pool;
@@
igb_clean_rx_irq_zc(...)
{
<+...
-xsk_set_rx_need_wakeup(pool);
+xsk_clear_rx_need_wakeup(pool);
...+>
}
