// SPDX-License-Identifier: GPL-2.0-or-later
// A poll that received something completes, and then returns its whole budget as if it had not
//
// Puts back: 407e0efdf8ba (idpf), where it happened while queues were taken down.
// Violates: complete-below-budget, full-poll-not-released, kernel-clean
//
// Having completed, the driver owns the NAPI no longer; the core, told that work remains, puts it on its list of those
// to be polled again. It is polled unscheduled, and its next completion warns.

@full_after_completion@
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
+return work ? budget : work;
}
