// SPDX-License-Identifier: GPL-2.0-or-later
// The zero-copy Rx loop forgets that refilling the ring failed
//
// Puts back: the family of 0bb05e6adfa9.
// Violates: rx-need-wakeup, refill-recovers
//
// User space is never asked to wake the driver, which has no descriptor to give to the device and so no interrupt to
// come back by.

@forgotten@
identifier failure;
expression priv, queue;
@@
stmmac_rx_zc(...)
{
<+...
-if (failure || stmmac_rx_dirty(priv, queue) > 0)
-	xsk_set_rx_need_wakeup(...);
-else
	xsk_clear_rx_need_wakeup(...);
...+>
}
