// SPDX-License-Identifier: GPL-2.0-or-later
// The combined poll unmasks its interrupts whatever napi_complete_done() returned
//
// Violates: unmask-needs-ownership
//
// When the core says no, the NAPI is scheduled again or its interrupts are deferred: somebody else owns it.

@whatever_it_says@
expression napi, work;
statement unmask;
@@
stmmac_napi_poll_rxtx(...)
{
<+...
-if (napi_complete_done(napi, work))
-	unmask
+napi_complete_done(napi, work);
+unmask
...+>
}
