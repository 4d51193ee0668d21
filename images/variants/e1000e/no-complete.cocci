// SPDX-License-Identifier: GPL-2.0-or-later
// A poll that received something returns less than its budget without completing
//
// Violates: short-poll-completes, no-lost-event
//
// The NAPI stays scheduled and is on no list: it is never polled again, no interrupt can schedule it, and whoever wants
// to disable it waits for ever. Polls that received nothing complete, so that the guest comes up in good order.

@no_completion@
identifier napi, budget, work;
statement unmask;
@@
e1000e_poll(struct napi_struct *napi, int budget)
{
...
+if (work)
+	return work;
if (\(likely(napi_complete_done(napi, work))\|napi_complete_done(napi, work)\))
	unmask
...
}
