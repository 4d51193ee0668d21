// SPDX-License-Identifier: GPL-2.0-or-later
// The zero-copy transmit loop counts its unsigned budget down in the loop's condition
//
// Puts back: 2764ab51d5f0 (stmmac).
// Violates: tx-liveness
//
// After the loop an exhausted budget is the largest number there is and reads as plenty left: the poll claims to be done
// and completes, although entries wait.

@counted_past_zero@
identifier budget;
statement body;
@@
stmmac_xdp_xmit_zc(..., u32 budget)
{
<+...
-for (; budget > 0; budget--)
+while (budget-- > 0)
	body
...+>
}
