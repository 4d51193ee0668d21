// SPDX-License-Identifier: GPL-2.0-or-later
// The poll calls napi_complete_done() twice
//
// Violates: single-complete
//
// The second call gives up what the first one gave up already, or, after a first one that returned false, what the core
// has just scheduled again.

@twice@
identifier napi, budget, work;
statement unmask;
@@
e1000e_poll(struct napi_struct *napi, int budget)
{
...
+napi_complete_done(napi, work);
if (\(likely(napi_complete_done(napi, work))\|napi_complete_done(napi, work)\))
	unmask
...
}
