// SPDX-License-Identifier: GPL-2.0-or-later
// A poll that completes returns at most its budget less one, which is below zero for a budget of zero
//
// Puts back: eaeace60778e.
// Violates: work-in-budget
//
// netpoll polls with a budget of 0. A vector with an Rx ring never gets that far in igb: nothing received is as much as
// the budget, so that it returns its budget of 0. A vector of Tx rings alone does.

@below_zero@
identifier napi, budget, work;
statement unmask;
@@
igb_poll(struct napi_struct *napi, int budget)
{
...
if (\(likely(napi_complete_done(napi, work))\|napi_complete_done(napi, work)\))
	unmask
...
-return work;
+return min(work, budget - 1);
}
