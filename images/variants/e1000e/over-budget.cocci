// SPDX-License-Identifier: GPL-2.0-or-later
// The Rx loop runs to twice the budget, and the poll reports all of it
//
// Violates: work-in-budget, bounded-consumption, kernel-clean
//
// The core says so once, in the kernel log. A poll that used up its budget does not complete, so that nothing but the
// amount is wrong.

@twice_the_budget@
identifier napi, budget, work;
expression ring;
@@
e1000e_poll(struct napi_struct *napi, int budget)
{
<+...
ring->clean_rx(..., &work,
-	budget
+	2 * budget
	);
...+>
}

@reported@
identifier napi, budget;
identifier twice_the_budget.work;
expression done;
@@
e1000e_poll(struct napi_struct *napi, int budget)
{
<+...
if (done || work
-	==
+	>=
	budget)
-	return budget;
+	return max(work, budget);
...+>
}
