// SPDX-License-Identifier: GPL-2.0-or-later
// A repair: a poll of the zero-copy transmit side reports what it reaped, and nothing when it reaped nothing
//
// The stock driver reports its budget minus one whenever the socket has nothing left to send, so that an idle poll looks
// like a busy one: the deferral of napi_defer_hard_irqs is loaded anew by each poll of its own timer and never ends.

@only_what_was_reaped@
identifier work, budget;
@@
stmmac_tx_clean(...)
{
<+...
-	work = budget - 1;
+	work = 0;
...+>
}
