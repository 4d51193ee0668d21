// SPDX-License-Identifier: GPL-2.0-or-later
// The combined poll passes on and returns the work of reception alone
//
// Puts back: 81d0885d68ec (stmmac).
// Violates: tx-work-reported
//
// A poll that only reaped what was sent then reports 0, which spends the deferral of napi_defer_hard_irqs: the interrupt
// comes back at once, and each batch pays for one.

@received_alone@
identifier done;
expression budget;
@@
stmmac_napi_poll_rxtx(...)
{
<+...
-napi_complete_done(napi, done)
+napi_complete_done(napi, rx_done)
...+>
-return min(done, budget - 1);
+return min(rx_done, budget - 1);
}
