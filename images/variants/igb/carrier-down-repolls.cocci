// SPDX-License-Identifier: GPL-2.0-or-later
// While the carrier is down the zero-copy transmit says that it is not done, so that the poll goes on
//
// Puts back: 6c7273a26675 (ixgbe).
// Violates: no-spin, carrier-quiet
//
// A poll that begins while the link is down returns its whole budget, and so does each one after it until the link is
// back: one CPU is lost to a NIC that can do nothing.

@not_done_without_carrier@
@@
igb_xmit_zc(...)
{
<+...
if (!netif_carrier_ok(...))
-	return true;
+	return false;
...+>
}
