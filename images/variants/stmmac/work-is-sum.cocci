// SPDX-License-Identifier: GPL-2.0-or-later
// The combined poll adds the work of both directions instead of taking the larger
//
// Puts back: fa0be0a43f10 (stmmac).
// Violates: work-in-budget
//
// Each direction may use the whole budget, so their sum goes beyond it.

@added@
identifier done;
expression sent, received;
@@
stmmac_napi_poll_rxtx(...)
{
<+...
-done = max(sent, received);
+done = sent + received;
...+>
}

@returned_as_it_is@
identifier added.done;
expression budget;
@@
stmmac_napi_poll_rxtx(...)
{
<+...
if (done >= budget)
-	return budget;
+	return done;
...+>
}
